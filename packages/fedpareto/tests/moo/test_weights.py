"""Searches for weights: against the known front of deep-sea treasure, brute force, and a plain annealing."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.moo.indicators import hypervolume
from fedpareto.moo.min_norm import project_to_simplex
from fedpareto.moo.preferences import equidistant
from fedpareto.moo.search.annealing import Annealing
from fedpareto.moo.search.evolution import Evolution
from fedpareto.moo.search.history import History
from fedpareto.moo.search.linear_support import LinearSupport
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


@pytest.mark.takes_long
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
