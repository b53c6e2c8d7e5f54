"""Presence of clients: intervals of simulated time when they can be reached, once or over and over again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, eq=False)
class Presence:
    """The intervals [start, end) in which each of n clients is present, in seconds from 0 on.

    Work and transfers go on where they stopped when a client returns. Everything is asked for some rows at a time and
    answered for all of them at once.
    """

    bounds: np.ndarray
    """The intervals of row i are those from `bounds[i]` to before `bounds[i + 1]`; at least one. `[n + 1]`."""
    starts: np.ndarray
    """Starts of all intervals, one client after the other, each ascending …"""
    ends: np.ndarray
    """… and their ends; none overlaps the next. The last of a client may be infinite."""
    period: float = math.inf
    """Seconds after which all of them begin again; they are within it. Infinite: never."""

    @classmethod
    def always(cls, clients: int) -> Presence:
        """Nobody ever leaves."""
        return cls(np.arange(clients + 1), np.zeros(clients), np.full(clients, math.inf))

    @classmethod
    def of(cls, intervals: Sequence[np.ndarray], period: float = math.inf) -> Presence:
        """Make it from the intervals `[k, 2]` of each client, ascending."""
        starts, ends = np.concatenate(intervals).astype(np.float64).T
        return cls(np.cumsum([0, *(len(one) for one in intervals)]), starts, ends, period)

    @classmethod
    def cycles(cls, period: float, present: np.ndarray, phase: np.ndarray) -> Presence:
        """Cycles with presence in the first `present` (a share) of a period, `phase` seconds into one at time 0."""
        begin = np.mod(-phase, period)
        end = begin + present * period
        first = np.stack([begin, np.minimum(end, period)], axis=1)
        rest = np.stack([np.zeros_like(end), end - period], axis=1)
        # A share that runs into the next period is a second interval at the beginning of this one.
        both = zip(first[:, None], rest[:, None], end > period, present == 1, strict=True)
        whole = np.array([[0.0, period]])
        return cls.of(
            [whole if all_day else np.concatenate([two, one]) if wraps else one for one, two, wraps, all_day in both],
            period,
        )

    # -- questions -------------------------------------------------------------------------------------------------

    def following(self, rows: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The first time from `time` on at which each is present, `[k]`; infinite: never again."""
        return self._next(rows, time)[0]

    def present(self, rows: np.ndarray, time: np.ndarray | float) -> np.ndarray:
        """Mask of those present at a time, `[k]`."""
        time = np.broadcast_to(np.asarray(time, dtype=np.float64), np.shape(rows))
        here: np.ndarray = (self.following(rows, time) == time) & np.isfinite(time)
        return here

    def finish(self, rows: np.ndarray, start: np.ndarray | float, seconds: np.ndarray) -> np.ndarray:
        """Times when each is done with work that takes it so many seconds of presence from `start` on, `[k]`.

        Infinite: never. Even what takes no time waits until the client is present.
        """
        if self.is_always:
            return np.asarray(start + seconds)
        when, base, index, at = self._next(rows, np.broadcast_to(start, seconds.shape))
        with np.errstate(invalid="ignore"):  # Both are infinite for clients that are never present again.
            left = self.ends[index] - at
        done: np.ndarray = when + seconds
        later = np.flatnonzero((seconds > left) & np.isfinite(done))
        if len(later):
            rest = seconds[later] - left[later]
            done[later] = self._beyond(np.asarray(rows)[later], base[later], index[later], rest)
        return done

    @cached_property
    def is_always(self) -> bool:
        """True if nobody ever leaves."""
        return len(self.starts) == len(self.bounds) - 1 and not self.starts.any() and bool(np.isinf(self.ends).all())

    def _next(self, rows: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Find when each is present from `time` on: that time, where its period begins, its interval, and the time in
        its period.
        """
        known = np.isfinite(time)
        time = np.where(known, time, 0.0)
        inside = time if math.isinf(self.period) else np.mod(time, self.period)
        low, high = self.bounds[rows], self.bounds[np.asarray(rows) + 1]
        index = _first(self.ends, low, high, inside, beyond=True)
        over = index == high
        index = np.where(over, low, index)
        base = time - inside + np.where(over, self.period, 0.0)
        at = np.maximum(np.where(over, 0.0, inside), self.starts[index])
        # A time at which a client is present stays as it is, to the last bit.
        when = np.where(over | (at > inside), base + at, time)
        return np.where(known, when, math.inf), base, index, at

    def _beyond(self, rows: np.ndarray, base: np.ndarray, index: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Times when each is done with `seconds` of work after the end of an interval of the period from `base` on."""
        low, high = self.bounds[rows], self.bounds[rows + 1]
        length = self.ends - self.starts
        total = self._before[high - 1] + length[high - 1]
        target = self._before[index] + length[index] + seconds
        # Whole periods, but for the one in which the work ends. If there is only one, it never does.
        again = np.flatnonzero(target > total)
        if len(again):
            periods = np.maximum(np.ceil(target[again] / total[again]) - 1, 1)
            base = base.copy()
            base[again] += periods * self.period
            target[again] = np.maximum(target[again] - periods * total[again], 0.0)
        last = np.maximum(_first(self._before, low, high, target, beyond=False) - 1, low)
        done: np.ndarray = base + self.starts[last] + (target - self._before[last])
        return done

    @cached_property
    def _before(self) -> np.ndarray:
        """Seconds of presence in a period before each interval."""
        lengths = self.ends - self.starts
        parts = (lengths[low:high] for low, high in pairwise(self.bounds.tolist()))
        # A client's last interval may be infinite, and is before nothing.
        return np.concatenate([np.concatenate([[0.0], np.cumsum(one[:-1])]) for one in parts])


def _first(values: np.ndarray, low: np.ndarray, high: np.ndarray, wanted: np.ndarray, beyond: bool) -> np.ndarray:
    """Find by bisection, for each row, the first place from `low` to before `high` whose value is above `wanted`
    (`beyond`) or at least `wanted`; `high` if there is none. Values ascend between the two.
    """
    low, high = low.copy(), high.copy()
    while (is_open := low < high).any():
        middle = (low + high) // 2
        value = values[np.minimum(middle, len(values) - 1)]
        below = value <= wanted if beyond else value < wanted
        low = np.where(is_open & below, middle + 1, low)
        high = np.where(is_open & ~below, middle, high)
    return low
