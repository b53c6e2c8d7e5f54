"""The engine `mission`: a spec's clients as satellites."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedpareto.clock.trips import Fleet
from fedpareto.runs.in_flight import HOUR
from fedpareto.spec.backends import Backend
from fedpareto.spec.spec import Spec
from fedpareto_space.missions.flight import MissionFlight
from fedpareto_space.missions.options import MissionOptions
from fedpareto_space.missions.power import power_of
from fedpareto_space.missions.routes import Routes, Swarm, routes_of
from fedpareto_space.missions.satellites import Satellites
from fedpareto_space.missions.sky import Left, Sky, sky_of
from fedpareto_space.missions.transfers import Radio


def launched(
    fleet: Fleet, options: MissionOptions, seconds: float, sums: bool, neighbours: np.ndarray | None = None
) -> tuple[Satellites, type[MissionFlight]]:
    """The machines on board of satellites; `sums`: whether replies may be added up on the way; `neighbours`: of a
    swarm, the pairs of them, `[pairs, 2]`.
    """
    sky = _sky(options, seconds)
    for mishap in options.mishaps_ahead:
        mishap.must_happen(sky.names, sky.stations, seconds)
    return Satellites.of(fleet, sky, _routes(sky, sums, neighbours, fleet.seed), power_of(sky)), MissionFlight


def _routes(sky: Sky, sums: bool, neighbours: np.ndarray | None, seed: int) -> Routes:
    options, left = sky.options, Left(sky)
    if options.route != "swarm":
        return routes_of(sky, left, sums, seed)
    assert neighbours is not None, "a spec refuses a swarm without one"
    return Swarm.of(sky, left.between, Radio(options.between, options.between, options.loss), neighbours)


@lru_cache(maxsize=4)
def _sky(options: MissionOptions, seconds: float) -> Sky:
    return sky_of(options, seconds)


class Mission(Backend):
    """A run whose clients are satellites. They compute in this process; orbits say when messages arrive."""

    options = MissionOptions

    def launched(self, spec: Spec, fleet: Fleet) -> tuple[Satellites, type[MissionFlight]]:
        assert isinstance(spec.engine, MissionOptions)
        graph = spec.algorithm.neighbours(spec.clients)
        sums = spec.algorithm.needs == "weighted sum"
        return launched(fleet, spec.engine, spec.hours * HOUR, sums, None if graph is None else graph.edges)
