"""A tuning finds what is known in closed form, goes on after a kill, and never looks at test rows."""

from __future__ import annotations

import numpy as np
import optuna
import pytest

from fedpareto.campaigns.tuning import plan, study
from fedpareto.moo.indicators import hypervolume
from fedpareto.runs.progress import tallied
from fedpareto.runs.runner import start

LARGEST, ROUNDS, CLIENTS = 0.3, 12, 4
ONE_MESSAGE = 8 * 4
"""Bytes of a model of 8 parameters."""
CONVEX = {
    # All clients are alike and take one full step, so that after T rounds θ = (1 − (1 − lr)^T) c_1.
    "problem": {"name": "convex", "heterogeneity": 0.0, "noise": 0.0, "unequal": False, "rows": 3},
    "algorithm": {"name": "fedavg", "weighting": "equal"},
    "clients": CLIENTS,
    "preferences": [1.0, 0.0],
    "engine": {"threads": 1, "chunk": 128},
    "tune": {
        "search": {
            "learner.lr": {"low": 0.01, "high": LARGEST},
            "rounds": {"low": 1, "high": ROUNDS},
            "participation": [0.25, 0.5, 0.75, 1.0],
        },
        "objectives": ["bytes", "distance 1"],
        "trials": 200,
    },
}


def tuned(source, out, **changes):
    tuning = plan.read(source, **changes)
    return study.run(tuning, out, 1, tallied("trials", study.grid_size(tuning), quiet=True), lambda: False)


def with_tune(**changes):
    return CONVEX | {"tune": CONVEX["tune"] | changes}


@pytest.mark.takes_long
def test_it_finds_the_known_front_of_bytes_and_distance_within_two_percent_of_its_hypervolume(tmp_path):
    outcome = tuned(CONVEX, tmp_path)
    # One client a round, with the longest step: nothing is cheaper or nearer.
    known = [(rounds * 2 * ONE_MESSAGE, 0.5 * (1 - LARGEST) ** (2 * rounds)) for rounds in range(1, ROUNDS + 1)]
    found = [(one.values["bytes"], one.values["distance 1"]) for one in outcome.front]
    scale = np.array([ROUNDS * CLIENTS * 2 * ONE_MESSAGE, 0.5])
    volumes = [hypervolume(np.array(points) / scale, [1.0, 1.0]) for points in (known, found)]
    assert volumes[1] <= volumes[0] + 1e-9
    assert volumes[1] >= 0.98 * volumes[0]
    assert len(outcome.tried) == 200
    assert outcome.bytes == sum(one.values["bytes"] for one in outcome.tried)


@pytest.mark.takes_long
def test_a_killed_tuning_goes_on_where_it_was_and_ends_what_was_under_way(tmp_path):
    first = tuned(with_tune(trials=4, population=4), tmp_path)
    url = f"sqlite:///{tmp_path / study.FILE}"
    opened = optuna.load_study(study_name=study.NAME, storage=url)  # As its dashboard does.
    assert opened.metric_names == ["bytes", "distance 1"]
    assert [one.values for one in opened.trials] == [list(one.values.values()) for one in first.tried]
    space = plan.read(CONVEX).space
    lost = space.suggested(opened.ask())  # Killed here.
    outcome = tuned(with_tune(trials=6, population=4), tmp_path)
    assert [one.number for one in outcome.tried] == list(range(6))
    assert outcome.tried[4].parameters == lost
    assert outcome.tried[:4] == first.tried
    assert tuned(with_tune(trials=6), tmp_path).tried == outcome.tried


class Killed(BaseException):
    """kill -9."""


@pytest.mark.takes_long
@pytest.mark.parametrize("sampler", ["nsga2", "tpe"])
def test_a_tuning_that_is_killed_whenever_it_writes_tries_what_an_undisturbed_one_tries(sampler, tmp_path, monkeypatch):
    spec = with_tune(trials=6, population=3)
    undisturbed = tuned(spec, tmp_path / "undisturbed", sampler=sampler)
    storage, left = type(optuna.storages.get_storage("sqlite://")), 0

    def dying(method):
        def die_first(*given, **named):
            nonlocal left
            left -= 1
            if not left:
                raise Killed
            return method(*given, **named)

        return die_first

    names = ("create_new_trial", "set_trial_param", "set_trial_user_attr", "set_trial_state_values")
    for name in names:
        monkeypatch.setattr(storage, name, dying(getattr(storage, name)))
    with_kills, kills = tmp_path / "killed", 0
    while True:
        left = 4 + kills  # Each kind of write is the last one sometimes.
        try:
            outcome = tuned(spec, with_kills, sampler=sampler)
        except Killed:
            kills += 1
        else:
            break
    assert kills > 6
    assert [(one.number, one.parameters, one.values) for one in outcome.tried] == [
        (one.number, one.parameters, one.values) for one in undisturbed.tried
    ]
    assert outcome.chosen.number == undisturbed.chosen.number


