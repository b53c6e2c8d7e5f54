"""MOFL/D: who measures, what comes out of a run, stopped or not, and what goes wrong."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import safetensors.torch
import torch
from mofld_runs import engine_for, rows, spec_of

from fedpareto.algorithms.fronts.mofld import MOFLD
from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.wrappers.fine_tuning import FineTuned
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.algorithm import small_setting
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.contract.problem import Objective
from fedpareto.moo.dominance import is_nondominated
from fedpareto.problems.convex import Convex
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.record import reading
from fedpareto.runs.runner import resume, start
from fedpareto.testing.conformance import trial
from fedpareto_page.comparison import write_comparison

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
        start(spec_of(problem="synthetic", evaluation="server"))


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
        {"inner": "fedproxy"},
        {"inner": "praffl"},
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
