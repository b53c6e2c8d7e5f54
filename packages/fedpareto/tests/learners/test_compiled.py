"""Training by machine code against autograd, against the same without it, and in stacks of any size."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.algorithms.personal.ditto import Ditto
from fedpareto.config.errors import UserError
from fedpareto.contract.clients import Clients
from fedpareto.contract.federation import Federation
from fedpareto.contract.learner import Pull
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.networks.descending import CompiledDescending
from fedpareto.networks.mlp import MLP
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors import rng
from fedpareto.tensors.jit import compiled
from fedpareto.tensors.replay import Recordings
from fedpareto.tensors.rows import Rows
from fedpareto.tensors.workspace import Workspace

WIDTHS = st.lists(st.integers(1, 9), min_size=2, max_size=5)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def stepped(network, model, inputs, slopes, kept, lr, added):
    """w ← kept·w − lr·gradient + added, by autograd."""
    model = model.clone().requires_grad_()
    outputs = network(network.layout.unflatten(model), inputs)
    (gradient,) = torch.autograd.grad(outputs, model, slopes)
    return outputs.detach(), kept * model.detach() - lr * gradient + added


@pytest.mark.parametrize("dtype", TOLERANCE)
@settings(max_examples=30, deadline=None)
@given(
    widths=WIDTHS,
    clients=st.integers(1, 4),
    batches=st.lists(st.integers(1, 17), min_size=1, max_size=3),
    linear=st.integers(1, 2),
    pulled=st.booleans(),
    seed=st.integers(0, 99),
)
def test_both_passes_are_those_of_autograd(dtype, widths, clients, batches, linear, pulled, seed):
    stream = torch.Generator().manual_seed(seed)
    first, *hidden, last = widths
    network = MLP(first, tuple(hidden), last, linear)

    def drawn(*shape):
        return torch.randn(shape, generator=stream).to(dtype)

    model = drawn(clients, network.layout.size) / 2
    added = drawn(clients, network.layout.size) if pulled else torch.zeros_like(model)
    kept, lr = 0.9, 0.1
    found = CompiledDescending(network, model.clone(), Workspace(), kept, lr)
    if pulled:
        found.add_in_steps(added)
    for batch in batches:
        inputs, slopes = drawn(clients, batch, first), drawn(clients, batch, last)
        outputs, model = stepped(network, model, inputs, slopes, kept, lr, added)
        assert torch.allclose(found.forward(inputs), outputs, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])
        found.descend(slopes)
        assert torch.allclose(found.models, model, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])
        model = found.models.clone()  # A ReLU at 0 may fall on either side.


def test_models_move_by_the_same_bits_alone_and_in_a_stack():
    network = MLP(12, (64, 32), 1)
    model, inputs, slopes = torch.randn(7, network.layout.size) / 5, torch.randn(7, 128, 12), torch.randn(7, 128, 1)

    def moved(rows):
        found = CompiledDescending(network, model[rows].clone(), Workspace(), 0.9, 0.1)
        found.forward(inputs[rows])
        found.descend(slopes[rows])
        return found.models

    together = moved(slice(7))
    for size in (1, 2):
        parts = [moved(slice(i, i + size)) for i in range(0, 7, size)]
        assert torch.equal(torch.cat(parts), together)


def test_a_nan_is_passed_on_and_an_infinite_gradient_stops_at_a_relu_that_is_off():
    network = MLP(2, (3, 2), 1)
    model = torch.ones(2, network.layout.size)
    model[1, 6:9] = -9.0  # The first layer's bias.
    found = CompiledDescending(network, model.clone(), Workspace(), 1.0, 0.1)
    inputs = torch.ones(2, 4, 2)
    inputs[0, 0, 0] = torch.nan
    assert found.forward(inputs)[0, 0].isnan().all()
    found.descend(torch.full((2, 4, 1), torch.inf))
    assert found.models[0].isnan().any()
    assert torch.equal(found.models[1, :9], model[1, :9])


# -- learners and engines ----------------------------------------------------------------------------------------------

PROBLEM = Synthetic(hidden=(5, 4), rows=800)


def stack(learner, recordings, counts=(90, 90, 90, 90), positions=range(4)):
    table = PROBLEM.data(4, 0)["train"].to(torch.device("cpu"), torch.float64)
    rows = Rows(table.columns, table.starts, np.array(counts))
    weights = torch.full((len(positions), len(PROBLEM.objectives)), 0.5, dtype=torch.float64)
    return Clients(
        problem=PROBLEM,
        learner=learner,
        splits={"train": rows},
        addresses=rng.Addresses.at(0, np.array(positions), round=3),
        positions=np.array(positions),
        preferences=weights,
        recordings=recordings,
    )


CASES = {
    "idle": ((90, 60, 7, 1), 0.0, 0.0),
    "decay": ((90, 90, 85, 81), 0.1, 0.0),
    "pull": ((90, 90, 85, 81), 0.0, 0.7),
    "both": ((90, 90, 85, 81), 0.1, 0.7),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("watched", [False, True])
def test_clients_of_unequal_sizes_train_as_without_it(case, watched):
    counts, decay, strength = CASES[case]
    learner = Supervised(lr=0.1, batch_size=16, epochs=2, weight_decay=decay)
    start, towards, slope = torch.randn(3, 4, PROBLEM.layout.size, dtype=torch.float64)
    pull = Pull(strength, towards, slope) if strength else None
    both = [stack(learner, Recordings(compiled=flag), counts) for flag in (True, False)]
    (ours, seen), (theirs, during) = (learner._train(one, start, one.preferences, pull, watched) for one in both)
    assert torch.allclose(ours, theirs, rtol=1e-11, atol=1e-11)
    assert torch.allclose(seen, during, rtol=1e-11)


def test_who_is_idle_keeps_its_model_to_the_last_bit():
    learner, counts = Supervised(lr=0.1, batch_size=16, epochs=1), (90, 60, 7, 1)
    clients = stack(learner, Recordings(compiled=True), counts)
    start = torch.randn(4, PROBLEM.layout.size, dtype=torch.float64)
    found = learner.train(clients, start, clients.preferences)
    for client in range(4):
        alone = stack(learner, Recordings(compiled=True), counts, [client])
        assert torch.equal(learner.train(alone, start[client : client + 1], alone.preferences)[0], found[client])


def engine(options, chunk):
    federation = Federation.create(PROBLEM, 9, 0)
    setting = federation.setting(PROBLEM, rounds=5)
    learner = Supervised(lr=0.1, batch_size=16)
    return LocalEngine(Ditto(), PROBLEM, learner, [federation], [setting], options, choices=Choices(1, chunk))


def rounds(engine, count=2):
    algorithm = engine.algorithm
    state = algorithm.begin(engine.settings[0])
    for _ in range(count):
        state = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)
    return engine.models(0, algorithm.solutions(state)).rows


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_a_run_has_the_numbers_of_the_usual_one_in_any_stack(chunk):
    usual = rounds(engine(LocalOptions(precision="float64"), 9))
    found = rounds(engine(LocalOptions(precision="float64", compiled=True), chunk))
    assert torch.allclose(found, usual, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("counts", "passes"), [([1000, 1000], 1), ([1, 7, 30, 29], 3), ([0, 4], 2)])
def test_compiled_orders_are_the_same_bits(counts, passes):
    addresses = rng.Addresses.of([rng.Address(2**63 + 5, client, 3, client % 2) for client in range(len(counts))])
    which = "batches", torch.tensor(counts), passes, max(counts)
    assert torch.equal(addresses.orders(*which, compiled=True), addresses.orders(*which))


def test_minibatches_are_drawn_once_for_two_models_and_anew_in_the_next_round():
    learner = Supervised(batch_size=16)
    clients = stack(learner, Recordings())
    outline, tensors = learner._outline(clients)
    how = outline, tensors, "batches", torch.float64
    first = learner._drawn(clients, *how)
    assert learner._drawn(clients, *how) is first
    later = replace(clients, addresses=replace(clients.addresses, round=clients.addresses.round + 1))
    assert not torch.equal(learner._drawn(later, *how).index, first.index)


# -- the extra ---------------------------------------------------------------------------------------------------------


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(UserError, match=r"^engine: compiled needs numba; try: pip install 'fedpareto\[compiled\]'$"):
        engine(LocalOptions(compiled=True), 1)


def test_on_a_gpu_it_is_refused():
    with pytest.raises(UserError, match=r"^engine: compiled is for device=cpu, and device is cuda, .*recorded$"):
        LocalOptions(device="cuda", compiled=True)


def test_what_cannot_be_kept_on_disk_is_compiled_all_the_same():
    here = {}
    exec("def double(array):\n    array *= 2", here)  # It is in no file, beside which code could be kept.
    array = np.ones(3)
    compiled(here["double"])(array)
    assert array.tolist() == [2, 2, 2]
