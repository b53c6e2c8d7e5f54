"""Times at which satellites have the power to compute: in sunlight, and as long as the battery lasts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from fedpareto.clock.presence import Presence
from fedpareto_space.missions.sky import Sky
from fedpareto_space.orbits.windows import Windows

WATT_HOUR = 3600.0
"""In joules."""
ENOUGH = 0.1
"""Share of its battery with which a satellite that paused goes on, if the panels alone do not give enough: without it,
it would stop again at once.
"""
SINCE, LEVEL, SECONDS, WATTS = range(4)


class Pause(NamedTuple):
    """From when to when somebody waited for power."""

    start: float
    end: float


class Power(ABC):
    """The power of all satellites. A satellite is at one piece of work at a time: a new one takes the place of what it
    was at.
    """

    book: np.ndarray
    """Last work of each satellite: since when, the joules in its battery then, and how many seconds and watts it takes,
    `[n, 4]`. All else follows from these.
    """

    def finish(self, rows: np.ndarray, start: np.ndarray, seconds: np.ndarray, watts: np.ndarray) -> np.ndarray:
        """Return the times at which each would be done with work that takes it so long and so much power, from `start`
        on, `[k]`; infinite: never.
        """
        return self._done(rows, self._noted(rows, start, seconds, watts))

    def begin(self, rows: np.ndarray, start: np.ndarray, seconds: np.ndarray, watts: np.ndarray) -> None:
        """Each does begin it, unless `start` is never."""
        real = np.isfinite(start)
        self.book[rows[real]] = self._noted(rows, start, seconds, watts)[real]

    def _noted(self, rows: np.ndarray, start: np.ndarray, seconds: np.ndarray, watts: np.ndarray) -> np.ndarray:
        """The lines of the book for such work, `[k, 4]`; nobody begins before what it was last at began."""
        begin = np.maximum(start, self.book[rows, SINCE])
        level = np.array([self.level(*one) for one in zip(rows.tolist(), begin.tolist(), strict=True)])
        return np.stack(np.broadcast_arrays(begin, level, seconds, watts), axis=1)

    @abstractmethod
    def _done(self, rows: np.ndarray, lines: np.ndarray) -> np.ndarray:
        """Return the times at which these satellites are done with such lines of the book, `[k]`."""

    @abstractmethod
    def level(self, row: int, time: float) -> float:
        """Joules in a satellite's battery at a time, not before its last work began."""

    @abstractmethod
    def pauses(self, row: int, until: float = inf) -> list[Pause]:
        """Return the times in which a satellite waits for power during its last work, as far as they begin before
        `until`.
        """


# -- without a battery ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sunlight(Power):
    """Satellites compute while the Sun shines on them, or always."""

    light: Presence
    book: np.ndarray

    @classmethod
    def of(cls, light: Presence) -> Sunlight:
        return cls(light, np.zeros((len(light.bounds) - 1, 4)))

    def _done(self, rows: np.ndarray, lines: np.ndarray) -> np.ndarray:
        return self.light.finish(rows, lines[:, SINCE], lines[:, SECONDS])

    def level(self, row: int, time: float) -> float:
        return 0.0

    def pauses(self, row: int, until: float = inf) -> list[Pause]:
        start, done = self.book[row, SINCE], self._done(np.array([row]), self.book[row : row + 1])[0]
        dark = (Pause(max(float(start), begin), end) for begin, end, shines in spells(self.light, row) if not shines)
        return [one for one in dark if one.start < min(done, until) and one.end > start]


# -- with one ------------------------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A time in which nothing changes of the sunlight and of what a satellite does."""

    start: float
    end: float
    level: float
    """Joules in the battery at its start …"""
    slope: float
    """… and how many watts these rise by."""
    works: bool
    waits: bool
    """There is work, but no power for it."""


