"""Preferences as users give them: one for all rows, or one for each; on the simplex, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpareto.config.errors import BadPreference
from fedpareto.moo.preferences import SUM_TOLERANCE, check_one


def checked(preference: Any, rows: int, objectives: int) -> np.ndarray:
    """`[1, m]` if it is one preference, `[rows, m]` if it is one for each row; else BadPreference."""
    try:
        given = np.asarray(preference, dtype=float)
    except (TypeError, ValueError, OverflowError):  # Rows of different lengths, texts, numbers too large for a float.
        return _one_by_one(preference, rows, objectives)
    if given.ndim == 1:
        return check_one(given, objectives)[None]
    if given.ndim == 2 and given.shape == (rows, objectives) and _all_good(given):
        return given
    return _one_by_one(given, rows, objectives)


def parse(text: str) -> list[float]:
    try:
        return [float(piece) for piece in text.split(",")]
    except ValueError:
        raise BadPreference(f"the preference '{text}' is not a list of numbers; write it as 0.7,0.3") from None


def _all_good(given: np.ndarray) -> bool:
    """Check many fast; the wrong one is then found one by one."""
    near = np.abs(given.sum(1) - 1) <= SUM_TOLERANCE
    return bool(np.isfinite(given).all() and (given >= 0).all() and near.all())


def _one_by_one(preference: Any, rows: int, objectives: int) -> np.ndarray:
    try:
        entries = list(preference)
    except TypeError:
        raise BadPreference("a preference is a list of numbers, one for each objective") from None
    if not any(np.ndim(np.asarray(entry, dtype=object)) for entry in entries):
        return check_one(preference, objectives)[None]
    if len(entries) != rows:
        raise BadPreference(f"there are {len(entries)} preferences for {rows} rows; give one for all, or one for each")
    return np.stack([check_one(entry, objectives, f"row {row}") for row, entry in enumerate(entries, start=1)])
