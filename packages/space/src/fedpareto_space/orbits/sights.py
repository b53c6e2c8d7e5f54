"""Sights between stations and satellites, between satellites, and of satellites in the Earth's shadow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from math import inf

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto_space.orbits.circular import Orbits
from fedpareto_space.orbits.earth import DAY, RADIUS, Array, Whole, below, days_of, dot, sun
from fedpareto_space.orbits.stations import Ground, Station
from fedpareto_space.orbits.windows import STEP, Windows, above, grid

GRAZING = 100.0
"""Kilometres above the ground that a line between satellites has to keep: in the air below it would be bent."""
LONGEST = 31 * DAY
"""Seconds that are looked at."""
MOST_PAIRS = 250_000
"""Pairs of satellites that are looked at: all of 700."""
MOST_VALUES = 2_000_000
"""Held in memory at a time."""


def over_stations(
    orbits: Orbits, stations: Sequence[Station], start: datetime, seconds: float, step: float = STEP
) -> Windows:
    times, days = _span(start, seconds, step)
    count, ground = len(orbits.names), Ground.of(stations)
    sites = np.arange(len(stations))
    places, verticals = ground.at(sites[:, None], days)

    def blocks() -> Iterator[tuple[Whole, Array]]:
        for some in _blocks(count, len(times) * max(3, len(sites))):
            satellites = orbits.positions(some, days)
            rows = (sites[:, None] * count + some).ravel()
            sines = _sine(satellites[:, None], places[:, :, None], verticals[:, :, None])
            yield rows, (sines - ground.sine_of_mask[:, None, None]).reshape(len(rows), -1)

    def sight(rows: Whole, at: Array) -> Array:
        now, site = days_of(start) + at / DAY, rows // count
        return _sine(orbits.of(rows % count, now), *ground.at(site, now)) - ground.sine_of_mask[site]

    return above(blocks(), times, sight, seconds)


def _sine(satellites: Array, places: Array, verticals: Array) -> Array:
    """Return the sine of the elevation, `[…]`."""
    beam = satellites - places
    return np.asarray(dot(beam, verticals) / np.sqrt(dot(beam, beam)))


def between_satellites(
    orbits: Orbits,
    pairs: Whole,
    start: datetime,
    seconds: float,
    grazing: float = GRAZING,
    reach: float = inf,
    step: float = STEP,
) -> Windows:
    """Find when satellites see each other past the Earth, at most `reach` km apart; a row for each pair `[m, 2]`."""
    times, days = _span(start, seconds, step)
    if not 0 <= grazing < inf or not reach > 0:
        raise UserError(f"a grazing height of {grazing} km and a reach of {reach} km; they are 0 or more, and above 0")
    if len(pairs) and not 0 <= pairs.min() <= pairs.max() < len(orbits.names):
        raise UserError(f"a pair of satellites is out of range; they are from 0 to {len(orbits.names) - 1}")
    satellites = orbits.positions(np.arange(len(orbits.names)), days)

    def blocks() -> Iterator[tuple[Whole, Array]]:
        for some in _blocks(len(pairs), len(times)):
            yield some, _clearance(satellites[:, pairs[some, 0]], satellites[:, pairs[some, 1]], grazing, reach)

    def sight(rows: Whole, at: Array) -> Array:
        now = days_of(start) + at / DAY
        return _clearance(orbits.of(pairs[rows, 0], now), orbits.of(pairs[rows, 1], now), grazing, reach)

    return above(blocks(), times, sight, seconds)


def _clearance(one: Array, other: Array, grazing: float, reach: float) -> Array:
    first, cross = dot(one, one), dot(one, other)
    distance = dot(other, other) + first - 2 * cross
    share = np.clip((first - cross) / np.maximum(distance, 1e-9), 0.0, 1.0)
    clear = first - share * (2 * (first - cross) - share * distance) - (RADIUS + grazing) ** 2
    return np.asarray(np.minimum(clear, reach**2 - distance) if reach < inf else clear)


def every_pair(count: int) -> Whole:
    """`[m, 2]`: all pairs of satellites."""
    if count * (count - 1) // 2 > MOST_PAIRS:
        raise UserError(
            f"{count} satellites are too many to look at all pairs; say which of them may talk to each other"
        )
    return np.stack(np.triu_indices(count, 1), axis=1)


def eclipses(orbits: Orbits, start: datetime, seconds: float, step: float = STEP) -> Windows:
    """Find when satellites are in the Earth's shadow, which is taken as a cylinder; a row for each.

    The Sun's disc makes the edges soft: they last some 10 s in a low orbit, and this is their middle.
    """
    times, days = _span(start, seconds, step)

    def blocks() -> Iterator[tuple[Whole, Array]]:
        for some in _blocks(len(orbits.names), 3 * len(times)):
            yield some, _darkness(orbits.positions(some, days), sun(days)[:, None])

    def sight(rows: Whole, at: Array) -> Array:
        now = days_of(start) + at / DAY
        return _darkness(orbits.of(rows, now), sun(now))

    return above(blocks(), times, sight, seconds)


def _darkness(places: Array, light: Array) -> Array:
    """Above 0 in the shadow: how much closer to its axis than the shadow's edge, in cosines."""
    squared = dot(places, places)
    axis = -dot(places, light) / np.sqrt(squared)
    return np.asarray(axis - np.sqrt(np.maximum(0.0, 1 - RADIUS**2 / squared)))


def ground_tracks(orbits: Orbits, start: datetime, at: Array) -> tuple[Array, Array]:
    """`[n, t]` each: latitude and longitude, in degrees, of the ground below all satellites at seconds `at`."""
    days = days_of(start) + at / DAY
    return below(orbits.positions(np.arange(len(orbits.names)), days), days)


def distances(orbits: Orbits, one: Whole, other: Whole, start: datetime, at: Array) -> Array:
    """`[k]`: kilometres between satellites at seconds `at`."""
    now = days_of(start) + at / DAY
    return np.asarray(np.linalg.norm(orbits.of(one, now) - orbits.of(other, now), axis=0))


def slant_ranges(
    orbits: Orbits, stations: Sequence[Station], satellite: Whole, station: Whole, start: datetime, at: Array
) -> Array:
    """`[k]`: kilometres between satellites and stations at seconds `at`."""
    now = days_of(start) + at / DAY
    return np.asarray(np.linalg.norm(orbits.of(satellite, now) - Ground.of(stations).at(station, now)[0], axis=0))


def _span(start: datetime, seconds: float, step: float) -> tuple[Array, Array]:
    if not 0 < seconds <= LONGEST:
        raise UserError(f"a plan of {seconds / 3600:g} hours; it is of more than 0, and at most {LONGEST / 3600:g}")
    if not 0 < step <= seconds:
        raise UserError(f"a look every {step:g} s; it is more than 0, and no longer than the plan of {seconds:g} s")
    times = grid(seconds, step)
    return times, days_of(start) + times / DAY


def _blocks(count: int, values: int) -> Iterator[Whole]:
    """Numbers below `count`, as many at a time as fit into memory with so many values each."""
    size = max(1, MOST_VALUES // values)
    for first in range(0, count, size):
        yield np.arange(first, min(first + size, count))
