"""Satellites as a fleet: a task reaches one when somebody sees it, and a reply leaves it when somebody does."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from fedpareto.clock.trips import Fleet, Homeward, Outward
from fedpareto.config.errors import UserError
from fedpareto_space.missions.power import Power
from fedpareto_space.missions.routes import Routes
from fedpareto_space.missions.sky import Sky

MODELS_ON_BOARD = 2
"""Models that a satellite keeps: the one that it began from, and the one that it trains."""


@dataclass(frozen=True, eq=False)
class Satellites(Fleet):
    """Clients in orbit; row i is the i-th satellite of the sky."""

    sky: Sky
    routes: Routes
    power: Power

    @classmethod
    def of(cls, fleet: Fleet, sky: Sky, routes: Routes, power: Power) -> Satellites:
        """Machines on board of satellites; what they have of links and presence is that of the sky instead."""
        if len(fleet) != len(sky.names):
            raise UserError(
                f"clients is {len(fleet)}, but the mission has {len(sky.names)} satellites; leave it out, or take a "
                "shell of as many"
            )
        machine = {field.name: getattr(fleet, field.name) for field in fields(Fleet)}
        # Satellites of one plane are one tier.
        planes = tuple(f"plane {number + 1}" for number in range(int(sky.planes.max()) + 1))
        machine["presence"] = routes.links
        machine |= {"tier": sky.planes, "tiers": planes} if len(planes) > 1 and len(fleet.tiers) == 1 else {}
        return cls(**machine, sky=sky, routes=routes, power=power)

    def outward(
        self,
        rows: np.ndarray,
        started: np.ndarray | float,
        operations: np.ndarray | float,
        bytes_down: np.ndarray | float,
        number: np.ndarray | int = 0,
    ) -> Outward:
        moved = self.routes.outward(rows, started, _each(bytes_down, rows), _each(number, rows))
        computing = np.broadcast_to(operations / self.speed[rows], rows.shape)
        watts = self.compute_watts[rows]
        computed = self.power.finish(rows, moved.ended, computing, watts)
        joules = np.where(np.isfinite(moved.ended), moved.radio * self.radio_watts[rows], 0.0)
        joules = joules + np.where(np.isfinite(computed), computing * watts, 0.0)
        return Outward(moved.ended, computed, joules, moved.air)

    def homeward(
        self, rows: np.ndarray, computed: np.ndarray, bytes_up: np.ndarray | float, number: np.ndarray | int = 0
    ) -> Homeward:
        moved = self.routes.homeward(rows, computed, _each(bytes_up, rows), _each(number, rows))
        joules = np.where(np.isfinite(moved.ended), moved.radio * self.radio_watts[rows], 0.0)
        return Homeward(moved.ended, joules, moved.air)

    def expected(
        self, operations: np.ndarray | float, bytes_down: np.ndarray | float, bytes_up: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        down, up = (_each(size, self.clients) for size in (bytes_down, bytes_up))
        radio = self.routes.radio_seconds(down, up)
        computing = operations / self.speed
        starts, ends = np.minimum([self.presence.starts, self.presence.ends], self.sky.seconds)
        share = np.add.reduceat(ends - starts, self.presence.bounds[:-1]) / self.sky.seconds
        seconds: np.ndarray = computing + radio / np.maximum(share, 1e-9)
        return seconds, self.radio_watts * radio + self.compute_watts * computing

    def must_hold(self, needed: np.ndarray | float) -> None:
        super().must_hold(needed)
        stored = MODELS_ON_BOARD / 3 * float(np.max(needed))  # Training takes three.
        if stored > self.sky.options.storage:
            raise UserError(
                f"engine: storage is {self.sky.options.storage:g} bytes; two models take {stored:g}: give more, or "
                "take a smaller network"
            )

    def coming(self, rows: np.ndarray, time: np.ndarray) -> np.ndarray:
        return self.routes.coming(rows, time)


def _each(value: np.ndarray | float, rows: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.asarray(value), rows.shape)
