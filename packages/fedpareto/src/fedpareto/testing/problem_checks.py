"""The rules that every problem must keep: see conformance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.clients import Clients
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.contract.reinforcement import ReinforcementProblem
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Batch, Rows

EXACT, SINGLE = 1e-9, 1e-4
"""Tolerances for two ways of computing the same, in double and in single precision."""


def gap(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors' entries."""
    return float((one.double() - other.double()).abs().max()) if one.numel() else 0.0


def _stack(problem: SupervisedProblem, clients: int, positions: Sequence[int]) -> Clients:
    splits = {name: rows.to(torch.device("cpu"), torch.float64) for name, rows in problem.data(clients, 0).items()}
    preferences = torch.full((len(positions), len(problem.objectives)), 1 / len(problem.objectives)).double()
    addresses = rng.Addresses.at(0, np.array(positions), round=0)
    return Clients(
        problem=problem,
        learner=problem.learner(),
        splits=splits,
        addresses=addresses,
        positions=np.array(positions),
        preferences=preferences,
    )


def _models(problem: SupervisedProblem, count: int) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    noise = torch.randn(count, problem.layout.size, generator=stream, dtype=torch.float64)
    return problem.initial(0).double() + 0.1 * noise


def losses_of(stack: Clients, models: Tensor) -> Tensor:
    """Loss of each client's model on all its training rows, `[n, m]`."""
    problem = stack.problem
    assert isinstance(problem, SupervisedProblem)
    return problem.losses(problem.layout.unflatten(models), stack.all_rows("train"))


def objectives_fit(problem: SupervisedProblem, clients: int) -> None:
    """Losses and reported values have one entry per objective and are finite; losses have finite gradients."""
    stack = _stack(problem, clients, range(clients))
    models = _models(problem, clients).requires_grad_()
    assert problem.initial(0).shape == (problem.layout.size,), "the initial model does not fit the layout"
    losses = losses_of(stack, models)
    assert losses.shape == (clients, len(problem.objectives)), f"losses have the shape {list(losses.shape)}"
    (gradient,) = torch.autograd.grad(losses.sum(), models)
    assert losses.isfinite().all(), "a loss is not finite"
    assert gradient.isfinite().all(), "a gradient is not finite"
    values = stack.evaluate(models.detach())
    assert values.shape == (clients, len(stack.splits), len(problem.objectives))
    assert values.isfinite().all(), "a reported objective is not finite"


def clients_are_independent(problem: SupervisedProblem, clients: int) -> None:
    """A client's losses are the same alone and beside others, however much padding the others bring."""
    models = _models(problem, clients)
    together = losses_of(_stack(problem, clients, range(clients)), models)
    for client in range(clients):
        alone = losses_of(_stack(problem, clients, [client]), models[client : client + 1])
        difference = gap(alone[0], together[client])
        assert difference <= EXACT, f"client {client} has other losses in a stack than alone, by {difference:.1e}"


def padding_does_not_count(problem: SupervisedProblem, clients: int) -> None:
    """Rows that are only there to fill a stack or a last minibatch, with a mask of 0, change no loss and no value."""
    stack, models = _stack(problem, clients, range(clients)), _models(problem, clients)
    parameters, batch = problem.layout.unflatten(models), stack.all_rows("train")
    # The first row over and over: a copy of all rows would have their mean.
    filler = {
        name: torch.cat([column, column[:, :1].expand_as(column)], dim=1) for name, column in batch.columns.items()
    }
    padded = Batch(filler, torch.cat([batch.mask, torch.zeros_like(batch.mask)], dim=1))
    for what, measure in (("losses", problem.losses), ("reported objectives", problem.evaluate)):
        difference = gap(measure(parameters, batch), measure(parameters, padded))
        assert difference <= EXACT, (
            f"rows with a mask of 0 change the {what} by {difference:.1e}; use batch.mean instead of a mean"
        )


def data_follow_the_seed(problem: SupervisedProblem, clients: int) -> None:
    """Rows follow from the seed; every client has some."""
    first, second = problem.data(clients, 0), problem.data(clients, 0)
    for name, rows in first.items():
        assert isinstance(rows, Rows)
        assert len(rows.counts) == clients, f"'{name}' is for {len(rows.counts)} clients, not {clients}"
        for column, tensor in rows.columns.items():
            assert torch.equal(tensor, second[name].columns[column]), f"'{name}.{column}' changed between two calls"
    assert first["train"].counts.min() > 0, "a client has no training row"
    assert torch.equal(problem.initial(1), problem.initial(1)), "the initial model changed between two calls"
    again = replace(problem).initial(1)  # type: ignore[type-var]
    assert torch.equal(problem.initial(1), again), (
        "the initial model is another one each time the problem is made; draw it from the seed "
        "(StackedModule.drawn(seed) does), or load it"
    )


