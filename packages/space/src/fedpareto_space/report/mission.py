"""A mission's folder read back: who saw whom, what travelled when, what went wrong, and what it came to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.files import read_json
from fedpareto.record.growing_file import json_lines
from fedpareto.record.reading import load
from fedpareto.record.run_files import Array, as_object, get, integers, matrix, number, printable
from fedpareto.record.run_record import Record
from fedpareto.report.costs import staleness as mean_staleness

SKY, LOG = "mission.json", "mission.jsonl"
"""In a run's folder: what is known before, and what happened."""
HOUR = 3600.0
FLOAT32 = 4
"""Bytes of a number in a model that travels as it is."""
HIGHEST = 1e6
"""Kilometres; farther out it is the Sun's orbit."""
Way = Literal["task", "reply"]
WITHOUT = "went on without it"
"""Action of a server about a reply that will not count."""


@dataclass(frozen=True)
class Station:
    """Somebody whom satellites talk to."""

    name: str
    latitude: float = float("nan")
    """NaN where only a contact plan is known."""
    longitude: float = float("nan")
    mask: float = 0.0
    """Degrees above its horizon from which on it hears a satellite."""
    relay: bool = False
    """The station is a satellite itself, above a place on the equator."""


@dataclass(frozen=True)
class Trip:
    """A task on its way to a satellite and its reply on the way back; times are in seconds, infinite for never."""

    satellite: int
    round: int
    """The version of the model that it began with."""
    left: float
    received: float
    ready: float
    arrives: float
    down: float
    """Bytes on the air for the task …"""
    up: float
    """… and for the reply."""


@dataclass(frozen=True)
class Fault:
    """A fault, and what was done about it."""

    time: float
    fault: str
    who: str
    action: str


@dataclass(frozen=True)
class Transfer:
    """A message during a contact."""

    start: float
    end: float
    satellite: int
    station: int
    way: Way


@dataclass(frozen=True, eq=False)
class Tracks:
    """Places below satellites, in degrees."""

    step: float
    """Seconds between two places."""
    latitude: Array
    """`[n, t]`."""
    longitude: Array

    @property
    def seconds(self) -> float:
        return float(self.step * (self.latitude.shape[1] - 1))


@dataclass(frozen=True)
class Summary:
    """Results of a mission; means over its seeds."""

    hours: float
    planned_hours: float
    rounds: float
    replies: float
    failures: float
    air_down: float
    """Bytes on the air for tasks that arrived at satellites …"""
    air_up: float
    """… and for replies that arrived at the server."""
    joules: float
    staleness: float
    """Rounds ago that replies began; NaN where all began in the round that they counted in."""
    measure: str
    """Measure of the result …"""
    value: float
    faults: dict[str, int]
    """Number of faults of each kind, in all seeds."""
    seeds: int


