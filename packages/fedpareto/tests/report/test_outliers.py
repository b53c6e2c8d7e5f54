"""Fronts without outliers, and the distance to the front of all compared runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.moo.dominance import front, ranks
from fedpareto.moo.filters import counted
from fedpareto.moo.indicators import cardinality, hypervolume, igd
from fedpareto.problems.convex import Convex
from fedpareto.record.reading import load
from fedpareto.report.comparison import comparison

ENGINE = {"threads": 1, "chunk": 8}


def with_points(record, *points):
    """The record with these final points `[n, m]`, a set for each seed; the second objective is fairness."""
    accuracy, gap = record.objectives
    objectives = (accuracy, dataclasses.replace(gap, name="parity", maximise=True, reference=0.0, fairness=True))
    solutions = tuple(
        dataclasses.replace(one, objectives=dict.fromkeys(record.splits, np.array(these)))
        for one, these in zip(record.solutions, points, strict=True)
    )
    return dataclasses.replace(record, objectives=objectives, solutions=solutions)


def test_a_front_of_rank_k_is_the_front_without_those_before():
    points = np.random.default_rng(1).uniform(size=(60, 2))
    left = points
    for rank in (1, 2, 3):
        kept = points[counted(points, rank=rank)]
        np.testing.assert_array_equal(np.sort(kept, axis=0), np.sort(left, axis=0))
        np.testing.assert_array_equal(front(kept), front(points[ranks(points) == rank]))
        left = left[ranks(left) > 1]
    assert counted(points).all(), "the front itself, of all points, unless another one is asked for"
    with pytest.raises(UserError, match="rank is 0; the front itself has rank 1"):
        counted(points, rank=0)


def test_points_that_are_not_finite_or_too_fair_do_not_count():
    points = [[0.9, 0.5], [0.6, 0.9995], [np.nan, 0.4], [0.5, 0.99]]
    assert counted(points, True).tolist() == [True, True, False, True]
    assert counted(points, True, fairness=[False, True]).tolist() == [True, False, False, True]
    assert counted(points, True, 2, [False, True]).tolist() == [False, False, False, False]


def test_indicators_of_a_front_follow_and_own_utilities_stay(write_run):
    record = with_points(load(write_run("a", clients=4, seeds=(0,))), [[0.9, 0.5], [0.6, 1.0], [0.5, 0.9], [0.7, 0.6]])
    plain = record.without_outliers()
    assert plain.indicator("cardinality")[0] == 4 - 1
    fair = record.without_outliers(converged=True)
    expected = hypervolume([[0.9, 0.5], [0.5, 0.9], [0.7, 0.6]], [0, 0], maximise=True)
    assert fair.indicator("hypervolume")[0] == pytest.approx(expected)
    assert len(fair.front()) == 3
    second = record.without_outliers(rank=2)
    np.testing.assert_array_equal(second.front(), [[0.5, 0.9]])
    for one in (fair, second):
        assert one.indicator("own_utility") == record.indicator("own_utility")
        np.testing.assert_array_equal(one.own_utilities(0), record.own_utilities(0))
    said = "own utilities and means are of all clients."
    (note,) = (note for note in comparison([second]).notes if said in note)
    assert note == f"Fronts are those of rank 2; {said}"
    (note,) = (note for note in comparison([fair]).notes if said in note)
    assert note == f"Models fairer than 0.999, which did not converge, are left out of them; {said}"
    assert not any(said in note for note in comparison([record]).notes)


def test_without_fairness_nothing_shows_what_did_not_converge(write_run):
    with pytest.raises(UserError, match="'synthetic' has no fairness objective"):
        load(write_run("a")).without_outliers(converged=True)


def test_the_distance_to_all_is_that_to_the_front_of_all_compared_runs(write_run):
    runs = [load(write_run(name, name, rounds=2)) for name in ("fedpref", "local")]
    every = front(np.concatenate([run.pooled() for run in runs]), runs[0].maximise)
    table = comparison(runs)
    for run in runs:
        expected = [igd(front(points, run.maximise), every, run.maximise) for points in run.points()]
        assert table.cell(run.label, "igd_to_all").values == pytest.approx(expected)
    assert "igd_to_all" not in [column.key for column in comparison(runs[:1]).columns]


def test_own_utility_of_trained_models_is_of_those_who_trained(write_run):
    record = load(write_run("a", clients=5, rounds=2, seeds=(0,)))
    points, weights = record.of_seed(0)[1].trained["test"][1:], record.solutions[0].preferences[1:]
    expected = (weights * points * [1, -1]).sum(axis=1).mean()
    assert comparison([record]).cell("fedavg", "own_utility_trained").mean == pytest.approx(expected)


def test_a_result_has_its_fronts_and_the_distance_to_those_of_others():
    one, other = (fedpareto.run(Convex(), name, clients=8, rounds=1, engine=ENGINE) for name in ("fedavg", "local"))
    (points,) = (solutions.points for solutions in other.solutions)
    np.testing.assert_array_equal(other.front()[0], front(points))
    np.testing.assert_array_equal(other.front(rank=2)[0], front(points[ranks(points) == 2]))
    every = front(np.concatenate([one.solutions[0].points, points]))
    assert one.igd(other) == [igd(one.front()[0], every)]
    assert other.igd() == [0.0]
    assert cardinality(points) == len(other.front()[0])
    with pytest.raises(UserError, match="different objectives"):
        one.igd(fedpareto.run(Convex(goals=3), "fedavg", clients=2, rounds=1, engine=ENGINE))


def test_fairness_problems_say_which_objectives_are_fairness():
    result = fedpareto.run("synthetic", "local", clients=4, rounds=1, engine=ENGINE)
    assert [objective.fairness for objective in result.spec.problem.objectives] == [False, True]
    (kept,) = (one.only(converged=True).points for one in result.solutions)
    (points,) = (one.points for one in result.solutions)
    np.testing.assert_array_equal(kept, points[points[:, 1] <= 0.999])
