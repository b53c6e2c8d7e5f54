"""MOFL/D: against FedAvg, FedPref, local training and the closed-form front of the convex problem."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
import safetensors.torch
import torch
from test_fsmgda import FULL_BATCH

from fedpareto.algorithms.fedavg import FedAvg
from fedpareto.algorithms.fedpref import FedPref
from fedpareto.algorithms.fine_tuning import FineTuned
from fedpareto.algorithms.local import Local
from fedpareto.algorithms.mofld import MOFLD
from fedpareto.core.algorithm import small_setting
from fedpareto.core.federation import Federation
from fedpareto.core.messages import Replies
from fedpareto.core.problem import Objective
from fedpareto.core.rows import Rows
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices, LocalOptions
from fedpareto.errors import UserError
from fedpareto.experiments.progress import Stopped
from fedpareto.experiments.runner import resume, start
from fedpareto.experiments.spec import Draft
from fedpareto.moo.dominance import is_nondominated
from fedpareto.moo.preferences import equidistant
from fedpareto.problems.convex import Convex
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.report import reading
from fedpareto.report.page import write_comparison
from fedpareto.testing.conformance import ALGORITHM_CHECKS, trial


def spec_of(rounds=6, problem="convex", learner=None, **parameters):
    values = {
        "algorithm": {"name": "mofld", "training_rounds": 2, "samples": 3, **parameters},
        "problem": problem,
        "clients": 4,
        "rounds": rounds,
        "engine": {"threads": 1, "chunk": 64},
        "learner": learner or {},
    }
    return Draft(values).finish()


EXACT = {"problem": {"name": "convex", "heterogeneity": 0.0, "noise": 0.0}, "learner": {"lr": 0.3, "epochs": 5}}
"""Clients that are alike and come to the optimum of any weights."""


def linear_support(**parameters):
    return spec_of(**EXACT, rounds=80, generator="ols", training_rounds=4, tolerance=0.02, **parameters)


def rows(folder, name="metrics.jsonl"):
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


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


def engine_for(algorithm, problem, clients=4, rounds=6, chunk=64, learner=None):
    federation = Federation.create(problem, clients, 3)
    setting = federation.setting(problem, rounds)
    options, choices = LocalOptions(precision="float64"), Choices(threads=1, chunk=chunk)
    learner = learner or problem.learner()
    return LocalEngine(algorithm, problem, learner, [federation], [setting], options, choices=choices)


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


# -- who measures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged(Convex):
    """A convex problem whose server knows the centres."""

    name: ClassVar[str] = "judged"

    def judge(self, clients, seed):
        def worth(models):
            values = 0.5 * (models[:, None] - self.centres().to(models)).square().sum(-1)
            return torch.stack([2 * values, values, 3 * values], dim=1)

        return worth


def test_a_server_that_can_judge_needs_no_further_exchange():
    problem = Judged()
    done = trial(MOFLD(samples=3, training_rounds=2, evaluation="server"), problem, rounds=4)
    assert [outcome.replies.step for outcome in done.outcomes] == ["solve"] * 4
    final = done.states[-1]
    assert torch.equal(final.values, problem.judge(4, 0)(final.models))


def test_a_server_without_data_says_so():
    with pytest.raises(UserError, match="the server has no data of its own on this problem; evaluation=client"):
        start(spec_of(evaluation="server"))


def test_where_clients_play_the_server_can_play_too():
    problem = DeepSeaTreasure()
    models = torch.stack([problem.initial(seed) for seed in range(3)])
    judge = Federation.create(problem, 3, 5).setting(problem, 1).judge
    clients = engine_for(Local(), problem, clients=3, rounds=1)._probe(3)
    expected = problem.score(clients, models.double())
    assert judge is not None
    assert judge(models.double()) == pytest.approx(expected[:, [0, 1, 1]]), "a played return is chosen and compared by"


def test_linear_support_is_told_what_training_optimises_and_others_what_choices_are_made_on():
    state = trial(MOFLD(samples=3, training_rounds=2, evaluation="server"), Judged(), rounds=2).states[-1]
    assert MOFLD(generator="ols")._history(state).values == pytest.approx(-state.values[:, 0].numpy())
    assert MOFLD()._history(state).values == pytest.approx(-state.values[:, 1].numpy())


@dataclass(frozen=True)
class Contradicted(Convex):
    """Test rows report the first distance with the other sign, so that one solution seems to beat all others."""

    name: ClassVar[str] = "contradicted"

    def data(self, clients, seed):
        rows = super().data(clients, seed)["train"]
        parts = {"train": 1.0, "validation": 1.0, "test": -1.0}
        count = len(next(iter(rows.columns.values())))
        return {
            part: replace(rows, columns={**rows.columns, "sign": torch.full((count,), sign)})
            for part, sign in parts.items()
        }

    def evaluate(self, parameters, batch):
        sign = batch.columns["sign"][:, :1]
        return super().evaluate(parameters, batch) * torch.cat([sign, torch.ones_like(sign)], dim=1)


def test_search_archive_and_favourites_follow_validation_rows_where_test_rows_disagree():
    problem, algorithm = Contradicted(), MOFLD(samples=6, training_rounds=2, generator="random")
    done = trial(algorithm, problem, rounds=6)
    state = done.states[-1]
    _, validation, test = state.values.unbind(1)
    assert torch.equal(validation, test * torch.tensor([-1.0, 1.0]))
    assert algorithm._history(state).values == pytest.approx(-validation.numpy())
    kept = is_nondominated(validation.numpy(), problem.maximise)
    assert torch.equal(algorithm.found(state).models, state.models[kept])
    assert kept.sum() > is_nondominated(test.numpy(), problem.maximise).sum() == 1
    front = validation[kept].numpy()
    for client, preference in enumerate(done.engine.federations[0].preferences):
        assert torch.equal(done.models[client], state.models[kept][int((front @ preference).argmin())])


# -- what comes out ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turned(Convex):
    """Reports minus the distances, to be maximised."""

    name: ClassVar[str] = "turned"

    @property
    def objectives(self):
        return tuple(replace(objective, maximise=True, reference=-1.1) for objective in super().objectives)

    def evaluate(self, parameters, batch):
        return -super().evaluate(parameters, batch)


@pytest.mark.parametrize("problem", [Convex(goals=3), Turned(goals=3)], ids=["minimise", "maximise"])
def test_every_client_gets_the_solution_that_its_own_preference_likes_best(problem):
    algorithm = MOFLD(samples=6, training_rounds=2, generator="random")
    done = trial(algorithm, problem, rounds=6)
    found = algorithm.found(done.states[-1])
    values = found.values[:, 1].numpy()
    assert is_nondominated(values, problem.maximise).all()
    favourites = set()
    for client, preference in enumerate(done.engine.federations[0].preferences):
        utilities = values @ preference if problem.maximise[0] else -values @ preference
        best = int(utilities.argmax())
        favourites.add(best)
        assert torch.equal(done.models[client], found.models[best])
    assert len(favourites) > 1, "clients want different things"


def test_a_minimising_and_a_maximising_twin_find_the_same():
    """Directions are a matter of reporting: searches see the same, whatever the sign."""
    for generator in ("annealing", "gaussian-annealing", "nsga2", "ols"):
        algorithm = MOFLD(samples=3, training_rounds=1, generator=generator)
        one, other = (trial(algorithm, problem, rounds=4).states[-1] for problem in (Convex(), Turned()))
        assert torch.equal(one.weights, other.weights)
        assert torch.equal(one.values, -other.values)


def test_no_preference_has_a_part_in_what_the_server_does():
    algorithm = MOFLD(samples=3, training_rounds=2)
    one, other = (
        trial(algorithm, Convex(), federation=Federation.create(Convex(), 7, 3, preferences), rounds=4).states[-1]
        for preferences in ("dirichlet", "equidistant")
    )
    assert torch.equal(one.models, other.models)
    assert torch.equal(one.values, other.values)


def test_the_run_s_solutions_are_the_front(tmp_path):
    spec = spec_of(problem={"name": "convex", "heterogeneity": 0.0})
    result = start(spec, tmp_path / "run")
    (solutions,), last = result.solutions, result.history[-1]
    k = len(last["front"])
    assert solutions.clients == tuple(range(k))
    assert solutions.points.tolist() == last["front"]
    assert solutions.preferences.tolist() == last["front_weights"]
    assert solutions.hypervolume() == last["hypervolume"]
    assert is_nondominated(solutions.points).all()
    assert len(result.models[0]) == k
    models = torch.stack([result.models[0][i] for i in range(k)]).double()
    worth = 0.5 * (models[:, None] - spec.problem.centres()).square().sum(dim=-1)
    assert worth.numpy() == pytest.approx(solutions.points, abs=1e-6)
    assert len(safetensors.torch.load_file(tmp_path / "run" / "models.safetensors")) == k


def test_metrics_tell_what_is_trained_and_what_was_found(tmp_path):
    start(spec_of(), tmp_path / "run")
    lines = rows(tmp_path / "run")
    assert [line["trainings"] for line in lines] == [0, 0, 3, 3, 6, 6, 9]
    assert [len(line["candidates"]) for line in lines] == [3, 3, 3, 3, 3, 3, 0]
    assert lines[0]["front"] == []
    for line in lines[2:]:
        assert is_nondominated(line["front"]).all()
        assert len(line["front"]) == len(line["front_weights"])


def test_reports_can_be_written_of_it(tmp_path):
    start(spec_of(), tmp_path / "run")
    write_comparison([tmp_path / "run"], tmp_path / "page")
    assert (tmp_path / "page" / "index.html").exists()


# -- stop and resume ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_after", [1, 2, 3])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"inner": "fedpref", "warm_start": True, "generator": "gaussian-annealing"},
        {"generator": "nsga2"},
        {"generator": "ols", "samples": 2},
    ],
    ids=["fedavg", "fedpref", "nsga2", "ols"],
)
def test_a_run_stopped_in_the_middle_of_an_iteration_goes_on_bit_for_bit(tmp_path, stop_after, parameters):
    spec = spec_of(**parameters)
    start(spec, tmp_path / "whole")
    stops = iter([False] * (stop_after - 1) + [True])
    with pytest.raises(Stopped):
        start(spec, tmp_path / "cut", stop=lambda: next(stops))
    resume(tmp_path / "cut")
    for name in ("models.safetensors", "solutions.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()
    assert rows(tmp_path / "whole") == rows(tmp_path / "cut")


# -- several seeds -----------------------------------------------------------------------------------------------------


def test_seeds_with_fronts_of_different_sizes_run_side_by_side():
    spec = replace(spec_of(), seeds=(0, 2, 4))
    together = start(spec)
    assert len({len(solutions.clients) for solutions in together.solutions}) > 1
    for place, seed in enumerate(spec.seeds):
        alone = start(replace(spec, seeds=(seed,)))
        assert alone.solutions[0].points == pytest.approx(together.solutions[place].points, abs=1e-6)


def test_a_seed_that_ends_early_is_still_measured_while_it_waits(tmp_path):
    spec = replace(spec_of(rounds=40, generator="ols", tolerance=0.08, samples=1), seeds=(0, 1, 2))
    start(spec, tmp_path / "run")
    lines = rows(tmp_path / "run")
    over = [line for line in lines if not line["candidates"] and line["round"] < 40]
    assert over, "one ended before another"
    assert all(line["replies"] == 0 and line["sent"] is not None for line in over)
    reading.load(tmp_path / "run")


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
    check(algorithm, Convex())


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["fedavg", "fedpref"])
def test_a_candidate_that_nobody_trains_or_measures_is_left_out(inner):
    algorithm = MOFLD(samples=3, training_rounds=2, inner=inner)
    engine = engine_for(algorithm, Convex(), rounds=4)
    state = algorithm.begin(engine.settings[0])
    while state.round < 2:
        replies = engine.run(algorithm.ask(state)).replies
        state = algorithm.tell(state, replies.only(np.flatnonzero(replies.lanes != 1)))
    assert state.values[1].isnan().all()
    assert not state.values[[0, 2]].isnan().any()
    assert 1 not in [state.weights.tolist().index(row) for row in algorithm.found(state).weights.tolist()]
    assert len(state.in_training) == 3, "the search goes on"
    json.dumps(algorithm.describe(state), allow_nan=False)


def test_if_nothing_could_be_measured_everyone_has_the_initial_model():
    algorithm = MOFLD(samples=2, training_rounds=1)
    engine = engine_for(algorithm, Convex(), rounds=1)
    state = algorithm.begin(engine.settings[0])
    state = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)
    state = algorithm.tell(state, Replies(np.empty(0)))
    assert not len(algorithm.found(state).models)
    assert all(
        torch.equal(model, state.setting.initial) for model in engine.models(0, algorithm.solutions(state)).values()
    )


def test_fine_tuning_leaves_the_choice_to_those_who_did_not_reply():
    algorithm = FineTuned(MOFLD(samples=4, training_rounds=1))
    engine = engine_for(algorithm, Convex(), rounds=4)
    state = algorithm.begin(engine.settings[0])
    while state.round < 3:
        state = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)
    front = MOFLD().found(state.inner)
    outcome = engine.run(algorithm.ask(state))
    tuned = outcome.replies.by_client("model")
    state = algorithm.tell(state, outcome.replies.only(np.flatnonzero(outcome.replies.clients != 2)))
    models = engine.models(0, algorithm.solutions(state))
    assert all(torch.equal(models[client], tuned[client]) for client in (0, 1, 3))
    assert any(torch.equal(models[2], model) for model in front.models)


def test_rounds_must_fit_the_trainings():
    with pytest.raises(
        UserError, match=r"rounds is 7, no multiple of mofld's training_rounds, 2: .*; 6 rounds would do"
    ):
        start(spec_of(rounds=7))
    with pytest.raises(UserError, match="9 rounds would do"):
        start(spec_of(rounds=4, training_rounds=9))


@pytest.mark.parametrize(("rounds", "trainings"), [(1, 1), (3, 1), (7, 7), (12, 3), (20, 4)])
def test_without_a_word_trainings_are_as_long_as_rounds_allow_up_to_five(rounds, trainings):
    done = trial(MOFLD(samples=1), Convex(), rounds=rounds)
    assert done.states[-1].done == trainings


@pytest.mark.parametrize(
    "parameters",
    [
        {"samples": 0},
        {"training_rounds": -1},
        {"temperature": 0},
        {"cooling": 1.5},
        {"alpha": 0.9},
        {"step": 0},
        {"tolerance": -1},
        {"temperature": math.inf},
        {"alpha": math.inf},
        {"step": math.inf},
        {"tolerance": math.inf},
        {"confirmations": 0},
        {"generator": "chance"},
        {"inner": "fedprox"},
        {"evaluation": "nobody"},
    ],
    ids=str,
)
def test_bad_parameters_are_named(parameters):
    with pytest.raises(UserError, match=next(iter(parameters))):
        spec_of(**parameters)


def test_linear_support_of_one_objective_is_refused():
    setting = replace(small_setting(), objectives=(Objective("accuracy"),))
    with pytest.raises(UserError, match="generator is ols, which needs two objectives or more; this problem has one"):
        MOFLD(generator="ols", training_rounds=1).begin(setting)


def test_privacy_around_it_is_refused():
    with pytest.raises(UserError, match="does not fit mofld"):
        Draft(
            {"algorithm": {"name": "mofld"}, "problem": "convex", "privacy": {"kind": "local", "clip": 1, "noise": 1}}
        ).finish()
