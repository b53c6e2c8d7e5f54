"""Pareto simulated annealing: Czyżak and Jaszkiewicz, "Pareto simulated annealing", 1998.

A generating set of solutions wanders over the front. Each has importances λ that drive it away from its closest
neighbour, and moves to a new solution with a probability that falls with the temperature. Where a solution is a model
trained for scalarisation weights, there are two readings of what a move is:

- λ are the scalarisation weights: a solution's new neighbour is what training under its λ gives;
- the solution's weights are what moves, by a Gaussian step on the simplex, and λ only decides on acceptance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpareto.moo._points import Array
from fedpareto.moo.min_norm import project_to_simplex
from fedpareto.moo.preferences import dirichlet
from fedpareto.moo.search.history import History, Streams, is_known, ranges


@dataclass(frozen=True)
class _Chance:
    """All random numbers of an iteration, whether needed or not: so draws do not depend on decisions."""

    importances: Array
    """`[n, m]`, uniform on the simplex."""
    noise: Array
    """`[n, m]`, standard normal."""
    luck: Array
    """`[n]`, uniform between 0 and 1."""


@dataclass(frozen=True)
class _Generating:
    """The generating set. Row i of everything belongs to its i-th solution."""

    importances: Array
    """λ, `[n, m]`."""
    weights: Array
    """The weights with which the solution was trained, `[n, m]`."""
    values: Array
    """Objective values of the solution, `[n, m]`."""


@dataclass(frozen=True)
class Annealing:
    """As many generating solutions as there are weights in an iteration."""

    count: int
    """n."""
    temperature: float = 1.0
    """T of the first decision, in units of the objectives' ranges."""
    cooling: float = 0.9
    """Factor on T after each iteration."""
    alpha: float = 1.05
    """Factor α by which importances move away from those of the closest neighbour."""
    step: float | None = None
    """Standard deviation of the Gaussian step on the weights; None: λ are the weights themselves."""

    def propose(self, history: History, iteration: int, streams: Streams) -> Array:
        """Random weights first; then one move of each generating solution, after all earlier moves."""
        if iteration == 0:
            return self._chance(streams(0), history.objectives).importances
        past = history.until(self.count)
        solutions = _Generating(past.weights, past.weights, past.values)
        for earlier in range(1, iteration):
            chance = self._chance(streams(earlier), history.objectives)
            solutions = self._turned(solutions, chance, history.until(earlier * self.count))
            past = history.until((earlier + 1) * self.count)
            solutions = self._moved(solutions, chance, past, self.temperature * self.cooling ** (earlier - 1))
        chance = self._chance(streams(iteration), history.objectives)
        turned = self._turned(solutions, chance, history.until(iteration * self.count))
        if self.step is None:
            return turned.importances
        return np.stack([project_to_simplex(row) for row in turned.weights + self.step * chance.noise])

    def _chance(self, stream: np.random.Generator, objectives: int) -> _Chance:
        n = self.count
        return _Chance(
            dirichlet(n, objectives, stream), stream.standard_normal((n, objectives)), stream.uniform(size=n)
        )

    def _turned(self, solutions: _Generating, chance: _Chance, past: History) -> _Generating:
        """λ_j · α where a solution is at least as good as its closest neighbour, λ_j / α elsewhere; normalised.

        A solution that has no neighbour gets new importances at random.
        """
        scaled = solutions.values / ranges(past.values)
        rows = []
        for i, own in enumerate(scaled):
            closest = _closest(i, scaled)
            if closest is None:
                rows.append(chance.importances[i])
                continue
            turned = solutions.importances[i] * np.where(own >= scaled[closest], self.alpha, 1 / self.alpha)
            rows.append(turned / turned.sum())
        return _Generating(np.stack(rows), solutions.weights, solutions.values)

    def _moved(self, solutions: _Generating, chance: _Chance, past: History, temperature: float) -> _Generating:
        """Each solution, or the last one trained for it: with the probability min{1, exp(Σ_j λ_j d_j / T)},

        where d_j is the improvement of objective j, in units of its range. A solution with unknown values is always
        replaced.
        """
        weights, values = past.weights[-self.count :], past.values[-self.count :]
        better = (values - solutions.values) / ranges(past.values)
        gain = (solutions.importances * better).sum(axis=1)
        accepted = chance.luck < np.exp(np.minimum(gain / temperature, 0))  # False where one of both is NaN.
        accepted = (accepted | ~is_known(solutions.values)) & is_known(values)
        return _Generating(
            solutions.importances,
            np.where(accepted[:, None], weights, solutions.weights),
            np.where(accepted[:, None], values, solutions.values),
        )


def _closest(i: int, scaled: Array) -> int | None:
    """Closest of the points `[n, m]` that are better than the i-th one in something and worse in something.

    So neither dominates the other, and they are not equal; where one is not known, no comparison holds.
    """
    neighbours = np.flatnonzero((scaled > scaled[i]).any(axis=1) & (scaled < scaled[i]).any(axis=1))
    if not len(neighbours):
        return None
    distances = ((scaled[neighbours] - scaled[i]) ** 2).sum(axis=1)
    return int(neighbours[distances.argmin()])