@dataclass(frozen=True, eq=False)
class Mission:
    """A run whose clients are satellites."""

    record: Record
    start: datetime
    seconds: float
    satellites: tuple[str, ...]
    planes: tuple[int, ...]
    """The number of each satellite's plane."""
    stations: tuple[Station, ...]
    contacts: Array
    """`[k, 4]`: start, end, satellite and station."""
    tracks: Tracks | None
    """None where only a contact plan is known."""
    altitude: float
    """Kilometres, of half of the satellites; NaN where it is not known."""
    trips: Mapping[int, tuple[Trip, ...]]
    faults: Mapping[int, tuple[Fault, ...]]
    parameters: int
    """Numbers in a model."""

    @property
    def seed(self) -> int:
        """The one whose contacts and transfers are shown."""
        return self.record.started[0]

    @property
    def model_bytes(self) -> int:
        return FLOAT32 * self.parameters

    def clock(self, seed: int) -> float:
        return _end(self.record, seed)

    @cached_property
    def transfers(self) -> list[Transfer]:
        of_satellite = defaultdict[int, list[Sequence[float]]](list)
        for contact in self.contacts.tolist():
            of_satellite[int(contact[2])].append(contact)
        found = list[Transfer]()
        for trip in self.trips.get(self.seed, ()):
            ways: tuple[tuple[Way, float, float], ...] = (
                ("task", trip.left, trip.received),
                ("reply", trip.ready, trip.arrives),
            )
            for way, begin, end in ways:
                if end > self.seconds:
                    continue
                for start, until, _, station in of_satellite[trip.satellite]:
                    if start < end and begin < until:
                        cut = max(start, begin), min(until, end)
                        found.append(Transfer(*cut, trip.satellite, int(station), way))
        return sorted(found, key=lambda one: (one.start, one.satellite))

    def staleness(self, seed: int) -> list[int]:
        """Count the rounds between the one in which each reply began and the one in which it counted.

        A round takes as many as it says of the replies that were there when it closed, in the order of their arrival.
        """
        lost = self._without_reply(seed)
        trips = [trip for trip in self.trips.get(seed, ()) if np.isfinite(trip.arrives) and trip not in lost]
        waiting = sorted((trip.arrives, trip.round) for trip in trips)
        found, place = list[int](), 0
        for line in self.record.of_seed(seed):
            found += [line.round + 1 - began for _, began in waiting[place : place + line.replies]]
            place += line.replies
        return found

    def _without_reply(self, seed: int) -> set[Trip]:
        """Tasks whose replies the server gave up or lost: of each satellite the last one before it said so."""
        found = set[Trip]()
        for fault in self.faults.get(seed, ()):
            if fault.action == WITHOUT and fault.who in self.satellites:
                satellite = self.satellites.index(fault.who)
                own = [one for one in self.trips.get(seed, ()) if one.satellite == satellite and one.left < fault.time]
                found |= {max(own, key=lambda one: one.left)} if own else set()
        return found

    @cached_property
    def summary(self) -> Summary:
        record, seeds = self.record, self.record.started
        single = record.objectives[0]
        value = record.mean_over_rounds(0)[:, -1] if record.single else record.indicator("hypervolume")
        ends = [record.of_seed(seed)[-1] for seed in seeds]
        air = np.array([self._air(seed) for seed in seeds])
        return Summary(
            hours=float(np.mean([self.clock(seed) for seed in seeds])) / HOUR,
            planned_hours=self.seconds / HOUR,
            rounds=float(np.mean([line.round for line in ends])),
            replies=float(record.total("replies").mean()),
            failures=float(record.total("failures").mean()),
            air_down=float(air[:, 0].mean()),
            air_up=float(air[:, 1].mean()),
            joules=float(np.mean([line.joules for line in ends])),
            staleness=float(np.mean(mean_staleness(record))),
            measure=f"mean {single.name}" if record.single else "hypervolume",
            value=float(np.mean(value)),
            faults=dict(Counter(fault.fault for seed in seeds for fault in self.faults.get(seed, ()))),
            seeds=len(seeds),
        )

    def _air(self, seed: int) -> tuple[float, float]:
        """Bytes on the air for what arrived in time, to satellites and back."""
        trips, end = self.trips.get(seed, ()), self.clock(seed)
        down = sum(trip.down for trip in trips if trip.received <= end)
        return down, sum(trip.up for trip in trips if trip.arrives <= end)


# -- reading -------------------------------------------------------------------------------------------------------


def read_mission(folder: Path) -> Mission:
    """The mission in a run's folder, also while it goes on; UserError says in one line why it cannot be shown."""
    record = load(folder)
    path = Path(folder) / SKY
    if not path.is_file():
        raise UserError(f"{folder} is no mission: it has no {SKY}; a mission is run by 'fedpareto space simulate'")
    where = str(path)
    sky = as_object(read_json(path), where)
    names = tuple(printable(name) for name in get(sky, "satellites", list, where))
    stations = tuple(_station(entry, where) for entry in get(sky, "stations", list, where))
    contacts = matrix(get(sky, "contacts", list, where), 4, f"{where}: 'contacts'")
    planes = integers(sky.get("planes"), f"{where}: 'planes'")
    seconds = number(sky.get("seconds"), f"{where}: 'seconds'")
    if not 0 < seconds < np.inf or not np.isfinite(contacts).all() or (contacts[:, 1] < contacts[:, 0]).any():
        raise DamagedFile(f"{where} is damaged: its seconds or contacts are no spans of time")
    if not _in_range(np.array(planes, dtype=np.float64), names):
        raise DamagedFile(f"{where} is damaged: there are more planes than satellites")
    if len(planes) != len(names) or not _in_range(contacts[:, 2], names) or not _in_range(contacts[:, 3], stations):
        raise DamagedFile(f"{where} is damaged: planes or contacts are of satellites or stations that are not there")
    tracks, altitude = _tracks(sky.get("tracks"), len(names), f"{where}: 'tracks'"), _altitude(sky, where)
    if tracks is not None and np.isnan(altitude):
        raise DamagedFile(f"{where} is damaged: it has tracks, but no altitude")
    trips, faults = _read_log(Path(folder) / LOG, len(names), record)
    return Mission(
        record=record,
        start=_moment(get(sky, "start", str, where), where),
        seconds=seconds,
        satellites=names,
        planes=planes,
        stations=stations,
        contacts=contacts,
        tracks=tracks,
        altitude=altitude,
        trips=trips,
        faults=faults,
        parameters=_parameters(Path(folder) / "run.json"),
    )


def _altitude(sky: dict[str, Any], where: str) -> float:
    found = number(sky.get("altitude"), f"{where}: 'altitude'")
    if not np.isnan(found) and not 0 < found < HIGHEST:
        raise DamagedFile(f"{where}: 'altitude' is {found:g}; nobody is in orbit there")
    return found


