"""The border of the package: every array a caller gives is checked here once.

moocore, which does the heavy work, ignores NaN silently; so a diverged training must be caught before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.config.errors import UserError

Array = NDArray[np.float64]
Maximise = bool | Sequence[bool]


def as_points(values: ArrayLike, name: str = "points", m: int | None = None) -> Array:
    """`values` as a finite float64 array `[k, m]`; an empty list is the empty set of points."""
    points = np.asarray(values, dtype=np.float64)
    if points.ndim == 1 and points.size == 0:
        return np.zeros((0, m or 0))
    if points.ndim != 2:
        raise ValueError(f"{name}: expected an array [k, m], one row per point; got shape {points.shape}")
    if m is not None and points.shape[1] != m:
        raise UserError(f"{name}: each row has {points.shape[1]} values, expected {m} (one per objective)")
    _refuse_non_finite(points, name)
    return points


def as_vector(values: ArrayLike, name: str, m: int) -> Array:
    """`values` as a finite float64 vector `[m]`."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (m,):
        raise UserError(f"{name}: expected {m} values (one per objective), got shape {vector.shape}")
    _refuse_non_finite(vector[None], name)
    return vector


def senses(maximise: Maximise, m: int) -> Array:
    """`[m]`: -1.0 where the objective is maximised, 1.0 elsewhere; points times this are minimised."""
    flags = np.asarray(maximise)
    # bool("min") is True: anything but real booleans would be read the wrong way round.
    if flags.dtype != np.bool_ or flags.shape not in ((), (m,)):
        raise UserError(f"maximise: expected True, False or {m} of them (one per objective), got {maximise!r}")
    return np.where(np.broadcast_to(flags, (m,)), -1.0, 1.0)


def minimised(values: ArrayLike, maximise: Maximise) -> Array:
    """The points `[k, m]` turned so that every objective is minimised."""
    points = as_points(values)
    return points * senses(maximise, points.shape[1]) if len(points) else points


def _refuse_non_finite(rows: Array, name: str) -> None:
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        row, column = bad[0]
        raise UserError(f"{name}: row {row}, objective {column} is {rows[row, column]}, not a finite number")
