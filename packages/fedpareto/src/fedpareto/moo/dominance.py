"""Pareto dominance: comparisons, the front, and the layers behind it.

Points are arrays `[k, m]`, one row per solution. Objectives are minimised unless `maximise` says
otherwise, for all of them (`True`) or one by one (`[True, False]`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.moo._points import Array, Maximise, as_points, as_vector, minimised, senses


def dominates(a: ArrayLike, b: ArrayLike, maximise: Maximise = False) -> bool:
    """True if `a` `[m]` is nowhere worse than `b` `[m]` and somewhere better."""
    m = np.asarray(a).size
    difference = (as_vector(a, "a", m) - as_vector(b, "b", m)) * senses(maximise, m)
    return bool((difference <= 0).all() and (difference < 0).any())


def is_nondominated(
    points: ArrayLike, maximise: Maximise = False, *, keep_duplicates: bool = False
) -> NDArray[np.bool_]:
    """Mask `[k]` of the points `[k, m]` that no other point dominates.

    Of exact duplicates only the first counts, so the mask's sum is the cardinality; with
    `keep_duplicates` all of them do.
    """
    import moocore  # type: ignore[import-untyped,unused-ignore]

    losses = minimised(points, maximise)
    if not len(losses):
        return np.zeros(0, dtype=np.bool_)
    return np.asarray(moocore.is_nondominated(losses, keep_weakly=keep_duplicates), dtype=np.bool_)


def front(points: ArrayLike, maximise: Maximise = False) -> Array:
    """The distinct non-dominated points `[f, m]`, ascending by the first objective.

    Ties go by the next objective, so the result does not depend on the order of the input.
    """
    values = as_points(points)
    best = values[is_nondominated(values, maximise)]
    return best[np.lexsort(best.T[::-1])] if len(best) else best


def ranks(points: ArrayLike, maximise: Maximise = False) -> NDArray[np.int64]:
    """Rank `[k]` of each point `[k, m]`: 1 on the front, 2 on the front once rank 1 is removed, and so on.

    This is non-dominated sorting (Deb et al. 2002, NSGA-II); duplicates share their rank.
    """
    import moocore  # type: ignore[import-untyped,unused-ignore]

    losses = minimised(points, maximise)
    if not len(losses):
        return np.zeros(0, dtype=np.int64)
    return np.asarray(moocore.pareto_rank(losses), dtype=np.int64) + 1


def rank_k_front(points: ArrayLike, k: int, maximise: Maximise = False) -> Array:
    """All points `[k', m]` of rank at most `k`, in the order given; duplicates stay."""
    if k < 1:
        raise ValueError(f"k: ranks start at 1, got {k}")
    values = as_points(points)
    return values[ranks(values, maximise) <= k]
