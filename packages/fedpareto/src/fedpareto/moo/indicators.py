"""Indicators of the quality of a set of solutions, as pure functions on arrays `[k, m]`.

No single one of them ranks two sets fairly; each docstring says where it misleads. Objectives are
minimised unless `maximise` says otherwise. Of an empty set, distances are inf and utilities -inf, while volumes,
counts, ranges and sparsity are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.config.errors import UserError
from fedpareto.moo._points import Array, Maximise, as_points, as_vector, senses
from fedpareto.moo.dominance import front


def hypervolume(points: ArrayLike, reference: ArrayLike, maximise: Maximise = False) -> float:
    """Volume dominated by the points `[k, m]` and bounded by the reference point `[m]`; higher is better.

    Zitzler and Thiele 1999. A point that is not better than the reference in every objective contributes nothing.
    Values under different reference points cannot be compared, and objectives with a larger range weigh more.
    """
    import moocore  # type: ignore[import-untyped,unused-ignore]

    values = as_points(points)
    if not len(values):
        return 0.0
    m = values.shape[1]
    sense = senses(maximise, m)
    corner = as_vector(reference, "reference point", m)
    return float(moocore.hypervolume(values * sense, ref=corner * sense))


def volume(reference: ArrayLike, maximise: Sequence[bool]) -> Callable[[Array], float]:
    """`hypervolume` for points that are known to be finite, with what is said of the objectives checked once."""
    import moocore

    sense = senses(maximise, len(maximise))
    corner = as_vector(reference, "reference point", len(sense)) * sense

    def measured(points: Array) -> float:
        return float(moocore.hypervolume(points * sense, ref=corner))

    return measured


def igd(points: ArrayLike, known_front: ArrayLike, maximise: Maximise = False) -> float:
    """Mean Euclidean distance from each point of the known front `[f, m]` to the nearest of the points.

    Inverted generational distance, Coello Coello and Reyes Sierra 2004; lower is better. Dominated
    points count too: a worse point that lies nearer lowers it. `igd_plus` is free of that.
    """
    import moocore  # type: ignore[import-untyped,unused-ignore]

    losses, known = _with_known_front(points, known_front, maximise)
    return float(moocore.igd(losses, ref=known)) if len(losses) else math.inf


def igd_plus(points: ArrayLike, known_front: ArrayLike, maximise: Maximise = False) -> float:
    """`igd` where only the objectives in which a point is worse than the known front count.

    IGD+, Ishibuchi et al. 2015; lower is better. It never improves when a point gets worse.
    """
    import moocore  # type: ignore[import-untyped,unused-ignore]

    losses, known = _with_known_front(points, known_front, maximise)
    return float(moocore.igd_plus(losses, ref=known)) if len(losses) else math.inf


def sparsity(points: ArrayLike, maximise: Maximise = False) -> float:
    """Mean squared gap between neighbours on the front, summed over the objectives; lower is denser.

    Xu et al. 2020 (Prediction-guided MORL): with the f non-dominated values of objective j sorted,
    sum_j sum_i (v_j[i+1] - v_j[i])^2 / (f - 1). It is 0 for a single solution, the least diverse set
    there is: read it only beside the cardinality and the spread.
    """
    best = front(points, maximise)
    if len(best) < 2:
        return 0.0
    gaps = np.diff(np.sort(best, axis=0), axis=0)
    return float((gaps**2).sum() / (len(best) - 1))


def cardinality(points: ArrayLike, maximise: Maximise = False) -> int:
    """Number of distinct non-dominated points. Noise alone can raise it: near-copies count as distinct."""
    return len(front(points, maximise))


def expected_utility(points: ArrayLike, preferences: ArrayLike, maximise: Maximise = False) -> float:
    """Mean over the preferences `[p, m]` of the best linear utility among the points; higher is better.

    Expected utility metric, Zintgraf et al. 2015. The utility of a point x under preference w is
    sum_j w_j u_j with u_j = x_j where objective j is maximised and u_j = -x_j where it is minimised,
    so for losses the value is minus the mean of the least weighted loss (at most 0 for losses >= 0).
    It misleads in three ways: only points on the convex hull of the front can raise it, the
    objective with the larger scale decides it, and it depends on the sample of preferences.
    """
    values, weights = _with_preferences(points, preferences)
    return float(_best_utilities(values, weights, maximise).mean())


def own_utilities(points: ArrayLike, preferences: ArrayLike, maximise: Maximise = False) -> Array:
    """`[n]`: the linear utility of each client's own point under its own preference; row i of both is client i's.

    This is what clients have of a run (chapter 4 of the thesis), while `expected_utility` lets every preference choose
    among the points of all. Utilities are those of `expected_utility`.
    """
    values, weights = _with_preferences(points, preferences)
    if len(values) != len(weights):
        raise UserError(f"there are {len(values)} points for {len(weights)} preferences; each client has one of both")
    return np.asarray((weights * -senses(maximise, weights.shape[1]) * values).sum(axis=1))


def maximum_utility_loss(
    points: ArrayLike, known_front: ArrayLike, preferences: ArrayLike, maximise: Maximise = False
) -> float:
    """Largest loss of linear utility, over the preferences `[p, m]`, against the known front `[f, m]`.

    Zintgraf et al. 2015; lower is better, 0 when every preference finds its optimum, negative when
    the points beat the known front under every preference. Utilities are those of `expected_utility`.
    """
    values, weights = _with_preferences(points, preferences)
    known = _as_known_front(known_front, weights.shape[1])
    best = _best_utilities(known, weights, maximise)
    return float((best - _best_utilities(values, weights, maximise)).max())


def spread(points: ArrayLike, maximise: Maximise = False) -> Array:
    """Range `[m]` (largest minus smallest value) of each objective over the non-dominated points.

    Wide is not good by itself: one bad solution at the end of the front widens it.
    """
    best = front(points, maximise)
    return np.ptp(best, axis=0) if len(best) else np.zeros(best.shape[1])


def all_indicators(
    points: ArrayLike,
    reference: ArrayLike,
    maximise: Maximise = False,
    known_front: ArrayLike | None = None,
    preferences: ArrayLike | None = None,
) -> dict[str, float]:
    """Every indicator that the arguments allow, by name; `spread_0` is the first objective's range.

    All describe the non-dominated subset of the points; this only matters for `igd`. `igd` and
    `igd_plus` need the known front, `expected_utility` needs preferences.
    """
    # An empty list has no columns to count; the reference point knows how many objectives there are.
    values = as_points(points, m=None if np.size(points) else np.size(reference))
    best = front(values, maximise)
    result = {
        "hypervolume": hypervolume(best, reference, maximise),
        "sparsity": sparsity(best, maximise),
        "cardinality": float(len(best)),
    }
    if known_front is not None:
        result["igd"] = igd(best, known_front, maximise)
        result["igd_plus"] = igd_plus(best, known_front, maximise)
    if preferences is not None:
        result["expected_utility"] = expected_utility(best, preferences, maximise)
    return result | {f"spread_{j}": float(width) for j, width in enumerate(spread(best, maximise))}


def _as_known_front(known_front: ArrayLike, m: int | None = None) -> Array:
    known = as_points(known_front, "known front", m)
    if not len(known):
        raise UserError("known front: needs at least one point")
    return known


def _with_known_front(points: ArrayLike, known_front: ArrayLike, maximise: Maximise) -> tuple[Array, Array]:
    """Both sets as losses, so that every objective is minimised."""
    known = _as_known_front(known_front)
    sense = senses(maximise, known.shape[1])
    return as_points(points, m=known.shape[1]) * sense, known * sense


def _with_preferences(points: ArrayLike, preferences: ArrayLike) -> tuple[Array, Array]:
    weights = as_points(preferences, "preferences")
    if not len(weights):
        raise UserError("preferences: needs at least one row")
    return as_points(points, m=weights.shape[1]), weights


def _best_utilities(values: Array, weights: Array, maximise: Maximise) -> Array:
    """`[p]`: for each preference the largest utility among the values."""
    utilities: Array = weights @ (-senses(maximise, weights.shape[1]) * values).T
    return np.asarray(utilities.max(axis=1, initial=-np.inf))
