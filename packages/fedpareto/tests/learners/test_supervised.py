"""Stacked training against torch's own optimisers, one client at a time."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpareto.config.errors import UserError
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Pull
from fedpareto.learners import minibatches
from fedpareto.learners.gradients import ByHand
from fedpareto.learners.plain import is_plain
from fedpareto.learners.supervised import Supervised, can_be_recorded
from fedpareto.moo.scalarise import SCALARISATIONS
from fedpareto.problems.convex import Convex
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors import rng
from fedpareto.tensors.replay import Recordings
from fedpareto.tensors.rows import Batch, Rows

SIZES = 4


def stack_of(problem, learner, positions, clients=SIZES, seed=0):
    splits = {name: rows.to(torch.device("cpu"), torch.float64) for name, rows in problem.data(clients, seed).items()}
    weights = np.random.default_rng(5).dirichlet([1.0] * len(problem.objectives), clients)[list(positions)]
    addresses = rng.Addresses.at(seed, np.array(positions), round=3)
    return Clients(
        problem=problem,
        learner=learner,
        splits=splits,
        addresses=addresses,
        positions=np.array(positions),
        preferences=torch.as_tensor(weights),
    )


def by_torch(problem, learner, position, start):
    """The same training with torch.optim for a single client, from its own random stream."""
    clients = stack_of(problem, learner, [position])
    rows = clients.splits["train"].of_client(position)
    count = len(next(iter(rows.values())))
    model = start.clone().requires_grad_()
    options = {"lr": learner.lr, "weight_decay": learner.weight_decay}
    if learner.optimiser == "sgd":
        optimiser = torch.optim.SGD([model], momentum=learner.momentum, **options)
    else:
        optimiser = torch.optim.Adam([model], **options)
    scalarise = SCALARISATIONS[learner.scalarisation]
    per_epoch = -(-count // learner.batch_size)
    left = learner.steps or learner.epochs * per_epoch
    orders = iter(clients.addresses.orders("batches", torch.tensor([count]), -(-left // per_epoch), count)[0].numpy())
    while left > 0:
        cuts = range(learner.batch_size, count, learner.batch_size)
        for index in np.split(next(orders), cuts)[:left]:
            columns = {name: column[torch.as_tensor(index)][None] for name, column in rows.items()}
            batch = Batch(columns, torch.ones(1, len(index), dtype=torch.float64))
            losses = problem.losses(problem.layout.unflatten(model[None]), batch)
            optimiser.zero_grad()
            scalarise(losses, clients.preferences).sum().backward()
            optimiser.step()
            left -= 1
    return model.detach()


EPOCHS = 2

CASES = {
    "sgd": Supervised(lr=0.1, batch_size=16, epochs=EPOCHS),
    "momentum": Supervised(lr=0.05, momentum=0.9, batch_size=16, epochs=EPOCHS),
    "adam": Supervised(lr=0.01, optimiser="adam", batch_size=16, epochs=EPOCHS),
    "weight decay": Supervised(lr=0.1, weight_decay=0.1, batch_size=16, epochs=EPOCHS),
    "adam, weight decay": Supervised(lr=0.01, optimiser="adam", weight_decay=0.1, batch_size=7, epochs=EPOCHS),
    "steps": Supervised(lr=0.1, batch_size=16, steps=5),
    "tchebycheff": Supervised(lr=0.1, batch_size=16, epochs=EPOCHS, scalarisation="tchebycheff"),
    "smooth": Supervised(lr=0.1, batch_size=16, epochs=EPOCHS, scalarisation="smooth-tchebycheff"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("problem", [Convex(rows=45), Synthetic(hidden=(5,))], ids=["convex", "synthetic"])
def test_a_stack_of_unequal_clients_equals_torch_one_client_at_a_time(problem, case):
    learner = CASES[case]
    clients = stack_of(problem, learner, range(SIZES))
    stream = torch.Generator().manual_seed(1)
    start = torch.randn(SIZES, problem.layout.size, generator=stream, dtype=torch.float64)
    together = clients.learn(start)
    for client in range(SIZES):
        assert torch.allclose(together[client], by_torch(problem, learner, client, start[client]), atol=1e-10)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_what_is_recorded_and_kept_from_round_to_round_is_the_same_training(case, strength):
    """Without a CUDA device a recording is called instead of replayed; its tensors are the same."""
    problem, learner = Convex(rows=45), CASES[case]
    stream = torch.Generator().manual_seed(2)
    clients, recordings = stack_of(problem, learner, range(SIZES)), Recordings(when="always")
    for number in (1, 2):
        clients.addresses = rng.Addresses.at(0, np.arange(SIZES), round=number)
        start, towards = torch.randn(2, SIZES, problem.layout.size, generator=stream, dtype=torch.float64)
        pull = Pull(strength, towards) if strength else None
        plain, during = learner._train(clients, start, clients.preferences, pull)
        again, seen = learner._train(replace(clients, recordings=recordings), start, clients.preferences, pull)
        assert torch.allclose(again, plain, rtol=1e-12, atol=1e-12)
        assert torch.allclose(seen, during, rtol=1e-12)
    assert len(recordings.kept) == 1, "recorded once"


def test_steps_within_products_are_those_along_a_gradient():
    """Decay, a pull and a slope included; a client that idles would be pulled on, so there they are not taken."""
    problem = Synthetic(hidden=(5, 4), rows=260)
    learner = Supervised(lr=0.1, weight_decay=0.1, batch_size=16, epochs=EPOCHS)
    clients, recordings = stack_of(problem, learner, range(SIZES)), Recordings(when="always")
    shape = 3, SIZES, problem.layout.size
    start, towards, slope = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    pull, outline = Pull(0.7, towards, slope), learner._outline(clients)[0]
    gradient = ByHand(problem.readout(), start, lambda outputs, batch: (None, outputs), recordings.workspace)
    assert is_plain(gradient, learner, pull, {}, None, outline)
    found, during = learner._train(clients, start, clients.preferences, pull)
    along, seen = learner._train(replace(clients, recordings=recordings), start, clients.preferences, pull)
    assert torch.allclose(found, along, rtol=1e-12, atol=1e-12)
    assert torch.allclose(during, seen, rtol=1e-12)
    fewer = replace(
        outline, counts=outline.counts - np.array([0, 0, 0, 20]), own_steps=outline.own_steps - [0, 0, 0, 2]
    )
    assert not is_plain(gradient, learner, pull, {}, None, fewer)
    without = replace(learner, weight_decay=0.0)
    assert is_plain(gradient, without, None, {}, None, fewer)
    assert not is_plain(gradient, without, pull, {}, None, fewer)


def test_recordings_are_forgotten_when_there_are_too_many():
    kept = Recordings(most=2)
    for key in ("a", "b", "a", "c"):
        kept.get(key, object)
    assert list(kept.kept) == ["a", "c"], "the one that was not used for longest"


@pytest.mark.parametrize(("epochs", "steps", "last"), [(2, 0, {0: 3, 2: 2}), (1, 7, {0: 3, 2: 2})])
def test_the_loss_during_training_is_that_of_the_last_epoch(epochs, steps, last):
    """Of a step size so small that the model stands still: the mean of a client's last few batches, by their rows."""
    problem, learner = Convex(rows=45), Supervised(lr=1e-12, batch_size=16, epochs=epochs, steps=steps)
    clients = stack_of(problem, learner, range(SIZES))
    start = torch.ones(SIZES, problem.layout.size, dtype=torch.float64)
    _, during = clients.learn_watched(start)
    parameters = problem.layout.unflatten(start)
    batches = [
        batch for batch, _ in learner.plan(clients).batches(clients.splits["train"], learner._outline(clients)[0])
    ]
    values = [(problem.losses(parameters, batch) * clients.preferences).sum(1) for batch in batches]
    for client, count in last.items():
        own = [(float(b.mask[client].sum()), float(v[client])) for b, v in zip(batches, values, strict=True)]
        own = [pair for pair in own if pair[0]][-count:]
        expected = sum(rows * value for rows, value in own) / sum(rows for rows, _ in own)
        assert float(during[client]) == pytest.approx(expected, rel=1e-9)