def training_helps(problem: SupervisedProblem, clients: int) -> None:
    """One round of the problem's own learner lowers the loss that it minimises."""
    stack = _stack(problem, clients, range(clients))
    before = problem.initial(0).double().expand(clients, -1)
    after = stack.learn(before)
    loss = [(losses_of(stack, model) * stack.preferences).sum(dim=1).mean() for model in (before, after)]
    assert loss[1] < loss[0], f"a round of training raised the loss from {loss[0]:.4f} to {loss[1]:.4f}"


PROBLEM_CHECKS: Sequence[Callable[[SupervisedProblem, int], None]] = (
    data_follow_the_seed,
    objectives_fit,
    clients_are_independent,
    padding_does_not_count,
    training_helps,
)


# -- reinforcement learning ----------------------------------------------------------------------------------------

PLAYED = 40
"""Steps over which two rollouts are compared."""


def _addresses(players: Sequence[int]) -> rng.Addresses:
    return rng.Addresses.at(0, np.array(players), round=1)


def _moves(problem: ReinforcementProblem, players: int) -> Tensor:
    """Random actions, `[steps, n]` or `[steps, n, a]`."""
    stream, actions = torch.Generator().manual_seed(0), problem.environment.actions
    if actions.discrete:
        return torch.randint(actions.count, (PLAYED, players), generator=stream)
    drawn = torch.rand(PLAYED, players, actions.size, generator=stream) * 2 - 1
    return problem.environment.scaled(drawn)


def _played(problem: ReinforcementProblem, players: Sequence[int], moves: Tensor, interrupted: bool = False) -> Tensor:
    """Observations and rewards, `[steps, n, o + m + 2]`; interrupted, the session is closed and reopened half-way."""
    environment, addresses = problem.environment, _addresses(players)
    session = environment.open(environment.begin(addresses, torch.device("cpu")), addresses)
    seen = []
    for number, action in enumerate(moves):
        if interrupted and number == PLAYED // 2:
            state = {name: tensor.clone() for name, tensor in session.state().items()}
            session.close()
            session = environment.open(state, addresses)
        after, reward, terminated, truncated = session.step(action)
        ends = torch.stack([terminated, truncated], dim=1).to(after.dtype)
        seen.append(torch.cat([after, reward, ends, session.observation], dim=1))
    session.close()
    return torch.stack(seen)


def returns_fit(problem: ReinforcementProblem, clients: int) -> None:
    """A policy's returns have one entry per objective, are finite, and the same when measured again."""
    assert problem.initial(0).shape == (problem.layout.size,), "the initial model does not fit the layout"
    assert problem.environment.objectives == len(problem.objectives), "a reward has not one entry per objective"
    weights = torch.full((clients, len(problem.objectives)), 1 / len(problem.objectives))
    stack = Clients(
        problem=problem,
        learner=problem.learner(),
        splits={},
        addresses=_addresses(range(clients)),
        positions=np.arange(clients),
        preferences=weights,
    )
    model = problem.initial(0).expand(clients, -1)
    returns = stack.evaluate(model)
    assert returns.shape == (clients, 2, len(problem.objectives)), f"returns have the shape {list(returns.shape)}"
    assert returns.isfinite().all(), "a return is not finite"
    assert torch.equal(returns, stack.evaluate(model)), "the same policy earned something else the second time"


def players_are_independent(problem: ReinforcementProblem, clients: int) -> None:
    """A client has the same observations and rewards alone and beside others."""
    moves = _moves(problem, clients)
    together = _played(problem, range(clients), moves)
    for player in range(clients):
        alone = _played(problem, [player], moves[:, player : player + 1])
        assert torch.equal(alone[:, 0], together[:, player]), f"client {player} sees other things in a stack than alone"


def play_goes_on_from_its_state(problem: ReinforcementProblem, clients: int) -> None:
    """A session that is closed and reopened from its state continues bit for bit."""
    moves = _moves(problem, clients)
    whole, resumed = (_played(problem, range(clients), moves, interrupted) for interrupted in (False, True))
    assert torch.equal(whole, resumed), "a session that was opened again goes on differently"
    blank = problem.environment.blank()
    begun = problem.environment.begin(_addresses(range(clients)), torch.device("cpu"))
    for name, tensor in begun.items():
        assert blank[name].shape == tensor.shape[1:], f"'{name}' of a blank state has another shape than when it begins"
        assert blank[name].dtype == tensor.dtype, f"'{name}' of a blank state has another type than when it begins"


PLAY_CHECKS: Sequence[Callable[[ReinforcementProblem, int], None]] = (
    returns_fit,
    players_are_independent,
    play_goes_on_from_its_state,
)