@dataclass(frozen=True, eq=False)
class Battery(Power):
    """Panels feed the satellite and its battery, up to its capacity; work takes from both. With an empty battery and
    too little from the panels a satellite pauses. It goes on when the panels alone give enough, or when there is some
    charge again.
    """

    light: Presence
    capacity: float
    """Joules."""
    solar: float
    """Watts in sunlight …"""
    idle: float
    """… and those that are taken always. Where there is nothing for these, the battery stays empty."""
    book: np.ndarray

    @classmethod
    def full(cls, light: Presence, capacity: float, solar: float, idle: float) -> Battery:
        """All batteries are full, and nobody is at anything yet."""
        return cls(light, capacity, solar, idle, np.tile([0.0, capacity, 0.0, 0.0], (len(light.bounds) - 1, 1)))

    def _done(self, rows: np.ndarray, lines: np.ndarray) -> np.ndarray:
        return np.array([self._end(row, line) for row, line in zip(rows.tolist(), lines.tolist(), strict=True)])

    def _end(self, row: int, line: list[float]) -> float:
        if not isfinite(line[SINCE]):
            return inf
        return next((piece.start for piece in self.course(row, line) if not (piece.works or piece.waits)), inf)

    def level(self, row: int, time: float) -> float:
        if not isfinite(time):
            return 0.0
        now = next(piece for piece in self.course(row, self.book[row].tolist()) if time < piece.end)
        return self._held(now.level + now.slope * (time - now.start))

    def pauses(self, row: int, until: float = inf) -> list[Pause]:
        found = list[Pause]()
        for piece in self.course(row, self.book[row].tolist()):
            if not (piece.works or piece.waits) or piece.start >= until:
                break
            if piece.waits and found and found[-1].end == piece.start:
                found[-1] = Pause(found[-1].start, piece.end)
            elif piece.waits:
                found.append(Pause(piece.start, piece.end))
        return found

    def course(self, row: int, line: list[float]) -> Iterator[Piece]:
        time, level, left, watts = line
        waits = False
        for _, end, shines in spells(self.light, row):
            gain = self.solar * shines - self.idle
            while time < end:
                waits = left > 0 and gain < watts and (level < ENOUGH * self.capacity if waits else level <= 0)
                works = left > 0 and not waits
                slope = gain - watts * works
                slope = 0.0 if (slope > 0 and level >= self.capacity) or (slope < 0 and level <= 0) else slope
                # Whatever comes first ends the piece: the spell, the work, or a level at which something changes.
                aim = self._next_level(level, slope, waits)
                reached = time + (aim - level) / slope if slope else inf
                worked = time + left if works else inf
                stop = min(end, worked, reached)
                yield Piece(time, stop, level, slope, works, waits)
                if stop == inf:
                    return
                level = aim if stop == reached else self._held(level + slope * (stop - time))
                left = 0.0 if stop == worked else left - (stop - time) * works
                time = stop

    def _held(self, level: float) -> float:
        """Without what arithmetic adds in the last digit."""
        return min(max(level, 0.0), self.capacity)

    def _next_level(self, level: float, slope: float, waits: bool) -> float:
        if slope < 0:
            return 0.0
        enough = ENOUGH * self.capacity
        return enough if waits and level < enough else self.capacity


def spells(light: Presence, row: int) -> Iterator[tuple[float, float, bool]]:
    time, low, high = 0.0, light.bounds[row], light.bounds[row + 1]
    for start, end in zip(light.starts[low:high].tolist(), light.ends[low:high].tolist(), strict=True):
        if start > time:
            yield time, start, False
        yield start, end, True
        time = end
    if time < inf:
        yield time, inf, False


def power_of(sky: Sky) -> Power:
    options = sky.options
    if not options.solar_watts:
        return Sunlight.of(Presence.always(len(sky.names)))
    light = sunlit(sky.shadows, len(sky.names), sky.seconds)
    if not options.battery:
        return Sunlight.of(light)
    return Battery.full(light, options.battery * WATT_HOUR, options.solar_watts, options.idle_watts)


def sunlit(shadows: Windows, satellites: int, seconds: float) -> Presence:
    bounds = np.searchsorted(shadows.rows, np.arange(satellites + 1))
    parts = list[np.ndarray]()
    for low, high in pairwise(bounds.tolist()):
        edges = np.concatenate(
            [[0.0], np.stack([shadows.starts[low:high], shadows.ends[low:high]], 1).ravel(), [np.inf]]
        )
        spans = edges.reshape(-1, 2)
        parts.append(spans[spans[:, 1] > spans[:, 0]])
    return Presence.of(parts)