def test_every_row_is_seen_exactly_once_an_epoch():
    problem, learner = Convex(rows=45), Supervised(batch_size=16, epochs=3)
    clients = stack_of(problem, learner, range(SIZES))
    plan = learner.plan(clients)
    for client, count in enumerate(clients.splits["train"].counts):
        rows, times = np.unique(plan.index[client][plan.mask[client] > 0], return_counts=True)
        first = clients.splits["train"].starts[client]
        assert rows.tolist() == list(range(first, first + count))
        assert set(times) == {3}


@pytest.mark.parametrize("at_once", [1, 3 * SIZES * 16 * 64, 1 << 30])
def test_minibatches_are_the_rows_of_the_plan_however_many_are_copied_at_once(monkeypatch, at_once):
    monkeypatch.setattr(minibatches, "GATHERED", at_once)
    problem, learner = Convex(rows=45), Supervised(batch_size=16, epochs=2)
    clients = stack_of(problem, learner, range(SIZES))
    plan, rows = learner.plan(clients), clients.splits["train"]
    outline = minibatches.Outline.of(rows, clients.positions, 16, 2, 0)
    for step, (batch, _) in enumerate(plan.batches(rows, outline)):
        for name, column in batch.columns.items():
            assert torch.equal(column, rows.columns[name][plan.index[:, step]])
        assert torch.equal(batch.mask, plan.mask[:, step])
    assert step == outline.steps - 1


