"""The contacts that are left when satellites and stations fail, and while a stand-by takes over from the server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedpareto_space.missions.sky import Sights, Sky


@dataclass(frozen=True)
class Left:
    """What is left of a sky."""

    sky: Sky

    @cached_property
    def contacts(self) -> Sights:
        """Of satellites with stations and relays."""
        found = self._survivors(self.sky.contacts)
        for mishap in self.sky.options.mishaps_ahead:
            if mishap.kind == "dead":
                found = _until(found, found.stations == self.sky.stations.index(mishap.who), mishap.seconds)
            elif mishap.kind == "server":
                found = _without(found, mishap.seconds, mishap.seconds + 60 * self.sky.options.handover)
        return found

    @cached_property
    def between(self) -> Sights:
        """Of satellites with each other."""
        found = self._survivors(self.sky.between)
        turned = Sights(found.stations, found.satellites, found.starts, found.ends)
        return self._survivors(turned)

    def _survivors(self, found: Sights) -> Sights:
        """Without satellites that are lost."""
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
    """Contacts with a gap in all of them."""
    before = Sights(found.satellites, found.stations, found.starts, np.minimum(found.ends, start))
    after = Sights(found.satellites, found.stations, np.maximum(found.starts, end), found.ends)
    parts = [one.only(np.flatnonzero(one.ends > one.starts)) for one in (before, after)]
    both = Sights(*(np.concatenate([getattr(one, name) for one in parts]) for name in vars(found)))
    return both.only(np.lexsort((both.starts, both.satellites)))
