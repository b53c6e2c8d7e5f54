"""From a mission's options to its satellites, ready to be asked."""

from __future__ import annotations

from functools import lru_cache

from fedpareto.fleet.trips import Fleet
from fedpareto.space.missions.flight import MissionFlight
from fedpareto.space.missions.losses import Left
from fedpareto.space.missions.options import MissionOptions
from fedpareto.space.missions.power import power_of
from fedpareto.space.missions.routes import routes_of
from fedpareto.space.missions.satellites import Satellites
from fedpareto.space.missions.sky import Sky, sky_of


def launched(
    fleet: Fleet, options: MissionOptions, seconds: float, sums: bool
) -> tuple[Satellites, type[MissionFlight]]:
    """The machines on board of satellites; `sums`: whether replies may be added up on the way."""
    sky = _sky(options, seconds)
    for mishap in options.mishaps_ahead:
        mishap.must_know(sky.names, sky.stations)
    routes = routes_of(sky, Left(sky), sums, fleet.seed)
    return Satellites.of(fleet, sky, routes, power_of(sky)), MissionFlight


@lru_cache(maxsize=4)
def _sky(options: MissionOptions, seconds: float) -> Sky:
    """The same for all seeds."""
    return sky_of(options, seconds)