def _in_range(places: Array, of: Sequence[object]) -> bool:
    return bool(((places >= 0) & (places < len(of))).all())


def _station(entry: object, where: str) -> Station:
    data = as_object(entry, f"{where}: 'stations'")
    latitude, longitude = (number(data.get(name), f"{where}: '{name}'") for name in ("latitude", "longitude"))
    mask = number(data.get("mask", 0.0), f"{where}: 'mask'")
    if abs(latitude) > 90 or abs(longitude) > 360 or not abs(mask) <= 90 or np.isnan(latitude) != np.isnan(longitude):
        raise DamagedFile(f"{where}: a station is at {latitude:g}°, {longitude:g}° with a mask of {mask:g}°")
    return Station(printable(get(data, "name", str, where)), latitude, longitude, mask, data.get("relay") is True)


def _moment(text: str, where: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise DamagedFile(f"{where}: 'start' is {printable(text)!r}, expected a moment") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _tracks(value: object, satellites: int, where: str) -> Tracks | None:
    if value is None:
        return None
    data = as_object(value, where)
    rows = get(data, "latitude", list, where)
    columns = len(rows[0]) if rows and isinstance(rows[0], list) else 0
    latitude, longitude = (matrix(data.get(name), columns, where) / 100 for name in ("latitude", "longitude"))
    step = number(data.get("step"), where)
    if latitude.shape != (satellites, columns) or longitude.shape != latitude.shape or columns < 2:
        raise DamagedFile(f"{where}: expected two places or more of each of {satellites} satellites")
    if not (np.abs(latitude) <= 90).all() or not (np.abs(longitude) <= 360).all() or not 0 < step < np.inf:
        raise DamagedFile(f"{where} are nowhere on the Earth")
    return Tracks(step, latitude, longitude)


def _read_log(
    path: Path, satellites: int, record: Record
) -> tuple[dict[int, tuple[Trip, ...]], dict[int, tuple[Fault, ...]]]:
    """Trips and faults by seed; the end of a server's patience is known before it comes, but is no fault until then."""
    trips, faults = defaultdict[int, list[Trip]](list), defaultdict[int, list[Fault]](list)
    for data, where in json_lines(path):
        seed, what = get(data, "seed", int, where), data.get("what")
        if what == "trip":
            trips[seed].append(_trip(data, satellites, record.rounds, where))
        elif what == "fault":
            words = (printable(data.get(name, "")) for name in ("fault", "who", "action"))
            faults[seed].append(Fault(_time(data, "time", where), *words))
    over = {seed: [one for one in faults[seed] if one.time <= _end(record, seed)] for seed in record.started}
    ordered = {seed: tuple(sorted(found, key=lambda one: one.time)) for seed, found in over.items()}
    return {seed: tuple(found) for seed, found in trips.items()}, ordered


def _end(record: Record, seed: int) -> float:
    """Simulated seconds that are over: until the last round, or until the hours of the mission were."""
    last = record.of_seed(seed)[-1]
    return last.clock if np.isnan(last.over) else last.over


def _trip(data: dict[str, Any], satellites: int, rounds: int, where: str) -> Trip:
    satellite, round_ = get(data, "satellite", int, where), get(data, "round", int, where)
    if not 0 <= satellite < satellites:
        raise DamagedFile(f"{where}: there is no satellite {satellite}")
    if not 0 <= round_ <= rounds + 1:
        raise DamagedFile(f"{where}: there is no round {round_}")
    times = (_time(data, name, where) for name in ("left", "received", "ready", "arrives"))
    sizes = [number(data.get(name), f"{where}: '{name}'") for name in ("down", "up")]
    if not all(0 <= size < np.inf for size in sizes):
        raise DamagedFile(f"{where}: {sizes[0]:g} and {sizes[1]:g} are no numbers of bytes")
    return Trip(satellite, round_, *times, *sizes)


def _time(data: dict[str, Any], name: str, where: str) -> float:
    found = number(data.get(name), f"{where}: '{name}'")
    if found < 0:
        raise DamagedFile(f"{where}: '{name}' is {found:g}, before the mission began")
    return np.inf if np.isnan(found) else found


def _parameters(path: Path) -> int:
    record = as_object(read_json(path), str(path))
    layout = as_object(record.get("layout"), f"{path}: 'layout'")
    sizes = {name: int(np.prod(integers(shape, f"{path}: 'layout'"))) for name, shape in layout.items()}
    sparse = as_object(record.get("connections", {}), f"{path}: 'connections'")
    counts = integers(list(sparse.values()), f"{path}: 'connections'")
    return sum((sizes | dict(zip(sparse, counts, strict=True))).values())
