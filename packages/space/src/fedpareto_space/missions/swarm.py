"""Without a server: satellites that are neighbours in an algorithm's graph exchange models when they see each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedpareto.clock.presence import Presence
from fedpareto.clock.trips import UP
from fedpareto.config.errors import UserError
from fedpareto_space.missions.routes import Routes
from fedpareto_space.missions.sky import Sights, Sky
from fedpareto_space.missions.transfers import Moved, Radio, fluid_costs

NEVER = np.array([[np.inf, np.inf]])


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
        """Of neighbours `[pairs, 2]`, in their order; raises UserError if two neighbours never see each other."""
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
        """See Routes: when each satellite sees any of its neighbours."""
        spans, bounds = np.stack([self.sights.starts, self.sights.ends], axis=1), self.sights.bounds
        own = [
            np.concatenate([NEVER, *(spans[bounds[pair] : bounds[pair + 1]] for pair in np.flatnonzero(among))])
            for among in (self.pairs == np.arange(self.satellites)[:, None, None]).any(axis=2)
        ]
        return Presence.of([_joined(some) for some in own])

    def radio_seconds(self, down: np.ndarray, up: np.ndarray) -> np.ndarray:
        """See Routes: a model to and from each neighbour."""
        sending, asking, _ = fluid_costs(self.radio, up, UP)
        return np.asarray(2 * self._degrees(np.ones(self.satellites, dtype=bool)) * (sending + asking))

    def outward(self, rows: np.ndarray, started: np.ndarray | float, sizes: np.ndarray, number: np.ndarray) -> Moved:
        """See Routes: the model from which a satellite begins is on board."""
        ended = np.broadcast_to(np.asarray(started, dtype=np.float64), rows.shape).copy()
        return Moved(ended, np.zeros(len(rows)), np.zeros(len(rows)))

    def homeward(self, rows: np.ndarray, ready: np.ndarray, sizes: np.ndarray, number: np.ndarray) -> Moved:
        """See Routes: each sends what it has to all its neighbours, and waits for theirs."""
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
        """How many neighbours of each satellite take part with it."""
        there = self.pairs[takes_part[self.pairs].all(axis=1)]
        return np.bincount(there.ravel(), minlength=self.satellites)


def _joined(spans: np.ndarray) -> np.ndarray:
    """The times that are in any of some intervals `[k, 2]`, as intervals that do not overlap."""
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    latest = np.maximum.accumulate(spans[:, 1])
    begins = np.append(True, spans[1:, 0] > latest[:-1])
    return np.stack([spans[begins, 0], latest[np.append(begins[1:], True)]], axis=1)
