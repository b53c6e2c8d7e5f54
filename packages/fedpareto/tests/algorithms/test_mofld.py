"""MOFL/D: against FedAvg, FedPref, local training and the closed-form front of the convex problem."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from mofld_runs import EXACT, engine_for, linear_support, spec_of
from test_fsmgda import FULL_BATCH

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.algorithms.fronts.mofld import MOFLD
from fedpareto.algorithms.personal.local import Local
from fedpareto.contract.federation import Federation
from fedpareto.moo.preferences import equidistant
from fedpareto.problems.convex import Convex
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.record import reading
from fedpareto.runs.runner import start
from fedpareto.tensors.rows import Rows
from fedpareto.testing.conformance import ALGORITHM_CHECKS, trial

CONVEX = Convex()

# -- where it leads ----------------------------------------------------------------------------------------------------


def test_a_lattice_of_weights_reaches_the_closed_form_front(tmp_path):
    """Under the weights w the optimum has f_j = ½‖w − e_j‖²."""
    spec = spec_of(
        rounds=12,
        **EXACT,
        generator="lattice",
        training_rounds=4,
        samples=5,
    )
    result = start(spec, tmp_path / "run")
    (solutions,) = result.solutions
    order = np.argsort(solutions.preferences[:, 0])
    assert solutions.preferences[order] == pytest.approx(equidistant(15, 2))
    closed_form = 0.5 * ((solutions.preferences[:, None] - np.eye(2)) ** 2).sum(axis=-1)
    assert solutions.points == pytest.approx(closed_form, abs=1e-3)
    assert result.history[-1]["trainings"] == 15


def test_linear_support_ends_when_no_weights_miss_more_than_the_tolerance(tmp_path):
    """Measured against the closed form over all weights, in units of the objectives' ranges, which are 1 here."""
    result = start(linear_support(), tmp_path / "run")
    rounds = [row["round"] for row in result.history]
    assert rounds[-1] == 80
    assert 8 < rounds[-2] < 40, "the rounds that were not needed were not run"
    weights = equidistant(501, 2)
    truth = (weights * 0.5 * ((weights[:, None] - np.eye(2)) ** 2).sum(axis=-1)).sum(axis=1)
    missed = (weights @ result.solutions[0].points.T).min(axis=1) - truth
    assert missed.min() > -1e-6
    assert missed.max() < 0.02
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["status"], status["round"]) == ("finished", 80)
    shown = reading.load(tmp_path / "run")
    assert shown.common_rounds.tolist() == rounds
    assert shown.solution(0).indicators["hypervolume"] == pytest.approx(result.hypervolume)


def test_corners_are_trained_for_again_to_be_sure():
    once, twice = (start(linear_support(confirmations=confirmations)).history[-1] for confirmations in (1, 2))
    assert twice["trainings"] > once["trainings"]
    assert twice["front"][: len(once["front"])] == once["front"], "the same trainings first"


@pytest.mark.parametrize("generator", ["annealing", "gaussian-annealing", "random", "nsga2"])
def test_every_search_widens_the_front(generator):
    history = start(spec_of(rounds=10, generator=generator, learner={"epochs": 5})).history
    volumes = [row["hypervolume"] for row in history]
    assert volumes[0] == volumes[1] == 0, "before the first training is over there is no front"
    assert volumes[2] > 0
    assert volumes[-1] > volumes[2]
    assert all(later >= earlier for earlier, later in pairwise(volumes))


# -- a training is a federation of its own -----------------------------------------------------------------------------


@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("clients", [1, 5])
def test_a_candidate_is_fedavg_under_its_weights_bit_for_bit(clients, participation):
    mofld = trial(
        MOFLD(samples=1, training_rounds=4, generator="random"),
        Convex(),
        federation=Federation.create(Convex(), clients, 3),
        participation=participation,
        rounds=4,
    )
    weights = mofld.states[0].weights[0].tolist()
    fedavg = trial(
        FedAvg(),
        Convex(),
        federation=Federation.create(Convex(), clients, 3, [weights] * clients if clients > 1 else weights),
        participation=participation,
        rounds=4,
    )
    assert torch.equal(mofld.states[-1].models[0], fedavg.states[-1].model)


