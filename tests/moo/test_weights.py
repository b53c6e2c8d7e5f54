"""Searches for weights: against the known front of deep-sea treasure, brute force, and a plain annealing."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from fedpareto.errors import UserError
from fedpareto.moo.indicators import hypervolume
from fedpareto.moo.min_norm import project_to_simplex
from fedpareto.moo.preferences import dirichlet, equidistant
from fedpareto.moo.search.annealing import Annealing
from fedpareto.moo.search.evolution import Evolution
from fedpareto.moo.search.history import History
from fedpareto.moo.search.linear_support import LinearSupport, corner_weights, largest_gain
from fedpareto.moo.search.sampling import Lattice, RandomWeights

TREASURES = np.array(
    [(0.7, 1), (8.2, 3), (11.5, 5), (14.0, 7), (15.1, 8), (16.1, 9), (19.6, 13), (20.3, 14), (22.4, 17), (23.7, 19)]
)
"""Of deep-sea treasure: what each is worth, and the steps to it."""
RETURNS = TREASURES * (1, -1)
GAMMA = 0.98
DISCOUNTED = np.stack(
    [TREASURES[:, 0] * GAMMA ** (TREASURES[:, 1] - 1), -(1 - GAMMA ** TREASURES[:, 1]) / (1 - GAMMA)], axis=1
)
FULL = 994.3
"""Hypervolume of all ten returns from (0, −50)."""
SEARCHES = {
    "annealing": Annealing(5),
    "gaussian": Annealing(5, step=0.2),
    "lattice": Lattice(5, 20),
    "random": RandomWeights(5),
    "nsga2": Evolution(5),
    "ols": LinearSupport(5),
}


def streams_of(seed):
    return lambda iteration: np.random.default_rng([seed, iteration])


def led_by(search, learn, objectives=2, iterations=20, seed=0):
    """The history after so many iterations, or when the search proposes nothing more."""
    history = History(np.zeros((0, objectives)), np.zeros((0, objectives)))
    for iteration in range(iterations):
        weights = search.propose(history, iteration, streams_of(seed))
        if not len(weights):
            break
        values = np.stack([learn(row) for row in weights])
        history = History(np.vstack([history.weights, weights]), np.vstack([history.values, values]))
    return history


def optimum(points, told=None):
    """A perfect learner: of `points` the best under the weights; what is told of it may be another measure."""
    told = points if told is None else told
    return lambda weights: told[(points @ weights).argmax()]


def volume(history):
    """Of the returns behind discounted returns."""
    found = [int(np.abs(DISCOUNTED - row).sum(axis=1).argmin()) for row in history.values]
    return hypervolume(RETURNS[found], (0, -50), maximise=True)


# -- perfect learners on deep-sea treasure ---------------------------------------------------------------------------


def test_the_known_front_has_the_published_hypervolume():
    assert hypervolume(RETURNS, (0, -50), maximise=True) == pytest.approx(FULL)


@pytest.mark.parametrize("count", [1, 5])
def test_linear_support_finds_the_whole_front_in_at_most_twenty_trainings(count):
    history = led_by(LinearSupport(count), optimum(DISCOUNTED), iterations=100)
    assert volume(history) == pytest.approx(FULL)
    assert len(history.weights) <= 20


def test_linear_support_needs_a_training_for_each_solution_and_one_for_each_corner_between_two():
    history = led_by(LinearSupport(1, tolerance=1e-12), optimum(DISCOUNTED), iterations=100)
    assert len(history.weights) == len(RETURNS) + len(RETURNS) - 1
    assert len(np.unique(history.values, axis=0)) == len(RETURNS)


def test_linear_support_must_be_told_what_training_optimises():
    """Told the returns, of which learners optimise the discounted ones, it concludes too early that all is found."""
    history = led_by(LinearSupport(5), optimum(DISCOUNTED, told=RETURNS), iterations=100)
    assert hypervolume(history.values, (0, -50), maximise=True) < 960


def test_a_lattice_of_fifty_finds_the_whole_front():
    assert volume(led_by(Lattice(5, 10), optimum(DISCOUNTED), iterations=10)) == pytest.approx(FULL)


@pytest.mark.parametrize(
    ("search", "low", "high"),
    [("random", 993.4, 994.2), ("annealing", 958, 993), ("gaussian", 985, 994.2), ("nsga2", 930, 990)],
)
def test_the_other_searches_come_near_with_a_hundred_trainings(search, low, high):
    volumes = [volume(led_by(SEARCHES[search], optimum(DISCOUNTED), seed=seed)) for seed in range(8)]
    assert low < np.mean(volumes) < high
    assert max(volumes) <= FULL + 1e-9


# -- what all searches have in common --------------------------------------------------------------------------------


def bowl(weights):
    """The optimum of −½‖v‖-like objectives in any number: a concave front."""
    return np.sqrt(weights) / np.sqrt(weights.sum())


@pytest.mark.parametrize("objectives", [2, 3, 4])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_proposals_lie_on_the_simplex(search, objectives):
    history = led_by(search, bowl, objectives, iterations=6)
    assert len(history.weights) > 10
    assert (history.weights >= 0).all()
    assert history.weights.sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_search_is_a_pure_function_of_the_history(search):
    """From any point of it on, without having been there before, a search goes on to the same bits."""
    history, taken = led_by(search, bowl, 3, iterations=6), 0
    for iteration in range(6):
        again = search.propose(history.until(taken), iteration, streams_of(0))
        assert np.array_equal(again, history.weights[taken : taken + len(again)])
        taken += len(again)
    assert taken == len(history.weights)


@pytest.mark.parametrize("search", ["annealing", "gaussian", "random", "nsga2"])
def test_another_seed_proposes_other_weights(search):
    one, other = (led_by(SEARCHES[search], bowl, seed=seed, iterations=3).weights for seed in (0, 1))
    assert not np.isclose(one, other).all(axis=1).any()


@pytest.mark.parametrize("lost", ["some", "all"])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_trainings_that_came_to_nothing_are_borne(search, lost):
    calls = itertools.count()

    def sometimes(weights):
        number = next(calls)
        return np.full(3, np.nan) if lost == "all" or number % 3 == 0 else bowl(weights)

    history = led_by(search, sometimes, 3, iterations=8)
    assert np.isfinite(history.weights).all()
    assert len(history.weights) >= 8


def test_linear_support_tries_again_where_a_training_came_to_nothing():
    history = History(np.eye(2), np.array([[1.0, 0.0], [np.nan, np.nan]]))
    assert LinearSupport(5).propose(history, 1, streams_of(0)).tolist() == [[0.0, 1.0]]


def test_every_iteration_of_a_lattice_reaches_over_the_whole_front():
    lattice = Lattice(5, 4)
    nothing = History(np.zeros((0, 2)), np.zeros((0, 2)))
    parts = [lattice.propose(nothing, iteration, streams_of(0)) for iteration in range(4)]
    assert all(len(part) == 5 and np.ptp(part[:, 0]) > 0.75 for part in parts)
    together = np.vstack(parts)
    assert together[np.argsort(together[:, 0])] == pytest.approx(equidistant(20, 2))


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


# -- annealing -------------------------------------------------------------------------------------------------------


class PlainAnnealing:
    """Pareto simulated annealing written down with its state, one member after the other."""

    def __init__(self, n, m, seed, temperature, cooling, alpha, step):
        self.n, self.m, self.stream = n, m, streams_of(seed)
        self.temperature, self.cooling, self.alpha, self.step = temperature, cooling, alpha, step
        self.iteration, self.seen = 0, []

    def propose(self):
        draws = self.stream(self.iteration)
        fresh = draws.dirichlet(np.ones(self.m), size=self.n)
        noise, self.luck = draws.standard_normal((self.n, self.m)), draws.uniform(size=self.n)
        if self.iteration == 0:
            self.importance = [row.copy() for row in fresh]
            self.proposed = fresh
            return fresh
        scale = np.ptp(self.seen, axis=0)
        for i in range(self.n):
            others = [k for k in range(self.n) if (self.x[k] > self.x[i]).any() and (self.x[k] < self.x[i]).any()]
            if not others:
                new = fresh[i]
            else:
                k = min(others, key=lambda k: np.linalg.norm((self.x[k] - self.x[i]) / scale))
                new = np.array(
                    [
                        value * self.alpha if self.x[i][j] >= self.x[k][j] else value / self.alpha
                        for j, value in enumerate(self.importance[i])
                    ]
                )
            self.importance[i] = new / new.sum()
        if self.step is None:
            self.proposed = np.array(self.importance)
        else:
            self.proposed = np.array(
                [project_to_simplex(w + self.step * e) for w, e in zip(self.w, noise, strict=True)]
            )
        return self.proposed

    def tell(self, values):
        self.seen += list(values)
        if self.iteration == 0:
            self.x, self.w = list(values), list(self.proposed)
        else:
            scale = np.ptp(self.seen, axis=0)
            for i in range(self.n):
                gain = sum(self.importance[i][j] * (values[i][j] - self.x[i][j]) / scale[j] for j in range(self.m))
                if self.luck[i] < min(1.0, np.exp(gain / self.temperature)):
                    self.x[i], self.w[i] = values[i], self.proposed[i]
            self.temperature *= self.cooling
        self.iteration += 1


@pytest.mark.parametrize("step", [None, 0.15])
@pytest.mark.parametrize("temperature", [0.01, 1.0])
def test_annealing_replays_what_a_plain_one_with_state_does(step, temperature):
    def learn(weights):
        """Uneven, so that some moves are for the worse."""
        return bowl(weights) + 0.2 * np.sin(40 * weights + np.arange(3))

    plain = PlainAnnealing(4, 3, 0, temperature, 0.8, 1.3, step)
    expected = []
    for _ in range(9):
        weights = plain.propose()
        expected.append(weights)
        plain.tell(np.stack([learn(row) for row in weights]))
    history = led_by(Annealing(4, temperature, 0.8, 1.3, step), learn, 3, iterations=9)
    assert history.weights == pytest.approx(np.vstack(expected), abs=1e-12)


def test_importances_move_away_from_the_closest_neighbour():
    """By hand: the second solution is the first one's closest; where it is better, α goes into its importance."""
    start = np.array([[0.5, 0.5], [0.5, 0.5], [0.1, 0.9]])
    history = History(start, np.array([[0.6, 0.5], [0.5, 0.6], [0.0, 1.0]]))
    moved = Annealing(3, alpha=2.0).propose(history, 1, streams_of(0))
    expected = np.array([[0.8, 0.2], [0.2, 0.8], [0.05 / 1.85, 1.8 / 1.85]])
    assert moved == pytest.approx(expected)


def test_equal_solutions_are_no_neighbours_but_start_anew():
    """Against an equal nothing would ever move."""
    history = History(np.array([[0.5, 0.5], [0.4, 0.6]]), np.array([[1.0, 1.0], [1.0, 1.0]]))
    moved = Annealing(2).propose(history, 1, streams_of(0))
    assert np.abs(moved - history.weights).min() > 0.01


# -- NSGA-II ---------------------------------------------------------------------------------------------------------


def test_nsga2_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymoo.algorithms.moo.nsga2", None)
    with pytest.raises(UserError, match=r"fedpareto\[search\]"):
        Evolution(4).propose(History(np.zeros((0, 2)), np.zeros((0, 2))), 0, streams_of(0))


def test_nsga2_goes_where_it_is_better():
    """With one objective better everywhere at large weights of the first, the population moves there."""
    history = led_by(Evolution(8), lambda weights: np.array([weights[0], weights[0]]), iterations=12, seed=1)
    assert history.weights[-8:, 0].mean() > history.weights[:8, 0].mean() + 0.2


def test_nsga2_leaves_the_global_random_numbers_alone():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    led_by(Evolution(4), bowl, iterations=3)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
