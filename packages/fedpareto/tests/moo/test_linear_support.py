"""Linear support: corners, gains, and learners who do not always find the optimum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_weights import DISCOUNTED, GAMMA, bowl, led_by, optimum, streams_of

from fedpareto.moo.preferences import dirichlet, equidistant
from fedpareto.moo.search.history import History
from fedpareto.moo.search.linear_support import LinearSupport, corner_weights, largest_gain

# -- linear support --------------------------------------------------------------------------------------------------


def corners_by_brute_force(values):
    """Every weight at which m of the constraints z ≥ w·v and w_j ≥ 0 hold with equality, and none is broken."""
    k, m = values.shape
    rows = np.vstack([np.hstack([values, -np.ones((k, 1))]), np.hstack([np.eye(m), np.zeros((m, 1))])])
    sum_to_one = np.append(np.ones(m), 0.0)
    found = []
    for chosen in itertools.combinations(rows, m):
        system = np.vstack([*chosen, sum_to_one])
        if abs(np.linalg.det(system)) < 1e-9:
            continue
        *weights, z = np.linalg.solve(system, np.append(np.zeros(m), 1.0))
        if min(weights) > -1e-9 and z >= (values @ weights).max() - 1e-9:
            found.append(weights)
    return np.array(found)


@pytest.mark.parametrize(("k", "m"), [(1, 2), (2, 2), (9, 2), (1, 3), (6, 3), (12, 3), (7, 4)])
def test_corner_weights_are_those_of_brute_force(k, m):
    values = np.random.default_rng(k * m).standard_normal((k, m)) * 10.0 ** np.arange(m)
    expected, found = corners_by_brute_force(values), corner_weights(values)
    gaps = np.abs(expected[:, None] - found).max(axis=2)
    assert gaps.min(axis=1).max() < 1e-6, "a corner is missing"
    assert gaps.min(axis=0).max() < 1e-6, "something is no corner"


def test_corner_weights_of_duplicates_and_of_points_on_a_line():
    values = np.array([[0.0, 2.0], [1.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    assert corner_weights(values).tolist() == [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]


def test_the_largest_gain_is_that_of_the_ideal_point_at_first():
    """Between (1, 0) and (0, 1), both known to be optimal on their own axis, (1, 1) is possible: worth 1, not ½."""
    assert largest_gain(np.array([0.5, 0.5]), np.eye(2), np.eye(2)) == pytest.approx(0.5)
    trained = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert largest_gain(np.array([0.5, 0.5]), trained, np.eye(2)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("k", "m"), [(30, 2), (25, 3), (15, 4)])
def test_linear_support_leaves_nothing_to_find_in_more_objectives(k, m):
    stream = np.random.default_rng(m)
    points = stream.standard_normal((k, m))
    history = led_by(LinearSupport(4, tolerance=1e-9), optimum(points), m, iterations=100)
    weights = dirichlet(5000, m, stream)
    assert (weights @ history.values.T).max(axis=1) == pytest.approx((weights @ points.T).max(axis=1))
    assert not len(LinearSupport(4, tolerance=1e-9).propose(history, 100, streams_of(0)))


@pytest.mark.takes_long
def test_a_coarser_tolerance_ends_earlier_and_misses_no_more_than_that():
    fine, coarse = (led_by(LinearSupport(1, tolerance), bowl, iterations=200) for tolerance in (0.001, 0.02))
    assert len(coarse.weights) < len(fine.weights) < 200
    weights = equidistant(501, 2)
    truth = np.array([row @ bowl(row) for row in weights])
    assert (truth - (weights @ coarse.values.T).max(axis=1)).max() < 0.02
    assert (truth - (weights @ fine.values.T).max(axis=1)).max() < 0.001


# -- learners who do not always find the optimum -----------------------------------------------------------------------

STUCK = np.array([0.0, -(1 - GAMMA**100) / (1 - GAMMA)])
"""What a submarine that gets nowhere in 100 steps is worth, discounted."""


def unreliable(points, failure, seed, chance=0.3):
    """A perfect learner, but with some chance training gets stuck."""
    stream, perfect = np.random.default_rng(seed), optimum(points)
    return lambda weights: failure if stream.random() < chance else perfect(weights)


def trainings_until_all_is_found(history):
    """How many led to all ten solutions; infinitely many if they never did."""
    firsts = [np.flatnonzero((history.values == point).all(axis=1)) for point in DISCOUNTED]
    return max(first[0] + 1 if len(first) else np.inf for first in firsts)


@pytest.mark.takes_long
@pytest.mark.parametrize("count", [1, 5])
def test_linear_support_finds_the_whole_front_although_three_in_ten_trainings_get_stuck(count):
    histories = [
        led_by(LinearSupport(count), unreliable(DISCOUNTED, STUCK, seed), iterations=100) for seed in range(10)
    ]
    assert np.mean([trainings_until_all_is_found(history) for history in histories]) < 30
    assert np.mean([len(history.weights) for history in histories]) < 30


def test_without_a_second_try_linear_support_believes_what_is_stuck():
    histories = [
        led_by(LinearSupport(1, tries=1), unreliable(DISCOUNTED, STUCK, seed), iterations=100) for seed in range(10)
    ]
    assert np.median([trainings_until_all_is_found(history) for history in histories]) == np.inf


def test_weights_are_trained_for_again_where_a_known_solution_is_better():
    """Alone, the second objective came to 0; with the first it came to 2."""
    history = History(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), np.array([[3.0, 1.0], [0.0, 0.0], [2.0, 2.0]]))
    assert LinearSupport(5).propose(history, 1, streams_of(0)).tolist() == [[0.0, 1.0]]
    assert not len(LinearSupport(5, tries=1).propose(history, 1, streams_of(0)))


def test_a_result_that_was_believed_is_doubted_once_a_better_one_turns_up():
    """In the same iteration as the corners, for which it is taken as it is."""
    history = History(np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), np.array([[2.0, 0.0], [0.0, 2.0], [3.0, 1.0]]))
    assert LinearSupport(5).propose(history, 1, streams_of(0)) == pytest.approx(np.array([[1.0, 0.0], [0.25, 0.75]]))
    assert LinearSupport(1).propose(history, 1, streams_of(0)).tolist() == [[1.0, 0.0]]


def test_while_all_solutions_are_the_same_linear_support_begins_anew_and_in_the_middle_too():
    history = History(np.eye(2), np.zeros((2, 2)))
    assert LinearSupport(5).propose(history, 1, streams_of(0)).tolist() == [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]


def test_while_one_solution_is_better_in_everything_the_middle_is_tried_as_well():
    history = History(np.eye(2), np.array([[0.0, -43.0], [0.7, -1.0]]))
    assert LinearSupport(5).propose(history, 1, streams_of(0)).tolist() == [[0.5, 0.5], [1.0, 0.0]]


def nearly_right(points, seed, chance=0.1):
    """A perfect learner, but with some chance training ends with the second best."""
    stream = np.random.default_rng(seed)
    return lambda weights: points[np.argsort(-(points @ weights))[int(stream.random() < chance)]]


@pytest.mark.takes_long
def test_corners_that_are_trained_for_twice_make_up_for_trainings_that_fall_short():
    """No other solution shows that the second best is not the best."""
    once, twice = (
        sum(
            np.isfinite(trainings_until_all_is_found(led_by(search, nearly_right(DISCOUNTED, seed), iterations=100)))
            for seed in range(10)
        )
        for search in (LinearSupport(2), LinearSupport(2, confirmations=2))
    )
    assert once <= 7
    assert twice >= 8


def test_confirming_comes_last_and_asks_again_at_every_corner_where_something_could_be():
    """Of perfect learners nothing new; seven corners in question are the two ends and five between neighbours."""
    plain, twice = (
        led_by(LinearSupport(2, confirmations=count), optimum(DISCOUNTED), iterations=100) for count in (1, 2)
    )
    assert (len(plain.weights), len(twice.weights)) == (15, 22)
    assert np.array_equal(twice.weights[:15], plain.weights)
    again = twice.weights[15:]
    assert np.array_equal(again[:2], [[0.0, 1.0], [1.0, 0.0]])
    assert all((np.abs(plain.weights - row).max(axis=1) < 1e-6).any() for row in again)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_linear_support_does_not_mind_in_what_units_an_objective_is(scale):
    history = led_by(LinearSupport(2), optimum(DISCOUNTED * [scale, 1.0]), iterations=100)
    assert len(history.weights) == 15
    assert len(np.unique(history.values, axis=0)) == 10


@pytest.mark.parametrize("lost", [0.0, 1.0, "between"])
def test_weights_for_which_nothing_can_be_measured_are_given_up(lost):
    """One objective alone, or whatever lies between two: the rest is trained for all the same."""

    def learn(weights):
        between = 0 < weights[0] < 1
        is_lost = between if lost == "between" else weights[0] == lost
        return np.full(2, np.nan) if is_lost else optimum(DISCOUNTED)(weights)

    search = LinearSupport(2)
    history = led_by(search, learn, iterations=100)
    assert not len(search.propose(history, 100, streams_of(0)))
    missing = np.isnan(history.values).all(axis=1)
    assert missing.sum() == 5, "as often as it has tries"
    assert len(np.unique(history.values[~missing], axis=0)) >= (2 if lost == "between" else 4)


def test_if_nothing_at_all_can_be_measured_the_search_ends():
    history = led_by(LinearSupport(2), lambda weights: np.full(2, np.nan), iterations=100)
    assert history.weights.tolist() == 5 * [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("objectives", [2, 3])
def test_even_hopeless_learners_are_not_asked_for_ever(objectives):
    search = LinearSupport(4, tries=3)
    history = led_by(search, lambda weights: np.zeros(objectives), objectives, iterations=100)
    assert len(history.weights) == 3 * (objectives + 1)
    assert not len(search.propose(history, 100, streams_of(0)))
