"""Contact plans: who can send to whom, from when to when, how fast and how far; and who is in contact how often."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil, floor, inf
from typing import Annotated, TypeVar

import numpy as np

from fedpareto.config.bounds import Above, Bounded
from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.orbits.circular import Orbits
from fedpareto_space.orbits.earth import LIGHT, RADIUS, Array, Whole
from fedpareto_space.orbits.sights import (
    GRAZING,
    between_satellites,
    distances,
    over_stations,
    slant_ranges,
)
from fedpareto_space.orbits.stations import Station
from fedpareto_space.orbits.windows import Windows

RATE = 9600.0
"""Bits a second, unless said otherwise."""
Rate = Annotated[float, Above(0, what="in bits a second,")]


@dataclass(frozen=True, slots=True)
class Contact:
    """Node `a` can send to node `b`; that `b` can send to `a` is another contact."""

    start: float
    """Seconds."""
    end: float
    a: int
    b: int
    rate: float = RATE
    """Bits a second."""

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end < inf or self.a == self.b or min(self.a, self.b) < 0:
            raise UserError(
                f"contact from {self.start} to {self.end} of {self.a} and {self.b}: it is of two nodes, and ends later"
            )
        if not 0 < self.rate < inf:
            raise UserError(
                f"a contact of {self.a} and {self.b} has a rate of {self.rate}; it is in bits a second, above 0"
            )


@dataclass(frozen=True, slots=True)
class Range:
    """Seconds that a signal travels between two nodes, both ways alike."""

    start: float
    end: float
    a: int
    b: int
    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end < inf or self.a == self.b or not 0 <= self.seconds < inf:
            raise UserError(
                f"range from {self.start} to {self.end} of {self.a} and {self.b} has {self.seconds} light seconds"
            )


Timed = TypeVar("Timed", Contact, Range)


@dataclass(frozen=True)
class ContactPlan:
    """Contacts in order of time, ranges, and the nodes' names."""

    contacts: tuple[Contact, ...]
    ranges: tuple[Range, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)

    def name(self, node: int) -> str:
        return self.names.get(node, str(node))

    def number(self, name: str) -> int:
        known = {called: node for node, called in self.names.items()}
        nodes = {str(node) for contact in self.contacts for node in (contact.a, contact.b)}
        if name not in known and name not in nodes:
            raise UnknownName("node", name, known or nodes)
        return known[name] if name in known else int(name)

    def both_ways(self) -> list[tuple[float, float, int, int]]:
        one_way: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
        for contact in self.contacts:
            one_way[contact.a, contact.b].append((contact.start, contact.end))
        found = [
            (*times, a, b)
            for (a, b), there in one_way.items()
            if a < b
            for times in _common(there, one_way.get((b, a), []))
        ]
        return sorted(found)

    def whole(self) -> ContactPlan:
        """In whole seconds, which is all that ION reads: contacts begin later and end earlier by a part of one.

        Those that nothing is left of go. Signals travel for whole seconds as well, which is 0 near the Earth.
        """
        contacts = [
            Contact(*_inner(one.start, one.end), one.a, one.b, one.rate) for one in self.contacts if _lasts(one)
        ]
        ranges = [
            Range(*_inner(one.start, one.end), one.a, one.b, float(round(one.seconds)))
            for one in self.ranges
            if _lasts(one)
        ]
        return ContactPlan(tuple(contacts), tuple(ranges), self.names)


def in_order(all_of_them: Iterable[Timed]) -> tuple[Timed, ...]:
    return tuple(sorted(all_of_them, key=lambda one: (one.start, one.end, one.a, one.b)))


def _inner(start: float, end: float) -> tuple[float, float]:
    return float(ceil(start)), float(floor(end))


def _lasts(one: Contact | Range) -> bool:
    start, end = _inner(one.start, one.end)
    return start < end


def _common(one: list[tuple[float, float]], other: list[tuple[float, float]]) -> Iterable[tuple[float, float]]:
    mine, theirs = sorted(one), sorted(other)
    here = there = 0
    while here < len(mine) and there < len(theirs):
        start, end = max(mine[here][0], theirs[there][0]), min(mine[here][1], theirs[there][1])
        if start < end:
            yield start, end
        if mine[here][1] <= theirs[there][1]:
            here += 1
        else:
            there += 1


@dataclass(frozen=True)
class Rates(Bounded):
    """Bits a second."""

    down: Rate = RATE
    """From satellites to stations."""
    up: Rate = RATE
    """From stations to satellites."""
    between: Rate = RATE
    """From satellites to satellites."""


DEFAULT_RATES = Rates()


