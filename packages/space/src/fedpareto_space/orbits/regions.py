"""Regions of the Earth, and how long satellites are above each of them."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto_space.orbits.circular import Orbits
from fedpareto_space.orbits.earth import Array
from fedpareto_space.orbits.sights import LONGEST, ground_tracks

LOOK = 30.0
"""Seconds between two looks, in which a satellite in low orbit flies over some 200 km of ground."""


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
