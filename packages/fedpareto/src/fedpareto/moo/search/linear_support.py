"""Optimistic linear support: Roijers, Whiteson and Oliehoek, "Computing convex coverage sets for faster multi-objective
coordination", 2015.

The best utility max_v w·v over known solutions v is a convex, piecewise linear function of the weights w. Where it has
a corner, a solution that is not known yet could improve on it most. If training finds the optimum for the weights it
is given, the corners lead to every solution that is best for some weights, and then it is known that there is no other.

Training does not always find it. A training whose solution has a lower utility under its own weights than another
known one is not trusted, nor is any as long as all solutions are the same: such weights are trained for again, a few
times. As long as one solution is better than all others in every objective, there is no corner between two; then equal
weights are tried as well. Learners that find the optimum at once need no additional training, unless one solution is
best for all weights. Weights for which training always fails are abandoned after as many tries. What this cannot
detect is a training that falls short where nothing better is known; against that, corners can be trained for more than
once before they are trusted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo._points import Array
from fedpareto.moo.dominance import front
from fedpareto.moo.search.history import History, Streams, is_known, ranges

SAME_WEIGHTS = 1e-6
"""Weights that differ by less in every objective, in units of the objectives' ranges, count as the same."""


@dataclass(frozen=True)
class LinearSupport:
    """The corners with the largest possible improvement first."""

    count: int
    """Most weights in an iteration."""
    tolerance: float = 0.001
    """Smallest possible improvement that justifies a training; in units of the objectives' weighted ranges."""
    tries: int = 5
    """Trainings for the same weights after which even a poor result is taken for the optimum."""
    confirmations: int = 1
    """Trainings for the same weights after which no better solution is expected there."""

    def propose(self, history: History, iteration: int, streams: Streams) -> Array:
        """Each objective alone first; then uncertain weights, and the corners that are not trained for yet.

        Where these are done, corners that are to be confirmed. Weights and values are compared in units of the
        objectives' ranges: in others, weights that differ much can look the same.
        """
        scale, measured = ranges(history.values), is_known(history.values)
        weights, values = _on_simplex(history.weights * scale), history.values[measured] / scale
        settled = self._settled(weights, measured, values)
        alone = np.eye(history.objectives)
        untrained = _not_among(np.vstack([weights[measured], settled]), alone)
        if len(untrained) or not len(values):
            return untrained[: self.count]
        alike, is_best_of_all = _on_simplex(scale[None]), len(front(values, maximise=True)) == 1
        doubtful = _not_among(settled, np.vstack([alike, alone]) if is_best_of_all else alone)
        corners = corner_weights(values)
        unknown = _not_among(np.vstack([settled, doubtful]), corners)
        proposed = np.vstack([doubtful, self._worth_it(unknown, settled, values)])
        if not len(proposed):
            tried = _same(corners, weights[measured]).sum(axis=1)
            proposed = self._confirming(corners[(tried > 0) & (tried < self.confirmations)], settled, values)
        return _on_simplex(proposed[: self.count] / scale)

    def _settled(self, weights: Array, measured: NDArray[np.bool_], values: Array) -> Array:
        """The weights `[s, m]` whose optimum counts as known: one training matched all others, or many did not."""
        credible = np.zeros(len(weights), dtype=bool)
        if len(np.unique(values, axis=0)) > 1:
            utilities = weights[measured] @ values.T
            credible[measured] = utilities.max(axis=1) - utilities.diagonal() <= self.tolerance
        tried = _same(weights, weights).sum(axis=1)
        return np.asarray(weights[credible | (tried >= self.tries)])

    def _worth_it(self, corners: Array, settled: Array, values: Array) -> Array:
        """Corners where something better is possible, the largest possible gain first.

        What is settled about a corner itself does not count.
        """
        alone = np.eye(values.shape[1])  # Without a bound on each objective, even in doubt, gains are infinite.
        gains = np.array(
            [largest_gain(corner, np.vstack([_not_among(corner[None], settled), alone]), values) for corner in corners]
        )
        order = np.argsort(-gains, kind="stable")
        return np.asarray(corners[order[gains[order] > self.tolerance]])

    def _confirming(self, corners: Array, settled: Array, values: Array) -> Array:
        """The corners in the order in which they are tried again: each objective alone, then where most is possible."""
        alone = np.eye(values.shape[1])
        between = self._worth_it(_not_among(alone, corners), settled, values)
        return np.vstack([corners[_same(corners, alone).any(axis=1)], between])


def _on_simplex(weights: Array) -> Array:
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def corner_weights(values: Array) -> Array:
    """The weights `[c, m]` at the corners of max_v w·v over `values` `[k, m]`, those of the simplex included.

    They are the vertices of the polyhedron of all (w, z) with z ≥ w·v for every v, w on the simplex. Ascending.
    """
    from scipy.spatial import HalfspaceIntersection

    # Neither a shift of an objective nor a common factor moves a corner, and qhull works best with numbers near 1.
    values = np.unique((values - values.min(axis=0)) / ranges(values).max(), axis=0)
    k, m = values.shape
    ceiling = values.max() + 2
    # Rows are a·(w_1 … w_{m-1}, z) + b ≤ 0, with w_m = 1 − Σ w_j.
    utilities = np.hstack([values[:, :-1] - values[:, -1:], -np.ones((k, 1)), values[:, -1:]])
    not_negative = np.hstack([-np.eye(m - 1), np.zeros((m - 1, 2))])
    last_not_negative = np.hstack([np.ones(m - 1), 0.0, -1.0])
    below_ceiling = np.hstack([np.zeros(m - 1), 1.0, -ceiling])
    halfspaces = np.vstack([utilities, not_negative, last_not_negative, below_ceiling])
    inside = np.append(np.full(m - 1, 1 / m), ceiling - 1)
    vertices = HalfspaceIntersection(halfspaces, inside).intersections
    vertices = vertices[vertices[:, -1] < ceiling - 1]
    weights = np.hstack([vertices[:, :-1], 1 - vertices[:, :-1].sum(axis=1, keepdims=True)]).clip(0, 1)
    weights = np.unique(np.round(weights / weights.sum(axis=1, keepdims=True), 12), axis=0)
    return np.asarray(weights[~np.tril(_same(weights, weights), -1).any(axis=1)])


def largest_gain(weights: Array, settled: Array, values: Array) -> float:
    """Gain by which an unknown solution could beat all `values` `[k, m]` under `weights` `[m]`.

    It cannot beat them under the weights `settled` `[s, m]`, whose optimum is known: max w·v subject to w'·v ≤ u(w').
    """
    from scipy.optimize import linprog

    bounds = (settled @ values.T).max(axis=1)
    best = linprog(-weights, A_ub=settled, b_ub=bounds, bounds=(None, None))
    return float(-best.fun - (values @ weights).max()) if best.success else 0.0


def _not_among(settled: Array, weights: Array) -> Array:
    return np.asarray(weights[~_same(weights, settled).any(axis=1)])


def _same(some: Array, others: Array) -> NDArray[np.bool_]:
    """True where a weight is the same as one of the others, `[k, l]`."""
    return np.asarray(np.abs(some[:, None] - others[None]).max(axis=2) <= SAME_WEIGHTS)
