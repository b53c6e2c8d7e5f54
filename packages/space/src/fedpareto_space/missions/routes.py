"""Routes of messages to satellites and back: straight, through others of their plane, whichever way is fastest, or in a
swarm that has no server.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedpareto.clock.presence import Presence
from fedpareto.clock.trips import DOWN, UP
from fedpareto.config.errors import UserError
from fedpareto_space.missions.sky import Left, Sights, Sky, presence
from fedpareto_space.missions.transfers import Fluid, Moved, Packets, Radio, Transfers, fluid_costs
from fedpareto_space.orbits.plans import Contact, ContactPlan
from fedpareto_space.orbits.routes import Router

NEVER = np.array([[np.inf, np.inf]])


class Routes(ABC):
    """The ways of one mission."""

    @abstractmethod
    def outward(self, rows: np.ndarray, started: np.ndarray | float, sizes: np.ndarray, number: np.ndarray) -> Moved:
        """Tasks of so many bytes that the server has for these satellites at `started`."""

    @abstractmethod
    def homeward(self, rows: np.ndarray, ready: np.ndarray, sizes: np.ndarray, number: np.ndarray) -> Moved:
        """Replies of so many bytes that these satellites have at `ready`."""

    @property
    @abstractmethod
    def links(self) -> Presence:
        """Times at which each satellite talks to the ground."""

    @abstractmethod
    def radio_seconds(self, down: np.ndarray, up: np.ndarray) -> np.ndarray:
        """For how long messages of so many bytes to a satellite and from it take its radio, `[k]`."""

    def coming(self, rows: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Return the first time, from `time` on, at which each satellite can be sent something at once, `[k]`;
        infinite: never again.
        """
        return self.links.following(rows, time)


@dataclass(frozen=True)
class Direct(Routes):
    """Between satellites and the stations or relays that they see."""

    contacts: Sights
    transfers: Transfers
    radio: Radio

    @cached_property
    def links(self) -> Presence:
        return self.transfers.links

    def radio_seconds(self, down: np.ndarray, up: np.ndarray) -> np.ndarray:
        there, back = fluid_costs(self.radio, down, DOWN), fluid_costs(self.radio, up, UP)
        return np.asarray(there[0] + there[1] + back[0] + back[1])

    def outward(self, rows: np.ndarray, started: np.ndarray | float, sizes: np.ndarray, number: np.ndarray) -> Moved:
        return self.transfers.finish(rows, started, sizes, number, DOWN)

    def homeward(self, rows: np.ndarray, ready: np.ndarray, sizes: np.ndarray, number: np.ndarray) -> Moved:
        return self.transfers.finish(rows, ready, sizes, number, UP)


@dataclass(frozen=True)
class Onward(Routes):
    """Ways that go on from satellite to satellite: with the ground each of them talks as on the direct one."""

    direct: Direct

    @property
    def links(self) -> Presence:
        return self.direct.links

    def radio_seconds(self, down: np.ndarray, up: np.ndarray) -> np.ndarray:
        return self.direct.radio_seconds(down, up)


