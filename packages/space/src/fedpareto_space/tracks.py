"""The ground tracks of satellites, by which rows can be spread over clients: who is above a region has its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto_space.orbits.circular import Orbits, Shell
from fedpareto_space.orbits.earth import Array
from fedpareto_space.orbits.sights import LONGEST, ground_tracks

START = datetime(2026, 1, 1, tzinfo=UTC)
LONGEST_TRACK = LONGEST / 3600
"""Hours."""
LOOK = 30.0
"""Seconds between two looks, in which a satellite in low orbit flies over some 200 km of ground."""


@dataclass(frozen=True)
class GroundTracks:
    """Ground tracks of a Walker shell, for some hours."""

    shell: str
    altitude: float
    inclination: float
    hours: float

    def __post_init__(self) -> None:
        if not 0 < self.hours <= LONGEST_TRACK:
            raise UserError(f"track_hours is {self.hours:g}; it is above 0, and at most {LONGEST_TRACK:g}")
        _ = self.walker

    @property
    def walker(self) -> Shell:
        return Shell.parse(self.shell, self.altitude, self.inclination)

    def seen(self, clients: int, regions: int, stream: np.random.Generator) -> np.ndarray:
        """The seconds that each client is above each of some regions at random places, `[regions, clients]`."""
        shell = self.walker
        if clients != shell.satellites:
            raise UserError(
                f"partition is 'ground-track' of {shell.satellites} satellites ({self.shell}), not of {clients} "
                f"clients; take clients: {shell.satellites}, or another track_shell"
            )
        return times_above(shell.orbits(START), scattered(regions, stream), START, self.hours * 3600)


def scattered(count: int, stream: np.random.Generator) -> Array:
    """`[count, 2]`: latitude and longitude of places drawn evenly over the globe, in degrees."""
    height, around = stream.uniform(-1, 1, count), stream.uniform(-180, 180, count)
    return np.stack([np.degrees(np.arcsin(height)), around], axis=1)


def times_above(orbits: Orbits, centres: Array, start: datetime, seconds: float, step: float = LOOK) -> Array:
    """`[k, n]`: the seconds that each satellite is above the region of each of k centres `[k, 2]`, in degrees.

    A place belongs to the region of the centre that is nearest to it, so every moment counts for one region.
    """
    if not 0 < seconds <= LONGEST:
        raise UserError(f"a ground track of {seconds / 3600:g} hours; it is above 0, and at most {LONGEST / 3600:g}")
    looks = max(1, round(seconds / step))
    at = (np.arange(looks) + 0.5) * seconds / looks
    towards = _directions(*centres.T).T
    tracks = zip(*ground_tracks(orbits, start, at), strict=True)
    nearest = [(towards @ _directions(*track)).argmax(axis=0) for track in tracks]
    counts = np.stack([np.bincount(row, minlength=len(centres)) for row in nearest], axis=1)
    return np.asarray(counts * (seconds / looks), dtype=np.float64)


def _directions(latitude: Array, longitude: Array) -> Array:
    """`[3, …]`: unit vectors to places, in degrees."""
    north, east = np.radians(latitude), np.radians(longitude)
    return np.array([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])