def test_training_on_a_cpu_does_not_wait_for_the_import_of_sympy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.symbolic_shapes", None)
    problem, learner = Synthetic(hidden=(5,)), Supervised(steps=1)
    clients = stack_of(problem, learner, range(2))
    start = problem.initial(0).double().expand(2, -1)
    assert not torch.equal(learner.train(clients, start, clients.preferences), start)


def test_a_client_that_is_done_idles_untouched():
    """A client of 2 rows beside one of 40 takes 1 step, not 3: its Adam state and model stay as they are."""
    problem, learner = Convex(rows=40), Supervised(optimiser="adam", lr=0.1, batch_size=16)
    rows = problem.data(1, 0)["train"].of_client(0)
    small, large = {k: v[:2] for k, v in rows.items()}, rows
    for order in ([small, large], [large, small]):
        splits = {"train": Rows.of(order).to(torch.device("cpu"), torch.float64)}
        where = 0 if order[0] is small else 1
        addresses = rng.Addresses.at(0, np.array((7, 8) if where == 0 else (8, 7)), round=0)
        both = Clients(
            problem=problem,
            learner=learner,
            splits=splits,
            addresses=addresses,
            positions=np.array([0, 1]),
            preferences=torch.full((2, 2), 0.5).double(),
        )
        start = torch.zeros(2, problem.layout.size, dtype=torch.float64)
        alone = Clients(
            problem=problem,
            learner=learner,
            splits=splits,
            addresses=addresses[where : where + 1],
            positions=np.array([where]),
            preferences=torch.full((1, 2), 0.5).double(),
        )
        assert torch.equal(both.learn(start)[where], alone.learn(start[:1])[0])


@pytest.mark.parametrize("bad", [{"lr": 0.0}, {"lr": -1.0}, {"epochs": 0}, {"batch_size": 0}, {"steps": -1}])
def test_senseless_hyper_parameters_are_refused(bad):
    with pytest.raises(UserError):
        Supervised(**bad)


@pytest.mark.parametrize("problem", [Convex(rows=45, goals=3), Synthetic(hidden=(5,))], ids=["convex", "synthetic"])
def test_gradients_of_single_objectives_equal_autograd_one_client_at_a_time(problem):
    learner = Supervised(batch_size=16, weight_decay=0.1, momentum=0.9)
    start = torch.randn(SIZES, problem.layout.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    losses, gradients = stack_of(problem, learner, range(SIZES)).gradients(start)
    assert gradients.shape == (SIZES, len(problem.objectives), problem.layout.size)
    for client in range(SIZES):
        clients = stack_of(problem, learner, [client])
        rows = clients.splits["train"].of_client(client)
        count = len(next(iter(rows.values())))
        index = clients.addresses.orders("gradients", torch.tensor([count]), 1, count)[0, 0, :16]
        batch = Batch({name: column[index][None] for name, column in rows.items()}, torch.ones(1, len(index)).double())
        model = start[client].clone().requires_grad_()
        for j, loss in enumerate(problem.losses(problem.layout.unflatten(model[None]), batch)[0]):
            assert losses[client, j].item() == pytest.approx(loss.item(), abs=1e-12)
            (own,) = torch.autograd.grad(loss, model, retain_graph=True)
            assert torch.allclose(gradients[client, j], own, atol=1e-12)


def test_asking_for_gradients_does_not_change_the_batches_of_training():
    problem, learner = Convex(rows=45), Supervised(batch_size=16)
    start = torch.zeros(SIZES, problem.layout.size, dtype=torch.float64)
    clients = stack_of(problem, learner, range(SIZES))
    before = clients.learn(start)
    clients.gradients(start)
    assert torch.equal(clients.learn(start), before)


class Halved(Pull):
    """An author's own regulariser."""

    def __call__(self, model):
        return super().__call__(model) / 2


def test_a_subclassed_pull_is_not_recorded_as_a_cuda_graph():
    """A recording is fed strength and target alone, and would drop what the subclass does."""
    target = torch.zeros(2, 3)
    assert can_be_recorded(None)
    assert can_be_recorded(Pull(0.1, target))
    assert not can_be_recorded(Halved(0.1, target))