def plan(
    orbits: Orbits,
    stations: Sequence[Station],
    start: datetime,
    seconds: float,
    rates: Rates = DEFAULT_RATES,
    pairs: Whole | None = None,
    grazing: float = GRAZING,
    reach: float = inf,
) -> ContactPlan:
    """The contacts of satellites with stations, and of those `pairs` of satellites `[m, 2]` that may talk (none).

    Satellites are the nodes 1 to n in their order, and stations the next. A station that sees nobody is refused.
    """
    count = len(orbits.names)
    seen = over_stations(orbits, stations, start, seconds)
    site, satellite = seen.rows // count, seen.rows % count
    must_see(orbits, stations, site, seconds)
    far = slant_ranges(orbits, stations, satellite, site, start, (seen.starts + seen.ends) / 2)
    found = _contacts(seen, satellite + 1, site + count + 1, rates.down, rates.up)
    ranges = _ranges(seen, satellite + 1, site + count + 1, far)
    if pairs is not None and len(pairs):
        met = between_satellites(orbits, pairs, start, seconds, grazing, reach)
        one, other = pairs[met.rows].T
        far = distances(orbits, one, other, start, (met.starts + met.ends) / 2)
        found += _contacts(met, one + 1, other + 1, rates.between, rates.between)
        ranges += _ranges(met, one + 1, other + 1, far)
    names = dict(enumerate((*orbits.names, *(one.name for one in stations)), start=1))
    return ContactPlan(in_order(found), in_order(ranges), names)


def _contacts(windows: Windows, a: Whole, b: Whole, there: float, back: float) -> list[Contact]:
    each = list(zip(windows.starts.tolist(), windows.ends.tolist(), a.tolist(), b.tolist(), strict=True))
    return [Contact(*one, there) for one in each] + [Contact(t, u, d, c, back) for t, u, c, d in each]


def _ranges(windows: Windows, a: Whole, b: Whole, far: Array) -> list[Range]:
    columns = (windows.starts, windows.ends, a, b, far / LIGHT)
    return [Range(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def must_see(orbits: Orbits, stations: Sequence[Station], seeing: Whole, seconds: float) -> None:
    """Refuse a station that is not among those `seeing` somebody, with the reason."""
    for number, one in enumerate(stations):
        if number in seeing:
            continue
        highest = _latitudes(orbits, one)
        if abs(one.latitude) > highest.max():
            bend = highest[highest.argmax()] - orbits.extent()[0][highest.argmax()]
            raise UserError(
                f"station '{one.name}' never sees a satellite: it is at {_degrees(one.latitude)}, and with a mask of "
                f"{one.mask:g}° these orbits are seen up to {highest.max():.1f}°; an inclination from "
                f"{ceil(abs(one.latitude) - bend)}° on would do, such as 97.5°"
            )
        raise UserError(f"station '{one.name}' sees no satellite within {seconds / 3600:g} h; plan for longer")


def _latitudes(orbits: Orbits, one: Station) -> Array:
    """`[n]`: up to which latitude, in degrees, each satellite is seen under a station's mask."""
    north, radius = orbits.extent()
    mask = np.radians(one.mask)
    bend = np.arccos(np.clip(RADIUS / radius * np.cos(mask), -1, 1)) - mask
    return np.asarray(north + np.degrees(bend))


def _degrees(latitude: float) -> str:
    return f"{abs(latitude):g}° {'north' if latitude >= 0 else 'south'}"


@dataclass(frozen=True)
class Window:
    """From when to when two nodes are in contact, at least one way."""

    start: float
    end: float
    a: int
    b: int
    """The larger number; where orbits were planned, the station if there is one."""

    @property
    def minutes(self) -> float:
        return (self.end - self.start) / 60


@dataclass(frozen=True)
class Service:
    """Contacts of a node, summed up."""

    node: int
    peers: int
    contacts: int
    median: float
    """Minutes of a contact."""
    share: float
    """Share of the time in which it hears somebody."""
    longest_wait: float
    """Minutes without anybody, at the beginning, between two contacts or at the end."""


def windows(plan: ContactPlan) -> list[Window]:
    """Both ways of a contact as one, in order of time."""
    found = {(one.start, one.end, min(one.a, one.b), max(one.a, one.b)) for one in plan.contacts}
    return [Window(*one) for one in sorted(found)]


def ends(found: list[Window]) -> list[int]:
    """Nodes that are never the first of two: stations, where orbits were planned."""
    return sorted({one.b for one in found} - {one.a for one in found})


def services(found: list[Window], nodes: list[int], seconds: float) -> list[Service]:
    of = defaultdict[int, list[Window]](list)
    for one in found:
        of[one.a].append(one)
        of[one.b].append(one)
    return [_service(node, of[node], seconds) for node in nodes]


def _service(node: int, found: list[Window], seconds: float) -> Service:
    waits, heard_until = [0.0], 0.0
    for one in sorted(found, key=lambda window: window.start):
        waits.append(max(0.0, one.start - heard_until))
        heard_until = max(heard_until, one.end)
    waits.append(max(0.0, seconds - heard_until))
    median = float(np.median([one.minutes for one in found])) if found else 0.0
    peers = len({one.a + one.b - node for one in found})
    return Service(node, peers, len(found), median, 1 - sum(waits) / seconds, max(waits) / 60)


def satellites_of(given: ContactPlan) -> list[int]:
    """The nodes of a plan that are no stations: those that are the first of two at least once."""
    found = windows(given)
    return sorted({one.a for one in found} | {one.b for one in found} - set(ends(found)))
