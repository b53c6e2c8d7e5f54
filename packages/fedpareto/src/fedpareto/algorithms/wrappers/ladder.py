"""A ladder of step sizes: each is tried on a client's training rows, and its validation rows say which is best."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import scalarised, supervised
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message
from fedpareto.tensors import rng

FACTORS = (0.1, 1 / 3, 1.0)
"""The rungs: by what the learner's own step size is multiplied, the most cautious first."""
PILOT = 5
"""Local trainings from the initial model, on each rung, of a client that chooses one before it takes part."""
CLIMB = "step.climb"
"""The name of what tells clients to train on all rungs and to keep what is best for each."""
WHAT = "a ladder of step sizes"
MODELS, BEST, LOSS, FACTOR = "models", "best", "loss", "factor"
"""Names of what a client keeps that trains alone: a model for each rung, the best of all so far, its loss, and its
rung.
"""

Step = Callable[[Clients, Message], Message]


@contextmanager
def at(clients: Clients, factors: Tensor) -> Iterator[None]:
    """Clients whose step sizes are multiplied by `factors` `[n]`."""
    usual = clients.own
    learner: Any = clients.learner
    clients.own = {**usual, "lr": usual.get("lr", learner.lr) * factors.unsqueeze(1)}
    try:
        yield
    finally:
        clients.own = usual


def rungs(like: Tensor) -> Tensor:
    """All factors, `[k]`."""
    return like.new_tensor(FACTORS)


def loss(clients: Clients, models: Tensor) -> Tensor:
    """The loss of `models` `[n, d]` on each client's validation rows, under its own preference, `[n]`.

    0 where it has no such rows: then all models are alike, and what is first is taken.
    """
    if "validation" not in clients.splits:
        return models.new_zeros(len(models))
    problem = supervised(clients, WHAT)
    parameters = problem.layout.unflatten(models)
    with torch.no_grad():
        values = problem.over_rows(lambda batch: problem.losses(parameters, batch), clients, "validation")
        found = scalarised(clients, values).masked_fill(~models.isfinite().all(1), torch.inf)
    has_rows = clients.tensor(clients.splits["validation"].counts[clients.positions] > 0)
    return found.nan_to_num(nan=torch.inf, posinf=torch.inf).where(has_rows, torch.zeros_like(found))


def climbed(clients: Clients, models: Tensor) -> tuple[Tensor, Tensor]:
    """Models `[n, k, d]`, each trained once on its own rung on the same minibatches, and their losses `[n, k]`."""
    each = side_by_side(clients, np.arange(len(clients)))
    with at(each, rungs(models).repeat(len(clients))):
        trained = each.learn(models.flatten(0, 1))
    return trained.view_as(models), loss(each, trained).view(models.shape[:2])


def side_by_side(clients: Clients, rows: np.ndarray) -> Clients:
    """Some of the clients, each as often as there are rungs, one after the other."""
    rows = np.repeat(rows, len(FACTORS))
    index, tampering = clients.tensor(rows), clients.tampering
    if tampering is not None:
        tampering = replace(tampering, **{name: one[index] for name, one in vars(tampering).items()})
    return replace(
        clients,
        addresses=clients.addresses[index],
        positions=clients.positions[rows],
        preferences=clients.preferences[index],
        tampering=tampering,
        own={name: one[index] for name, one in clients.own.items()},
        state={},
        memory={},
    )


def pilot(clients: Clients, rows: np.ndarray) -> Tensor:
    """The validation losses `[len(rows), k]` of some clients' models after a few trainings alone on each rung.

    These begin from the initial model, with the minibatches of the first rounds: whenever a client is asked for the
    first time, it finds the same.
    """
    each = side_by_side(clients, rows)
    seeds, which = torch.unique(each.addresses.seed, return_inverse=True)
    begun = [clients.problem.initial(int(seed) % 2**64) for seed in seeds]
    models = torch.stack(begun).to(each.preferences)[which.to(each.preferences.device)]
    with at(each, rungs(models).repeat(len(rows))):
        for round_ in range(1, PILOT + 1):
            each.addresses = at_round(each.addresses, round_)
            models = each.learn(models)
    return loss(each, models).view(len(rows), len(FACTORS))


