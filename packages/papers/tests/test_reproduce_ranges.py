from __future__ import annotations

import pytest

from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness.published import Range

ROUNDING = 0.0015
"""A hypervolume in print is 0.0005 off, the product of two values with three digits another 0.001."""
CELLS = {
    table: [(problem, name, value) for problem, row in found.cells.items() for name, value in row.items()]
    for table, found in published.TABLES.items()
}


def volume_bounds(found):
    """What a front that spans this can have: at least its two ends, at most a point that is best in both."""
    (least_accurate, most_accurate), (least_fair, fairest) = found.accuracy, found.fairness
    return most_accurate * least_fair + least_accurate * (fairest - least_fair), most_accurate * fairest


def count_fitting(table, gap):
    fitting = 0
    for problem, algorithm, value in CELLS[table]:
        low, high = volume_bounds(published.published_range(table, problem, algorithm))
        fitting += problem.endswith(gap) and low - ROUNDING <= value <= high + ROUNDING
    return fitting


@pytest.mark.parametrize("table", published.TABLES)
def test_every_cell_has_a_range_of_fractions_in_order(table):
    for problem, algorithm, _ in CELLS[table]:
        found = published.published_range(table, problem, algorithm)
        assert 0.2 < found.accuracy[0] <= found.accuracy[1] < 0.96
        assert 0.6 < found.fairness[0] <= found.fairness[1] <= 0.999  # 1 − ε at most: the filter of A.3.5


@pytest.mark.parametrize(
    ("table", "problem", "algorithm", "accuracy", "fairness"),
    [
        ("thesis-5.2", "adult-gender-deo", "fedprox", (0.800, 0.801), (0.837, 0.876)),
        ("thesis-5.2", "law-school-race-deo", "fedpref", (0.928, 0.932), (0.703, 0.799)),
        ("thesis-5.3", "default-gender-ddp", "local", (0.523, 0.774), (0.987, 0.988)),
        ("thesis-5.3", "law-school-gender-ddp", "fedcmoo-pref", (0.909, 0.925), (0.992, 0.995)),
        ("thesis-A.17", "adult-race-deo", "cfl", (0.813, 0.814), (0.858, 0.867)),
        ("thesis-A.17", "adult-gender-ddp", "fedcmoo-pref", (0.646, 0.786), (0.631, 0.983)),
        ("thesis-A.20", "adult-gender-deo", "fedprox", (0.811, 0.818), (0.787, 0.818)),
        ("thesis-A.20", "adult-gender-ddp", "local", (0.246, 0.828), (0.884, 0.999)),
    ],
)
def test_ranges_are_those_in_print(table, problem, algorithm, accuracy, fairness):
    assert published.published_range(table, problem, algorithm) == Range(accuracy, fairness)


@pytest.mark.parametrize(
    ("table", "gap"),
    [
        ("thesis-5.2", "deo"),
        ("thesis-5.3", "ddp"),
        ("thesis-A.17", "deo"),
        ("thesis-A.17", "ddp"),
        ("thesis-A.20", "deo"),
        ("thesis-A.20", "ddp"),
    ],
)
def test_all_published_hypervolumes_fit_the_ranges_that_are_believed(table, gap):
    assert count_fitting(table, gap) == 25
    assert not any(published.published_range(table, problem, name).doubtful for problem, name, _ in CELLS[table])


@pytest.mark.parametrize(
    ("table", "gap", "source", "fitting"), [("thesis-5.4", "deo", "A.15", 2), ("thesis-5.5", "ddp", "A.16", 1)]
)
def test_hardly_any_fits_the_copied_ranges_which_are_said_to_be_doubtful(table, gap, source, fitting):
    assert count_fitting(table, gap) == fitting
    for problem, algorithm, _ in CELLS[table]:
        found = published.published_range(table, problem, algorithm)
        assert source in (found.doubtful or "")


def test_our_own_range_is_that_of_the_front():
    assert published.own_range([[0.7, 0.9], [0.8, 0.6], [0.75, 0.8]]) == Range((0.7, 0.8), (0.6, 0.9))
    single = published.own_range([[0.7, 0.9]])
    assert single is not None
    assert single.is_point
    assert published.own_range([]) is None
