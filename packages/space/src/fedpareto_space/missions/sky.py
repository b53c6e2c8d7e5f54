"""Windows of time in which satellites, stations and relays see each other during a mission, and talk."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.clock.presence import Presence
from fedpareto.config.errors import UserError
from fedpareto_space.missions.options import MissionOptions
from fedpareto_space.orbits import ion
from fedpareto_space.orbits.circular import Orbits
from fedpareto_space.orbits.earth import RADIUS, Array, Whole, sidereal_angle
from fedpareto_space.orbits.plans import ContactPlan, Rates, must_see, satellites_of, windows
from fedpareto_space.orbits.sights import (
    GRAZING,
    between_satellites,
    eclipses,
    every_pair,
    ground_tracks,
    over_stations,
)
from fedpareto_space.orbits.stations import Station
from fedpareto_space.orbits.tle import read_tle
from fedpareto_space.orbits.windows import Windows

GEOSTATIONARY = 42_164.17
"""Kilometres from the Earth's centre."""
TRACK_STEP = 300.0
"""Seconds between two places of a track: a twentieth of a low orbit, between which a page goes along the circle."""
TRACK_POINTS = 40_000
"""Places of all satellites together that a page draws; of many satellites these are the first hours."""


@dataclass(frozen=True, eq=False)
class Sights:
    """Satellites and the stations or relays that they talk to, `[k]` each, by satellite and time."""

    satellites: Whole
    stations: Whole
    starts: Array
    ends: Array

    def __len__(self) -> int:
        return len(self.starts)

    def only(self, rows: np.ndarray) -> Sights:
        return Sights(self.satellites[rows], self.stations[rows], self.starts[rows], self.ends[rows])


