"""The Earth on a flat map, longitude by latitude: coastlines, circles of sight, and where satellites are above."""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np

from fedpareto.config.files import parse_json
from fedpareto.record.run_files import Array
from fedpareto_space.report.mission import Station, Tracks

RADIUS = 6371.0
"""Kilometres, mean."""
GRAVITY = 398_600.4418
"""Gravity of the Earth, in km³/s²."""
TURNING = 360 / 86_164.0905
"""Degrees by which the Earth turns in a second."""
COASTLINES = "coastlines.json"
CORNERS = 90


@cache
def coastlines() -> tuple[Array, ...]:
    """Rings of land, `[k, 2]` longitude and latitude each."""
    text = resources.files("fedpareto_space.report").joinpath(COASTLINES).read_text(encoding="utf-8")
    rings = parse_json(text, COASTLINES)["rings"]
    return tuple(np.cumsum(np.array(ring).reshape(-1, 2), axis=0) / 10 for ring in rings)


def revolution(altitude: float) -> float:
    """Seconds of a circular orbit at an altitude, by Kepler's third law."""
    return float(2 * np.pi * np.sqrt((RADIUS + altitude) ** 3 / GRAVITY))


def sight(station: Station, altitude: float) -> float:
    """Degrees of arc around a station within which a satellite is above its mask: arccos(r cos ε / (r + h)) − ε."""
    mask = np.radians(station.mask)
    return float(np.degrees(np.arccos(RADIUS / (RADIUS + altitude) * np.cos(mask)) - mask))


def circle(station: Station, arc: float) -> Array:
    """`[k, 2]`: longitude, which goes on beyond 180°, and latitude of places at so many degrees of arc."""
    azimuth = np.linspace(0, 2 * np.pi, CORNERS + 1)
    latitude, radius = np.radians(station.latitude), np.radians(arc)
    sine = np.sin(latitude) * np.cos(radius) + np.cos(latitude) * np.sin(radius) * np.cos(azimuth)
    east = np.arctan2(np.sin(azimuth) * np.sin(radius) * np.cos(latitude), np.cos(radius) - np.sin(latitude) * sine)
    longitude = station.longitude + np.degrees(np.unwrap(east))
    return np.stack([longitude, np.degrees(np.arcsin(np.clip(sine, -1, 1)))], axis=1)


def filled(line: Array) -> Array:
    """A circle `[k, 2]` as a shape on the map: one around a pole is closed by the map's edge."""
    (first, _), (last, _) = line[0], line[-1]
    if abs(last - first) < 180:
        return line
    pole = np.copysign(90.0, line[:, 1].mean())
    return np.concatenate([line, [[last, pole], [first, pole]]])


def between(tracks: Tracks, which: Array, at: Array) -> tuple[Array, Array]:
    """`[n, k]` each: latitude and longitude of some satellites at seconds `at`.

    Between two known places a satellite goes along a great circle under which the Earth turns.
    """
    times = tracks.step * np.arange(tracks.latitude.shape[1])
    latitude = np.radians(tracks.latitude[which])
    longitude = np.radians(tracks.longitude[which] + TURNING * times)
    flat = np.cos(latitude)
    place = np.stack([flat * np.cos(longitude), flat * np.sin(longitude), np.sin(latitude)])
    low = np.minimum((at / tracks.step).astype(int), len(times) - 2)
    share = at / tracks.step - low
    first, second = place[:, :, low], place[:, :, low + 1]
    angle = np.arccos(np.clip((first * second).sum(axis=0), -1, 1))
    angle = np.maximum(angle, 1e-9)  # Of a satellite that stands still.
    x, y, z = (np.sin((1 - share) * angle) * first + np.sin(share * angle) * second) / np.sin(angle)
    turned = np.degrees(np.arctan2(y, x)) - TURNING * at
    return np.degrees(np.arcsin(np.clip(z, -1, 1))), (turned + 180) % 360 - 180


def cut_at_the_edge(longitude: Array, latitude: Array) -> tuple[Array, Array]:
    """A line `[k]` with a gap where it leaves the map on one side and comes back on the other."""
    jumps = np.flatnonzero(np.abs(np.diff(longitude)) > 180) + 1
    return np.insert(longitude, jumps, np.nan), np.insert(latitude, jumps, np.nan)
