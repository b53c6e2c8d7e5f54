"""Operations that an engine counts, against what is written down by hand and what a client really computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fedpareto import Federation, LocalEngine
from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.counting import Counter
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.problems.convex import Convex
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.problems.synthetic import Synthetic

CLIENTS = 5


def engine_of(algorithm, problem, **learner):
    federation = Federation.create(problem, CLIENTS, 0, "dirichlet")
    return LocalEngine(
        make_algorithm(algorithm),
        problem,
        replace(problem.learner(), **learner),
        [federation],
        [federation.setting(problem, 3)],
        options=LocalOptions(threads=1),
        choices=Choices(1, 64),
    )


@pytest.mark.parametrize(
    ("hidden", "products"), [((), 2 * 2 * 1), ((8,), 2 * (2 * 8 + 8)), ((8, 6), 2 * (2 * 8 + 8 * 6 + 6) + 8 * 6)]
)
def test_operations_of_an_mlp_are_those_of_its_passes_by_hand(hidden, products):
    """Of 2 inputs and 1 output. Forward, every weight is one product with each row; so is its gradient, backward. A
    layer passes its gradient on by one product more, but for the first, which need not, and the last: of one output
    that is no product of matrices. A product is a multiplication and an addition.
    """
    problem = Synthetic(hidden=hidden, partition="dirichlet")
    engine = engine_of("fedavg", problem, epochs=3, steps=0)
    rows = engine.federations[0].splits["train"].counts
    assert len(set(rows.tolist())) == CLIENTS
    assert engine.operations(0).tolist() == (2 * products * 3 * rows).tolist()


def test_steps_of_full_minibatches_are_the_same_work_for_all_who_can_fill_them():
    problem = Synthetic(hidden=(), partition="dirichlet")
    rows = problem.data(CLIENTS, 0)["train"].counts
    assert rows.min() > 20
    engine = engine_of("fedavg", problem, steps=2, batch_size=10)
    assert engine.operations(0).tolist() == [2 * 4 * 2 * 10] * CLIENTS


def test_ditto_trains_two_models_and_counts_twice():
    problem = Synthetic(hidden=(8, 6), partition="dirichlet")
    fedavg, ditto = (engine_of(name, problem).operations(0) for name in ("fedavg", "ditto"))
    assert ditto.tolist() == (2 * fedavg).tolist()


@pytest.mark.parametrize("work", [{"epochs": 2}, {"steps": 5}], ids=lambda work: next(iter(work)))
@pytest.mark.parametrize("algorithm", ["fedavg", "q-fedavg", "apfl"])
def test_every_client_computes_what_was_counted_on_one(algorithm, work):
    """Also where a part of the work grows with all rows (q-FedAvg's loss), or with none (APFL's first step)."""
    engine = engine_of(algorithm, Convex(), batch_size=2, **work)
    counted = engine.operations(0)
    (tasks,) = engine.algorithm.ask(engine.algorithm.begin(engine.settings[0]))
    unpadded = np.flatnonzero(engine.federations[0].splits["train"].counts % 2 == 0)
    assert len(unpadded) >= 2
    for row in unpadded:
        with FlopCounterMode(display=False) as counter:
            engine.run([tasks.only(np.array([row]))])
        assert counter.get_total_flops() == counted[row] > 0


def test_a_network_of_any_kind_is_counted_as_torch_counts_it():
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.Flatten(), torch.nn.Linear(48, 4))
    recurrent, rows = torch.nn.LSTM(4, 5), torch.ones(2, 1, 6, 6)

    def work():
        found, _ = recurrent(layers(rows))
        torch.einsum("ij,kj->ik", found, found).sum().backward()

    with FlopCounterMode(display=False) as torchs:
        work()
    with Counter() as ours:
        work()
    assert ours.operations == torchs.get_total_flops() > 0


def test_counting_leaves_no_trace():
    engine, other = (engine_of("ditto", Convex()) for _ in range(2))
    state = engine.algorithm.begin(engine.settings[0])
    before = engine.operations(0)
    assert not len(engine.private)
    replies, others = (one.run(one.algorithm.ask(state)).replies for one in (engine, other))
    assert torch.equal(replies["model"], others["model"])
    assert (engine.operations(0) == before).all()
    assert (other.operations(0) == before).all(), "what clients keep has no part in it"


def test_the_step_that_trains_is_counted_where_a_round_begins_with_another():
    fedavg, fedcmoo = (engine_of(name, Convex()) for name in ("fedavg", "fedcmoo"))
    (tasks,) = fedcmoo.algorithm.ask(fedcmoo.algorithm.begin(fedcmoo.settings[0]))
    assert tasks.step != "train"
    assert fedcmoo.operations(0).tolist() == fedavg.operations(0).tolist()


def test_what_is_counted_is_the_whole_network_whoever_has_slices_of_it():
    problem = Synthetic(hidden=(8,))
    fedavg, heterofl = (engine_of(name, problem) for name in ("fedavg", "heterofl"))
    heterofl.settings = [replace(heterofl.settings[0], widths=np.array([0.25, 0.5, 0.5, 1.0, 1.0]))]
    assert heterofl.operations(0).tolist() == fedavg.operations(0).tolist()


def test_who_plays_has_no_rows_and_all_work_alike_in_proportion_to_their_steps():
    problem = DeepSeaTreasure(hidden=(8,))
    some = {"train_freq": 4, "gradient_steps": 1, "batch_size": 8, "buffer_size": 100}
    short, long = (engine_of("fedavg", problem, steps=steps, **some).operations(0) for steps in (40, 120))
    assert short[0] > 0
    assert short.tolist() == [short[0]] * CLIENTS
    assert long.tolist() == (3 * short).tolist()