@dataclass(frozen=True, eq=False)
class Sky:
    """A mission's satellites and what they see."""

    names: tuple[str, ...]
    stations: tuple[str, ...]
    """Stations, then relays."""
    planes: Whole
    """The number of each satellite's plane; all in one where orbits are not known."""
    seconds: float
    contacts: Sights
    """With whom each satellite talks: with one at a time."""
    options: MissionOptions
    orbits: Orbits | None = None
    """None: there is only a contact plan."""
    given: ContactPlan | None = None

    @cached_property
    def shadows(self) -> Windows:
        assert self.orbits is not None, "options refuse power without orbits"
        return eclipses(self.orbits, self.options.begins, self.seconds)

    @cached_property
    def rates(self) -> Rates:
        """Bits a second; a plan that was given has its own."""
        usual = Rates(self.options.down, self.options.up, self.options.between)
        return usual if self.given is None else _rates(self.given, usual, self.options.plan)

    @cached_property
    def between(self) -> Sights:
        if self.given is not None:
            return _between(self.given, self.seconds)
        assert self.orbits is not None, "without a plan there are orbits"
        pairs = every_pair(len(self.names))
        met = between_satellites(self.orbits, pairs, self.options.begins, self.seconds)
        one, other = pairs[met.rows].T
        return Sights(one, other, met.starts, met.ends)

    @cached_property
    def rings(self) -> list[np.ndarray]:
        """The satellites of each plane, in the order in which they follow each other."""
        return [np.flatnonzero(self.planes == plane) for plane in range(int(self.planes.max()) + 1)]

    def must_be_rings(self) -> None:
        """Raises UserError if satellites that follow each other in a plane do not always see each other."""
        assert self.orbits is not None, "options refuse planes without orbits"
        pairs = np.array([pair for ring in self.rings for pair in _neighbours(ring)], dtype=np.int64).reshape(-1, 2)
        if not len(pairs):
            raise UserError("engine: route takes at least two satellites in a plane; take fewer planes")
        seen = between_satellites(self.orbits, pairs, self.options.begins, self.seconds)
        always = np.bincount(seen.rows, seen.ends - seen.starts, len(pairs)) >= self.seconds - 1
        if always.all():
            return
        one, other = pairs[np.flatnonzero(~always)[0]]
        height = float(self.orbits.extent()[1][one])
        # The line between neighbours comes as close to the Earth's centre as r·cos(π/k).
        needed = int(np.ceil(np.pi / np.arccos((RADIUS + GRAZING) / height)))
        raise UserError(
            f"engine: route is {self.options.route}, but {self.names[one]} and {self.names[other]} do not see each "
            f"other all the time; from {needed} satellites in a plane on they would, or in higher orbits"
        )

    def about(self, talk: Sights) -> dict[str, Any]:
        """Return what a mission's page draws: satellites, stations, contacts `talk`, shadows and tracks, in plain
        values.

        Contacts are [start, end, satellite, station]; places are in hundredths of a degree, the altitude,
        that of half of the satellites, in kilometres.
        """
        options = self.options
        columns = (talk.starts.round(1), talk.ends.round(1), talk.satellites, talk.stations)
        found: dict[str, Any] = {
            "start": options.begins.isoformat(),
            "seconds": self.seconds,
            "satellites": list(self.names),
            "planes": self.planes.tolist(),
            "stations": [*map(_place, () if options.plan else options.sites), *map(_above, options.relays)],
            "contacts": [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)],
        }
        if options.plan:
            found["stations"] = [{"name": name} for name in self.stations]
        if self.orbits is not None:
            places = (np.rint(100 * one).astype(int).tolist() for one in self.tracks())
            found["tracks"] = {"step": TRACK_STEP, **dict(zip(("latitude", "longitude"), places, strict=True))}
            found["altitude"] = round(float(np.median(self.orbits.extent()[1])) - RADIUS, 1)
            dark = self.shadows
            found["shadows"] = [
                list(row)
                for row in zip(
                    dark.starts.round(1).tolist(), dark.ends.round(1).tolist(), dark.rows.tolist(), strict=True
                )
            ]
        return found

    def tracks(self) -> tuple[Array, Array]:
        """Latitudes and longitudes `[n, t]` of the ground below, in degrees, every `TRACK_STEP` seconds."""
        assert self.orbits is not None, "only orbits have tracks"
        most = max(TRACK_POINTS // len(self.names), 2)
        at = TRACK_STEP * np.arange(min(int(np.ceil(self.seconds / TRACK_STEP)) + 1, most), dtype=np.float64)
        return ground_tracks(self.orbits, self.options.begins, at)


def sky_of(options: MissionOptions, seconds: float) -> Sky:
    if options.plan:
        return _from_plan(options, seconds)
    orbits: Orbits
    if options.tle:
        orbits = read_tle(Path(options.tle))
        planes = np.zeros(len(orbits.names), dtype=np.int64)
    else:
        orbits = options.walker.orbits(options.begins)
        planes = np.arange(len(orbits.names)) // (options.walker.satellites // options.walker.planes)
    seen = _sights(orbits, options, seconds)
    names = (*(one.name for one in options.sites), *(f"relay-{longitude:g}" for longitude in options.relays))
    served = talking(seen, options.antennas)
    return Sky(orbits.names, names, planes, seconds, served, options, orbits)


def _sights(orbits: Orbits, options: MissionOptions, seconds: float) -> Sights:
    count, parts = len(orbits.names), list[Sights]()
    if options.sites:
        seen = over_stations(orbits, options.sites, options.begins, seconds)
        must_see(orbits, options.sites, seen.rows // count, seconds)
        parts.append(Sights(seen.rows % count, seen.rows // count, seen.starts, seen.ends))
    if options.relays:
        joined = _WithRelays(orbits, options.relays)
        pairs = np.array([(low, count + high) for high in range(len(options.relays)) for low in range(count)])
        met = between_satellites(joined, pairs, options.begins, seconds)
        low, high = pairs[met.rows].T
        parts.append(Sights(low, high - count + len(options.sites), met.starts, met.ends))
    if not parts:
        nobody = np.empty(0, dtype=np.int64)
        return Sights(nobody, nobody, np.empty(0), np.empty(0))
    return Sights(*(np.concatenate([getattr(one, name) for one in parts]) for name in vars(parts[0])))


def talking(seen: Sights, antennas: int) -> Sights:
    """Choose who talks to whom: a satellite to one at a time, a station to as many as it has antennas (0: to all).

    Who came first is served first, until it sets.
    """
    free_at: dict[int, list[float]] = defaultdict(lambda: [0.0] * antennas)
    busy_until: dict[int, float] = defaultdict(float)
    found = list[tuple[int, int, float, float]]()
    order = np.lexsort((seen.satellites, seen.stations, seen.starts))
    columns = (seen.satellites, seen.stations, seen.starts, seen.ends)
    for satellite, station, start, end in zip(*(column[order].tolist() for column in columns), strict=True):
        begin = max(start, busy_until[satellite])
        if antennas:
            begin = max(begin, free_at[station][0])
        if begin >= end:
            continue
        busy_until[satellite] = end
        if antennas:
            heapq.heapreplace(free_at[station], end)
        found.append((satellite, station, begin, end))
    return _table(sorted(found, key=lambda one: (one[0], one[2])))


def presence(contacts: Sights, satellites: int) -> Presence:
    never = np.zeros((1, 2))
    bounds = np.searchsorted(contacts.satellites, np.arange(satellites + 1))
    spans = np.stack([contacts.starts, contacts.ends], axis=1)
    return Presence.of([spans[low:high] if high > low else never for low, high in pairwise(bounds.tolist())])


def _place(site: Station) -> dict[str, Any]:
    return {"name": site.name, "latitude": site.latitude, "longitude": site.longitude, "mask": site.mask}


def _above(longitude: float) -> dict[str, Any]:
    return {"name": f"relay-{longitude:g}", "latitude": 0.0, "longitude": longitude, "relay": True}


# -- relays --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _WithRelays:
    """Satellites, and after them others in geostationary orbit at some longitudes."""

    low: Orbits
    longitudes: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.low.names, *(f"relay-{longitude:g}" for longitude in self.longitudes))

    def positions(self, which: Whole, days: Array) -> Array:
        is_low = which < len(self.low.names)
        found = np.empty((3, len(which), len(days)))
        if is_low.any():
            found[:, is_low] = self.low.positions(which[is_low], days)
        found[:, ~is_low] = self._high(which[~is_low, None], days)
        return found

    def of(self, which: Whole, days: Array) -> Array:
        is_low = which < len(self.low.names)
        found = np.empty((3, len(which)))
        if is_low.any():
            found[:, is_low] = self.low.of(which[is_low], days[is_low])
        found[:, ~is_low] = self._high(which[~is_low], days[~is_low])
        return found

    def extent(self) -> tuple[Array, Array]:
        north, radius = self.low.extent()
        extra = len(self.longitudes)
        return np.append(north, np.zeros(extra)), np.append(radius, np.full(extra, GEOSTATIONARY))

    def _high(self, which: Whole, days: Array) -> Array:
        longitude = np.radians(np.array(self.longitudes))[which - len(self.low.names)]
        angle = longitude + sidereal_angle(days)
        return GEOSTATIONARY * np.array([np.cos(angle), np.sin(angle), np.zeros_like(angle)])


# -- plans that were given -----------------------------------------------------------------------------------------


def _from_plan(options: MissionOptions, seconds: float) -> Sky:
    given = ion.read(Path(options.plan))
    flying = satellites_of(given)
    ground = sorted({node for one in windows(given) for node in (one.a, one.b)} - set(flying))
    if not ground:
        raise UserError(f"engine: in {options.plan} every node is a satellite; a station's number is above all others'")
    number = {node: place for place, node in enumerate(flying)} | {node: place for place, node in enumerate(ground)}
    rows = [
        (number[one.a], number[one.b], one.start, min(one.end, seconds))
        for one in windows(given)
        if one.a in flying and one.b in ground and one.start < seconds
    ]
    seen = _table(rows)
    named = tuple(given.name(node) for node in flying), tuple(given.name(node) for node in ground)
    planes = np.zeros(len(flying), dtype=np.int64)
    return Sky(*named, planes, seconds, talking(seen, options.antennas), options, given=given)


def _rates(given: ContactPlan, usual: Rates, file: str) -> Rates:
    flying = set(satellites_of(given))
    kinds = {"between": (True, True), "down": (True, False), "up": (False, True)}
    found = dict[str, float]()
    for name, (sends, hears) in kinds.items():
        rates = {one.rate for one in given.contacts if (one.a in flying, one.b in flying) == (sends, hears)}
        if len(rates) > 1:
            raise UserError(
                f"engine: in {file} contacts have {len(rates)} different rates of the kind {name}; a mission has one"
            )
        found[name] = rates.pop() if rates else getattr(usual, name)
    return Rates(**found)


def _between(given: ContactPlan, seconds: float) -> Sights:
    number = {node: place for place, node in enumerate(satellites_of(given))}
    rows = [
        (number[one.a], number[one.b], one.start, min(one.end, seconds))
        for one in windows(given)
        if one.a in number and one.b in number and one.start < seconds
    ]
    return _table(rows)


def _table(rows: Sequence[tuple[int, int, float, float]]) -> Sights:
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return Sights(columns[0].astype(np.int64), columns[1].astype(np.int64), columns[2], columns[3])


def _neighbours(ring: np.ndarray) -> Sequence[tuple[int, int]]:
    if len(ring) < 2:
        return []
    order = ring.tolist()
    around = [*pairwise(order)]
    return around if len(ring) == 2 else [*around, (order[0], order[-1])]


@dataclass(frozen=True)
class Left:
    """Contacts of a sky that are left by its mishaps."""

    sky: Sky

    @cached_property
    def contacts(self) -> Sights:
        found = self._survivors(self.sky.contacts)
        for mishap in self.sky.options.mishaps_ahead:
            if mishap.kind == "dead":
                found = _until(found, found.stations == self.sky.stations.index(mishap.who), mishap.seconds)
            elif mishap.kind == "server":
                found = _without(found, mishap.seconds, mishap.seconds + 60 * self.sky.options.handover)
        return found

    @cached_property
    def between(self) -> Sights:
        found = self._survivors(self.sky.between)
        turned = Sights(found.stations, found.satellites, found.starts, found.ends)
        return self._survivors(turned)

    def _survivors(self, found: Sights) -> Sights:
        for mishap in self.sky.options.mishaps_ahead:
            if mishap.kind == "lost":
                found = _until(found, found.satellites == self.sky.names.index(mishap.who), mishap.seconds)
        return found


def _until(found: Sights, which: np.ndarray, end: float) -> Sights:
    """Some contacts end at a time at the latest."""
    ends = np.where(which, np.minimum(found.ends, end), found.ends)
    left = Sights(found.satellites, found.stations, found.starts, ends)
    return left.only(np.flatnonzero(ends > found.starts))


def _without(found: Sights, start: float, end: float) -> Sights:
    before = Sights(found.satellites, found.stations, found.starts, np.minimum(found.ends, start))
    after = Sights(found.satellites, found.stations, np.maximum(found.starts, end), found.ends)
    parts = [one.only(np.flatnonzero(one.ends > one.starts)) for one in (before, after)]
    both = Sights(*(np.concatenate([getattr(one, name) for one in parts]) for name in vars(found)))
    return both.only(np.lexsort((both.starts, both.satellites)))
