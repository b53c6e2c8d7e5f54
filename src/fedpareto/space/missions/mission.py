"""From a mission's options to its satellites, ready to be asked."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedpareto.fleet.trips import Fleet
from fedpareto.space.missions.flight import MissionFlight
from fedpareto.space.missions.options import MissionOptions
from fedpareto.space.missions.power import power_of
from fedpareto.space.missions.routes import routes_of
from fedpareto.space.missions.satellites import Satellites
from fedpareto.space.missions.sky import Sights, Sky, sky_of


def launched(
    fleet: Fleet, options: MissionOptions, seconds: float, sums: bool
) -> tuple[Satellites, type[MissionFlight]]:
    """The machines on board of satellites; `sums`: whether replies may be added up on the way."""
    sky = _sky(options, seconds)
    for mishap in options.mishaps_ahead:
        mishap.must_know(sky.names, sky.stations)
    return Satellites.of(fleet, sky, routes_of(sky, left_of(sky), sums), power_of(sky)), MissionFlight


@lru_cache(maxsize=4)
def _sky(options: MissionOptions, seconds: float) -> Sky:
    """The same for all seeds."""
    return sky_of(options, seconds)


def left_of(sky: Sky) -> Sights:
    """The contacts that are left when satellites and stations fail, and while a stand-by takes over."""
    found, options = sky.contacts, sky.options
    for mishap in options.mishaps_ahead:
        starts, ends = found.starts.copy(), found.ends.copy()
        if mishap.kind == "server":
            found = _without(found, mishap.seconds, mishap.seconds + 60 * options.handover)
            continue
        if mishap.kind == "lost":
            gone = found.satellites == sky.names.index(mishap.who)
        elif mishap.kind == "dead":
            gone = found.stations == sky.stations.index(mishap.who)
        else:
            continue
        ends[gone] = np.minimum(ends[gone], mishap.seconds)
        found = Sights(found.satellites, found.stations, starts, ends).only(np.flatnonzero(ends > starts))
    return found


def _without(found: Sights, start: float, end: float) -> Sights:
    """Contacts with a gap in all of them."""
    before = Sights(found.satellites, found.stations, found.starts, np.minimum(found.ends, start))
    after = Sights(found.satellites, found.stations, np.maximum(found.starts, end), found.ends)
    parts = [one.only(np.flatnonzero(one.ends > one.starts)) for one in (before, after)]
    both = Sights(*(np.concatenate([getattr(one, name) for one in parts]) for name in vars(found)))
    return both.only(np.lexsort((both.starts, both.satellites)))
