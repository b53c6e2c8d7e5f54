"""From when to when something is above zero: found on a grid of times, then refined, all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from fedpareto_space.orbits.earth import Array, Whole

Sight = Callable[[Whole, Array], Array]
"""Function of rows `[k]` and seconds `[k]` with the values `[k]`; above 0: they see each other."""

STEP = 60.0
"""Seconds between two looks. What is shorter is found by its peak."""
CLOSE = 1e-3
"""Seconds by which an edge moves at most when it counts as known …"""
MOST_STEPS = 60
"""… or after so many steps."""
NARROWINGS = 24
"""Golden sections of two steps until a peak is known, to a millisecond."""
GOLDEN = (np.sqrt(5.0) - 1) / 2


@dataclass(frozen=True, eq=False)
class Windows:
    """`[k]` each, by row, then by time."""

    rows: Whole
    starts: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.rows)


def grid(seconds: float, step: float = STEP) -> Array:
    """Times to look at: from before the first second until after the last, so that peaks beside the border are seen."""
    count = int(np.ceil(seconds / step))
    return np.arange(-1.0, count + 2.0) * step


def above(blocks: Iterable[tuple[Whole, Array]], times: Array, sight: Sight, seconds: float) -> Windows:
    """Find when each row is above 0, between 0 and `seconds`.

    A block has row numbers `[m]` and their values on the grid, `[m, t]`.
    """
    found = [_edges(rows, values, times, sight) for rows, values in blocks]
    rows, at, rises = (np.concatenate([part[k] for part in found]) for k in range(3))
    order = np.lexsort((at, rows))
    rows, at, rises = rows[order], np.clip(at[order], 0.0, seconds), rises[order]
    # Edges of a row alternate, and begin with a rise: the n-th rise and the n-th fall belong together.
    starts, ends = at[rises], at[~rises]
    real = ends > starts
    return Windows(rows[rises][real], starts[real], ends[real])


def _edges(rows: Whole, values: Array, times: Array, sight: Sight) -> tuple[Whole, Array, np.ndarray]:
    """Row, time and direction of each change; a row that is above 0 at the grid's begin or end changes there."""
    is_up = values > 0
    row, left = np.nonzero(is_up[:, 1:] != is_up[:, :-1])
    peak_row, peak_left, peak, peak_is_up = _hidden_peaks(rows, values, is_up, times, sight)
    low = np.concatenate([times[left], times[peak_left], peak])
    high = np.concatenate([times[left + 1], peak, times[peak_left + 2]])
    rises = np.concatenate([is_up[row, left + 1], peak_is_up, ~peak_is_up])
    row = np.concatenate([row, peak_row, peak_row])
    at = _crossings(rows[row], low, high, sight)
    (first,), (last,) = np.nonzero(is_up[:, 0]), np.nonzero(is_up[:, -1])
    return (
        rows[np.concatenate([row, first, last])],
        np.concatenate([at, np.full(len(first), times[0]), np.full(len(last), times[-1])]),
        np.concatenate([rises, np.ones(len(first), bool), np.zeros(len(last), bool)]),
    )


def _crossings(rows: Whole, low: Array, high: Array, sight: Sight) -> Array:
    if not len(rows):
        return low
    one, other = sight(rows, low), sight(rows, high)
    for _ in range(MOST_STEPS):
        at = (other * low - one * high) / (other - one)
        moved = np.abs(at - high).max()
        value = sight(rows, at)
        is_between = value * other < 0
        low, one = np.where(is_between, high, low), np.where(is_between, other, one / 2)
        high, other = at, value
        if moved < CLOSE:
            break
    return high


def _hidden_peaks(
    rows: Whole, values: Array, is_up: np.ndarray, times: Array, sight: Sight
) -> tuple[Whole, Whole, Array, np.ndarray]:
    """Peaks above 0 between looks below 0, and dips below 0 between looks above: row, look before, time, is a peak."""
    before, here, after = values[:, :-2], values[:, 1:-1], values[:, 2:]
    same = (is_up[:, :-2] == is_up[:, 1:-1]) & (is_up[:, 1:-1] == is_up[:, 2:])
    top = ~is_up[:, 1:-1] & (here >= before) & (here >= after)
    bottom = is_up[:, 1:-1] & (here <= before) & (here <= after)
    # A parabola through three looks rises above the middle one by at most an eighth of this.
    bend = np.abs(before - 2 * here + after)
    row, left = np.nonzero(same & (top | bottom) & (bend > np.abs(here)))
    if not len(row):
        return row, left, np.empty(0), np.empty(0, bool)
    is_peak = top[row, left]
    sign = np.where(is_peak, 1.0, -1.0)
    at = _highest(rows[row], times[left], times[left + 2], sign, sight)
    real = (sight(rows[row], at) > 0) == is_peak
    return row[real], left[real], at[real], is_peak[real]


def _highest(rows: Whole, low: Array, high: Array, sign: Array, sight: Sight) -> Array:
    for _ in range(NARROWINGS):
        width = GOLDEN * (high - low)
        one, other = high - width, low + width
        is_left = sign * sight(rows, one) > sign * sight(rows, other)
        low, high = np.where(is_left, low, one), np.where(is_left, other, high)
    return (low + high) / 2