@pytest.mark.parametrize("inner", ["fedavg", "fedpref"])
def test_whoever_takes_part_in_a_round_works_for_every_candidate(inner):
    """Else a candidate might have nobody in a round, and what its clients remember would be taken for over."""
    algorithm = MOFLD(samples=4, training_rounds=6, generator="random", inner=inner)
    done = trial(algorithm, Convex(), federation=Federation.create(Convex(), 5, 3), participation=0.4, rounds=6)
    present = set()
    for state in done.states[:6]:
        working = [{*some} for some in algorithm.ask(state)]
        assert [some.lane for some in algorithm.ask(state)] == [0, 1, 2, 3]
        assert working == [working[0]] * 4
        assert len(working[0]) == 2
        present |= working[0]
    assert len(present) > 2, "not always the same"


def test_if_the_search_ends_early_fine_tuning_still_comes_last():
    result = start(linear_support(name="mofld+ft"))
    rounds = [row["round"] for row in result.history]
    assert rounds[-2:] == [79, 80]
    assert rounds[-3] < 40, "the rounds that were not needed were not run"
    assert result.solutions[0].clients == (0, 1, 2, 3), "one for each client"


def test_candidates_side_by_side_equal_each_trained_alone():
    algorithm = MOFLD(samples=4, training_rounds=3, generator="random")
    together = trial(algorithm, Convex(), rounds=3, chunk=64)
    for lane in range(4):
        engine = engine_for(algorithm, Convex(), clients=7, rounds=3)
        state = algorithm.begin(engine.settings[0])
        while state.round < 3:
            replies = engine.run([task for task in algorithm.ask(state) if task.lane == lane]).replies
            state = algorithm.tell(state, replies)
        assert torch.allclose(state.models[lane], together.states[-1].models[lane], rtol=0, atol=1e-12)
        assert state.values[lane] == pytest.approx(together.states[-1].values[lane], abs=1e-12)
        others = [other for other in range(4) if other != lane]
        assert state.values[others].isnan().all(), "nobody measured the others"
        assert algorithm.found(state).weights.tolist() == [state.weights[lane].tolist()]


def test_every_candidate_has_lanes_of_its_own():
    done = trial(MOFLD(samples=3, training_rounds=2), Convex(), rounds=6)
    lanes = [np.unique(outcome.replies.lanes).tolist() for outcome in done.outcomes]
    steps = [outcome.replies.step for outcome in done.outcomes]
    assert lanes == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3 + [[6, 7, 8]] * 3
    assert steps == ["solve", "solve", "measure"] * 3


@pytest.mark.parametrize("inner", ["fedavg", "fedpref"])
def test_a_client_that_is_always_there_trains_every_candidate_in_every_round(inner):
    problem, algorithm = Convex(), MOFLD(samples=3, training_rounds=2, inner=inner)
    setting = replace(Federation.create(problem, 6, 0, "uniform").setting(problem, 6, 1 / 3), regulars=(5,))
    state = algorithm.begin(setting)
    asked = algorithm.ask(state)
    assert {some.lane for some in asked if 5 in some} == set(state.in_training)
    assert sum(len(some) for some in asked) == 6, "two of six clients for each of three candidates"


def test_players_begin_every_candidate_anew():
    """With the clients' memories wiped out between two iterations, the second ends in the same bits."""
    problem = DeepSeaTreasure(hidden=(8,))
    learner = replace(problem.learner(), steps=64, learning_starts=16, batch_size=16)
    algorithm = MOFLD(samples=2, training_rounds=2)
    ends = []
    for wiped_out_in in (2, 1, 5):
        engine = engine_for(algorithm, problem, clients=2, rounds=4, learner=learner)
        state = algorithm.begin(engine.settings[0])
        while state.round < 4:
            if state.round == wiped_out_in:
                engine.private.clear()
            state = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)
        ends.append(state.models)
    wiped_between, wiped_within, never = ends
    assert torch.equal(wiped_between, never)
    assert not torch.equal(wiped_within, never), "inside a training players do remember"


def test_clients_measure_by_their_size():
    """Eq. 3.1: Σ n_i F_i / Σ n_i, on the rows that are trained on and on those that are held out."""
    algorithm = MOFLD(samples=2, training_rounds=1)
    done = trial(algorithm, Convex(heterogeneity=0.5), rounds=1)
    models = done.states[-1].models
    splits = done.engine.federations[0].splits
    shares = torch.as_tensor(splits["train"].counts / splits["train"].counts.sum())
    for model, measured in zip(models, done.states[-1].values, strict=True):
        for part, name in enumerate(["train", "test"]):
            each = [
                0.5 * (model - splits[name].of_client(i)["centres"].mean(dim=0)).square().sum(dim=-1) for i in range(7)
            ]
            assert measured[part] == pytest.approx((shares[:, None] * torch.stack(each)).sum(dim=0))