@dataclass(frozen=True)
class Planes(Onward):
    """Within a plane from neighbour to neighbour (FedISL, Razmi et al. 2022): any satellite of a plane that is in
    contact is a way to all of them.
    """

    rings: tuple[np.ndarray, ...]
    """The satellites of each plane, in order."""
    radio: Radio
    """Radio of links between satellites."""
    sums: bool
    """Replies of a plane are added up on the way; otherwise each travels for itself."""

    def outward(self, rows: np.ndarray, started: np.ndarray | float, sizes: np.ndarray, number: np.ndarray) -> Moved:
        moved = Moved(*(np.empty(len(rows)) for _ in Moved._fields))
        begun = np.broadcast_to(np.asarray(started, dtype=np.float64), rows.shape)
        for ring, places in self._by_ring(rows):
            whole = self._together(sizes[places])
            hop, air = self._hop(whole)
            further = hop * self._hops(len(ring))[:, np.searchsorted(ring, rows[places])]
            begin = np.full(len(ring), begun[places].max())
            first = self._ground(ring, begin, whole, number[places].max(), DOWN, further)
            gate = int(np.argmin(first.ended))
            moved.ended[places] = (first.ended[:, None] + further).min(axis=0)
            self._share(moved, places, np.flatnonzero(ring[gate] == rows[places]), hop, air)
            moved.radio[places] += first.radio[gate] / len(places)
            moved.air[places] += first.air[gate] / len(places)
        return moved

    def homeward(self, rows: np.ndarray, ready: np.ndarray, sizes: np.ndarray, number: np.ndarray) -> Moved:
        moved = Moved(*(np.empty(len(rows)) for _ in Moved._fields))
        for ring, places in self._by_ring(rows):
            whole = self._together(sizes[places])
            hop, air = self._hop(whole)
            hops = self._hops(len(ring))[np.searchsorted(ring, rows[places])]
            collected = (ready[places][:, None] + hops * hop).max(axis=0)
            nowhere = np.zeros((len(ring), 1))
            down = self._ground(ring, collected, whole, number[places].max(), UP, nowhere)
            sink = int(np.argmin(down.ended))
            moved.ended[places] = down.ended[sink]
            self._share(moved, places, np.flatnonzero(ring[sink] == rows[places]), hop, air)
            moved.radio[places] += down.radio[sink] / len(places)
            moved.air[places] += down.air[sink] / len(places)
        return moved

    def _together(self, sizes: np.ndarray) -> float:
        """Bytes of the messages of a plane: one for all where they are added up or the same, or all of them."""
        return float(sizes.max() if self.sums else sizes.sum())

    @staticmethod
    def _share(moved: Moved, places: np.ndarray, gate: np.ndarray, hop: float, air: float) -> None:
        """Each of a plane passes on once, or gets, what is collected or spread; but for who talks to the ground."""
        moved.radio[places], moved.air[places] = 2 * hop, air
        moved.radio[places[gate]] = moved.air[places[gate]] = 0.0

    def coming(self, rows: np.ndarray, time: np.ndarray) -> np.ndarray:
        found = np.empty(len(rows))
        for ring, places in self._by_ring(rows):
            found[places] = np.min(
                [self.direct.coming(np.full(len(places), one), time[places]) for one in ring], axis=0
            )
        return found

    def _ground(
        self, ring: np.ndarray, start: np.ndarray, size: float, number: int, way: int, further: np.ndarray
    ) -> Moved:
        """A message between the ground and each of a ring who might be the fastest way for somebody, if it takes so
        many seconds `further` from each to each of those, `[k, m]`; for the others it never ends.
        """
        transfers, sizes = self.direct.transfers, np.full(len(ring), size)
        bound = transfers.earliest(ring, start, sizes, way)
        moved = Moved(np.full(len(ring), np.inf), *np.zeros((2, len(ring))))
        best = np.full(further.shape[1], np.inf)
        for gate in np.argsort(bound, kind="stable").tolist():
            if (bound[gate] + further[gate] < best).any():
                one = slice(gate, gate + 1)
                tried = transfers.finish(ring[one], start[one], sizes[one], np.array([number]), way)
                for found, values in zip(moved, tried, strict=True):
                    found[one] = values
                best = np.minimum(best, tried.ended + further[gate])
        return moved

    def _by_ring(self, rows: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        found = [(ring, np.flatnonzero(np.isin(rows, ring))) for ring in self.rings]
        return [(ring, places) for ring, places in found if len(places)]

    def _hop(self, size: float) -> tuple[float, float]:
        sending, asking, air = fluid_costs(self.radio, np.array([size]), UP)
        return float(sending[0] + asking[0] + self.radio.delay), float(air[0])

    @staticmethod
    def _hops(count: int) -> np.ndarray:
        """From each of a ring to each, the shorter way around, `[k, k]`."""
        apart = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
        hops: np.ndarray = np.minimum(apart, count - apart)
        return hops


@dataclass(frozen=True)
class Relayed(Onward):
    """From satellite to satellite, whichever way arrives first; a message crosses a contact as a whole."""

    between: Sights
    """Times at which satellites see each other."""
    satellites: int
    ground: Radio
    rate: float
    """Bits a second between satellites."""

    @cached_property
    def _router(self) -> Router:
        """Satellites are the nodes from 1 on, and stations follow."""
        found = list[Contact]()
        ground, count = self.ground, self.satellites
        for some, first, there, back in (
            (self.direct.contacts, count + 1, ground.down, ground.up),
            (self.between, 1, self.rate, self.rate),
        ):
            columns = (some.starts, some.ends, some.satellites + 1, some.stations + first)
            for start, end, a, b in zip(*(column.tolist() for column in columns), strict=True):
                found += [Contact(start, end, a, b, there), Contact(start, end, b, a, back)]
        return Router(ContactPlan(tuple(found)))

    @cached_property
    def _stations(self) -> list[int]:
        return sorted({self.satellites + 1 + station for station in self.direct.contacts.stations.tolist()})

    def outward(self, rows: np.ndarray, started: np.ndarray | float, sizes: np.ndarray, number: np.ndarray) -> Moved:
        begun = np.broadcast_to(np.asarray(started, dtype=np.float64), rows.shape)
        sending, asking, air = fluid_costs(self.ground, sizes, DOWN)
        ended = np.full(len(rows), np.inf)
        for time, load in sorted(set(zip(begun.tolist(), air.tolist(), strict=True))):
            if not np.isfinite(time):
                continue
            reached = [self._router.arrivals(station, time, round(load)) for station in self._stations]
            for place in np.flatnonzero((begun == time) & (air == load)).tolist():
                ended[place] = min(one.get(int(rows[place]) + 1, np.inf) for one in reached)
        return Moved(ended + asking, sending, air)

    def homeward(self, rows: np.ndarray, ready: np.ndarray, sizes: np.ndarray, number: np.ndarray) -> Moved:
        sending, asking, air = fluid_costs(self.ground, sizes, UP)
        ended = np.full(len(rows), np.inf)
        for place, (row, time, load) in enumerate(zip(rows.tolist(), ready.tolist(), air.tolist(), strict=True)):
            if np.isfinite(time):
                reached = self._router.arrivals(row + 1, time, round(load))
                ended[place] = min(reached.get(station, np.inf) for station in self._stations)
        return Moved(ended + asking, sending, air)


def routes_of(sky: Sky, left: Left, sums: bool, seed: int = 0) -> Routes:
    """Make the routes of a mission; `sums`: replies may be added up on the way; from `seed` follows which frames are
    lost, where there are any.
    """
    options = sky.options
    ground = Radio(sky.rates.up, sky.rates.down, options.loss)
    links = presence(left.contacts, len(sky.names))
    transfers = Packets(links, ground, seed) if options.depth == "packets" else Fluid(links, ground)
    direct = Direct(left.contacts, transfers, ground)
    between = Radio(sky.rates.between, sky.rates.between, options.loss)
    if options.route == "relay":
        return Relayed(direct, left.between, len(sky.names), ground, sky.rates.between)
    if options.route == "plane":
        sky.must_be_rings()
        return Planes(direct, tuple(sky.rings), between, sums)
    return direct


@dataclass(frozen=True, eq=False)
class Swarm(Routes):
    """Each link has antennas of its own at both ends, so a satellite talks to all its neighbours at a time.

    A round is over for a satellite when it has the models of all its neighbours that will ever come.
    """

    satellites: int
    pairs: np.ndarray
    """Neighbours, `[m, 2]` …"""
    sights: Presence
    """… and when they see each other."""
    radio: Radio

    @classmethod
    def of(cls, sky: Sky, between: Sights, radio: Radio, pairs: np.ndarray) -> Swarm:
        """Link neighbours `[pairs, 2]`, in their order; raise UserError if two neighbours never see each other."""
        seen = np.sort(np.stack([between.satellites, between.stations]), axis=0)
        spans = np.stack([between.starts, between.ends], axis=1)
        windows = list[np.ndarray]()
        for one, other in pairs.tolist():
            rows = np.flatnonzero((seen[0] == one) & (seen[1] == other))
            windows.append(spans[rows[np.argsort(between.starts[rows])]] if len(rows) else NEVER)
            met = (sky.between.satellites == one) & (sky.between.stations == other)
            if not len(rows) and not met.any():
                raise UserError(
                    f"engine: {sky.names[one]} and {sky.names[other]} are neighbours, but never see each other; take "
                    "another graph, more satellites in a plane, or higher orbits"
                )
        return cls(len(sky.names), pairs, Presence.of(windows), radio)

    @cached_property
    def links(self) -> Presence:
        spans, bounds = np.stack([self.sights.starts, self.sights.ends], axis=1), self.sights.bounds
        own = [
            np.concatenate([NEVER, *(spans[bounds[pair] : bounds[pair + 1]] for pair in np.flatnonzero(among))])
            for among in (self.pairs == np.arange(self.satellites)[:, None, None]).any(axis=2)
        ]
        return Presence.of([_joined(some) for some in own])

    def radio_seconds(self, down: np.ndarray, up: np.ndarray) -> np.ndarray:
        sending, asking, _ = fluid_costs(self.radio, up, UP)
        return np.asarray(2 * self._degrees(np.ones(self.satellites, dtype=bool)) * (sending + asking))

    def outward(self, rows: np.ndarray, started: np.ndarray | float, sizes: np.ndarray, number: np.ndarray) -> Moved:
        ended = np.broadcast_to(np.asarray(started, dtype=np.float64), rows.shape).copy()
        return Moved(ended, np.zeros(len(rows)), np.zeros(len(rows)))

    def homeward(self, rows: np.ndarray, ready: np.ndarray, sizes: np.ndarray, number: np.ndarray) -> Moved:
        sending, asking, air = (np.empty(self.satellites) for _ in range(3))
        sending[rows], asking[rows], air[rows] = fluid_costs(self.radio, sizes, UP)
        begins, takes_part = np.full(self.satellites, np.inf), np.zeros(self.satellites, dtype=bool)
        begins[rows], takes_part[rows] = ready, True
        ended, hears = begins.copy(), np.zeros(self.satellites, dtype=bool)
        links = np.flatnonzero(takes_part[self.pairs].all(axis=1))
        for sender, receiver in (self.pairs[links].T, self.pairs[links, ::-1].T):
            seconds = sending[sender] + asking[sender] + self.radio.delay
            arrived = self.sights.finish(links, begins[sender], seconds)
            comes = np.isfinite(arrived)
            hears[receiver[comes]] = True
            np.maximum.at(ended, receiver[comes], arrived[comes])
        degrees = self._degrees(takes_part)
        ended[(degrees > 0) & ~hears] = np.inf  # It is out of sight for good.
        return Moved(ended[rows], (2 * degrees * sending)[rows], (degrees * air)[rows])

    def _degrees(self, takes_part: np.ndarray) -> np.ndarray:
        there = self.pairs[takes_part[self.pairs].all(axis=1)]
        return np.bincount(there.ravel(), minlength=self.satellites)


def _joined(spans: np.ndarray) -> np.ndarray:
    """The times that are in any of some intervals `[k, 2]`, as intervals that do not overlap."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    latest = np.maximum.accumulate(spans[:, 1])
    begins = np.append(True, spans[1:, 0] > latest[:-1])
    return np.stack([spans[begins, 0], latest[np.append(begins[1:], True)]], axis=1)