@pytest.mark.takes_long
def test_a_grid_has_every_point_once_and_the_choice_is_the_nearest_to_the_ideal_by_weights(tmp_path):
    grid = {"search": {"rounds": [1, 3], "participation": [0.5, 1.0], "lr": [0.3]}, "sampler": "grid"}
    outcome = tuned(with_tune(**grid), tmp_path / "equal")
    points = {(one.parameters["rounds"], one.parameters["participation"]) for one in outcome.tried}
    assert len(outcome.tried) == 4
    assert points == {(1, 0.5), (1, 1.0), (3, 0.5), (3, 1.0)}
    assert [one.parameters["rounds"] for one in outcome.front] == [1, 3]
    assert [one.parameters["participation"] for one in outcome.front] == [0.5, 0.5]
    cheap = tuned(with_tune(**grid, weights={"distance 1": 0.1}), tmp_path / "cheap").chosen
    near = tuned(with_tune(**grid, weights={"bytes": 0.1}), tmp_path / "near").chosen
    assert (cheap.parameters["rounds"], near.parameters["rounds"]) == (1, 3)
    limits = {"bytes": {"most": 2 * 2 * ONE_MESSAGE}}
    bound = tuned(with_tune(**grid, constraints=limits, weights={"bytes": 0.1}), tmp_path / "bound")
    assert [one.parameters["rounds"] for one in bound.front] == [1]
    assert sum(not one.feasible for one in bound.tried) == 3


@pytest.mark.parametrize("sampler", ["nsga3", "tpe", "gp", "random"])
def test_every_sampler_proposes_candidates_of_the_space(tmp_path, sampler):
    outcome = tuned(with_tune(trials=3, population=2), tmp_path, sampler=sampler)
    assert outcome.counted("complete") == 3
    assert all(0.01 <= one.parameters["learner.lr"] <= LARGEST for one in outcome.tried)


def test_under_a_single_objective_bad_candidates_are_given_up_early_and_cost_less(tmp_path):
    search = {"lr": [0.3, 0.29, 0.28, 0.27, 0.26, 0.001], "rounds": [4]}
    told = {"objectives": ["distance 1"], "search": search, "sampler": "grid", "prune_every": 1, "stack": 5}
    outcome = tuned(with_tune(**told), tmp_path)
    assert outcome.counted("complete") == 5
    (given_up,) = (one for one in outcome.tried if one.state == "pruned")
    assert given_up.parameters["lr"] == 0.001
    assert given_up.bytes < outcome.tried[0].bytes
    assert outcome.chosen.parameters["lr"] == 0.3


def test_candidates_are_judged_on_validation_rows_and_never_on_test_rows(tmp_path):
    rows = "".join(f"{row % 7},{'fm'[row % 2]},{int(row % 7 + row % 3 > 4)}\n" for row in range(90))
    (tmp_path / "own.csv").write_text("years,gender,hired\n" + rows)
    table = {"name": "table", "file": str(tmp_path / "own.csv"), "label": "hired", "sensitive": ["gender"]}
    spec = {"problem": table, "algorithm": "fedavg", "clients": 2, "rounds": 1, "engine": CONVEX["engine"]}
    whole = spec | {"tune": {"search": {"lr": [0.05]}, "objectives": ["accuracy"], "sampler": "grid"}}
    (tried,) = tuned(whole, tmp_path / "out").tried
    values = start(plan.read(whole).first, None).solutions[0].values
    assert tried.values["accuracy"] == pytest.approx(values["validation"][:, 0].mean(), rel=1e-6)
    assert values["validation"][:, 0].mean() != values["test"][:, 0].mean()
