"""Removing solutions that should not count, before a front is drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.config.errors import UserError
from fedpareto.moo._points import Maximise, as_points
from fedpareto.moo.dominance import ranks


def is_converged(points: ArrayLike, fairness: Sequence[bool], epsilon: float = 1e-3) -> NDArray[np.bool_]:
    """Mask `[k]` of the points `[k, m]` that are not too fair to be true (thesis, A.3.5).

    A model that makes the same decision for everyone, as an untrained one does, is perfectly fair by every notion; a
    useful one hardly ever is. `fairness` `[m]` says which objectives are fairness values (1 is perfect); a point is
    left out if all of them exceed 1 − ε. For one such objective this is the thesis's rule; one of several may be
    perfect by chance.

    It only looks at fairness: an accurate model on data without any bias would be left out too.
    """
    values = as_points(points)
    which = np.asarray(fairness, dtype=bool)
    if len(values) and which.shape != (values.shape[1],):
        raise UserError(f"fairness: expected {values.shape[1]} of True or False (one per objective), got {len(which)}")
    if not len(values) or not which.any():
        return np.ones(len(values), dtype=np.bool_)
    return np.asarray(~(values[:, which] > 1 - epsilon).all(axis=1), dtype=np.bool_)


def counted(
    points: ArrayLike, maximise: Maximise = False, rank: int = 1, fairness: Sequence[bool] | None = None
) -> NDArray[np.bool_]:
    """Mask `[k]` of the points `[k, m]` whose front is the one of this rank; the others are outliers, or not finite.

    The front of rank 1 is the Pareto front; that of rank k is the front of what is left without those of lower ranks
    (Deb et al. 2002), which the thesis proposes against noise (A.3.5). With `fairness`, points that did not converge
    are left out before: see `is_converged`.
    """
    if rank < 1:
        raise UserError(f"rank is {rank}; the front itself has rank 1")
    values = np.asarray(points, dtype=np.float64)
    mask = np.asarray(np.isfinite(values).all(axis=1))
    if fairness is not None:
        mask[mask] = is_converged(values[mask], fairness)
    if rank > 1:
        mask[mask] = ranks(values[mask], maximise) >= rank
    return mask