# -- warm start --------------------------------------------------------------------------------------------------------


def test_a_cold_start_is_the_initial_model_for_everyone():
    done = trial(MOFLD(samples=3, training_rounds=1), Convex(), rounds=3)
    for state in done.states:
        for task in [] if state.trained or state.round == 3 else MOFLD(training_rounds=1).ask(state):
            assert all(torch.equal(model, state.setting.initial) for model in task.stacked()["model"])


def test_a_warm_start_is_the_model_with_the_nearest_weights():
    algorithm = MOFLD(samples=3, training_rounds=1, warm_start=True, generator="random")
    done = trial(algorithm, Convex(), rounds=4)
    begun = [state for state in done.states if not state.trained and state.round in (1, 2, 3)]
    assert len(begun) == 3
    for state in begun:
        for task in algorithm.ask(state):
            distances = np.linalg.norm((state.weights[: state.done] - state.weights[task.lane]).numpy(), axis=1)
            assert torch.equal(task.shared["model"], state.models[int(distances.argmin())])


def test_a_warm_start_also_uses_models_that_are_beaten():
    algorithm = MOFLD(samples=1, training_rounds=1, warm_start=True, generator="lattice")
    setting = engine_for(algorithm, Convex(), rounds=2).settings[0]
    state = algorithm.begin(setting)
    beaten = torch.tensor([[[9.0, 9.0]] * 2, [[1.0, 1.0]] * 2], dtype=torch.float64)
    models = torch.stack([torch.full_like(setting.initial, 5.0), torch.zeros_like(setting.initial)])
    past = replace(state, weights=torch.tensor([[0.5, 0.5], [0.0, 1.0]]).double(), values=beaten, models=models)
    starts = algorithm._starts(past, torch.tensor([[0.6, 0.4]]).double())
    assert torch.equal(starts, models[:1])


# -- all candidates together in one FedPref federation -----------------------------------------------------------------


def test_fedpref_with_one_candidate_and_one_client_is_local_training():
    federation = Federation.create(Convex(), 1, 3)
    mofld = trial(
        MOFLD(samples=1, training_rounds=4, inner="fedpref", generator="random"),
        Convex(),
        federation=federation,
        rounds=4,
    )
    weights = mofld.states[0].weights.numpy()
    local = trial(Local(), Convex(), federation=replace(federation, preferences=weights), rounds=4)
    assert torch.equal(mofld.states[-1].models[0], local.models[0])


def test_fedpref_trains_all_candidates_as_one_federation():
    """As FedPref itself does with k·n clients, of which each holds the data of one of n and the weights of one of k."""
    k, n, rounds = 3, 4, 6
    problem = Convex(heterogeneity=0.3)
    federation = Federation.create(problem, n, 3)
    algorithm = MOFLD(samples=k, training_rounds=rounds, inner="fedpref", generator="random", threshold=0.2)
    mofld = trial(algorithm, problem, federation=federation, rounds=rounds, learner=FULL_BATCH, chunk=64)
    weights = mofld.states[0].weights.numpy()
    repeated = Federation(
        seed=3,
        ids=tuple(range(k * n)),
        splits={
            name: Rows.of([part.of_client(i % n) for i in range(k * n)]) for name, part in federation.splits.items()
        },
        preferences=weights.repeat(n, axis=0),
    )
    fedpref = trial(FedPref(threshold=0.2), problem, federation=repeated, rounds=rounds, learner=FULL_BATCH, chunk=64)
    assert len(fedpref.states[-1].clusters) > 1, "clusters were cut on the way"
    expected = fedpref.states[-1].models.view(k, n, -1).mean(dim=1)
    assert torch.allclose(mofld.states[-1].models, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("check", ALGORITHM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "algorithm",
    [
        MOFLD(samples=2, training_rounds=1, inner="fedpref", generator="gaussian-annealing"),
        MOFLD(samples=2, training_rounds=1, warm_start=True, generator="ols"),
    ],
    ids=["fedpref", "warm start"],
)
def test_its_variants_keep_the_contract_too(algorithm, check):
    check(algorithm, CONVEX)