def at_round(addresses: rng.Addresses, round_: int) -> rng.Addresses:
    return replace(addresses, round=torch.full_like(addresses.round, round_))


def best_of(step: Step, clients: Clients, message: Message, model: Callable[[Clients, Message], Tensor]) -> Message:
    """A client step taken on every rung from the same private state; each client keeps the best reply and its state.

    `model` says what a client uses after a reply. Not to have trained is a candidate too, where a reply is a new
    version of what was sent.
    """
    before, tries = dict(clients.state), list[tuple[Tensor, Message, Message]]()
    for factor in FACTORS:
        clients.state = {name: one.clone() for name, one in before.items()}
        with at(clients, clients.preferences.new_full((len(clients),), factor)):
            reply = step(clients, message)
        tries.append((_loss_of(clients, message | reply, model), reply, {**before, **clients.state}))
    newest = tries[0][1]
    sent = {name: message[name] for name, one in newest.items() if name in message and message[name].shape == one.shape}
    if sent:
        clients.state = dict(before)
        tries.append((_loss_of(clients, message, model), newest | sent, before))
    which = torch.stack([one for one, _, _ in tries]).argmin(0)
    clients.state = _picked([state for _, _, state in tries], which)
    return _picked([reply for _, reply, _ in tries], which)


def _loss_of(clients: Clients, message: Message, model: Callable[[Clients, Message], Tensor]) -> Tensor:
    """The loss of the model that clients use; of several at once, their mean."""
    found = model(clients, {**message, **clients.trained})
    if found.dim() == 2:
        return loss(clients, found)
    return torch.stack([loss(clients, one) for one in found.unbind(1)]).mean(0)


def _picked(tries: list[Message], which: Tensor) -> Message:
    """Row i of what was tried in place `which[i]`."""
    rows = torch.arange(len(which), device=which.device)
    return {name: torch.stack([one[name] for one in tries])[which, rows] for name in tries[0]}


# -- a model alone -------------------------------------------------------------------------------------------------


def alone(setting: Setting, prefix: str) -> Message:
    """State of a client that trains a model alone on all rungs, its names beginning with `prefix`."""
    model = setting.initial
    blank = {
        MODELS: model.expand(len(FACTORS), -1).clone(),
        BEST: model,
        LOSS: model.new_full((1,), torch.inf),
        FACTOR: model.new_zeros(1),
    }
    return {prefix + name: one for name, one in blank.items()}


def train_alone(clients: Clients, prefix: str) -> Tensor:
    """One more training on every rung; the best model of all rounds and rungs, `[n, d]`."""
    state = {name: clients.state[prefix + name] for name in (MODELS, BEST, LOSS, FACTOR)}
    models, losses = climbed(clients, state[MODELS])
    least, rung = losses.min(1, keepdim=True)
    # The later one of equally good models counts: a client without validation rows goes on.
    is_better = least <= state[LOSS]
    best = models[torch.arange(len(models), device=rung.device), rung[:, 0]]
    new = {
        MODELS: models,
        BEST: torch.where(is_better, best, state[BEST]),
        LOSS: torch.where(is_better, least, state[LOSS]),
        FACTOR: torch.where(is_better, rungs(models)[rung], state[FACTOR]),
    }
    clients.state = {**clients.state, **{prefix + name: one for name, one in new.items()}}
    return new[BEST]


def tuned(clients: Clients, models: Tensor) -> Tensor:
    """`models` `[n, d]`, each trained once on the rung that is best for its client."""
    trained, losses = climbed(clients, models.unsqueeze(1).repeat(1, len(FACTORS), 1))
    return trained[torch.arange(len(models), device=models.device), losses.argmin(1)]
