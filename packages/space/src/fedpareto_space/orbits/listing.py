"""What people want to know of a contact plan: its windows, and how often and how long a station hears somebody."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from fedpareto_space.orbits.plans import ContactPlan


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
        """How long it lasts."""
        return (self.end - self.start) / 60


@dataclass(frozen=True)
class Service:
    """What a node gets."""

    node: int
    peers: int
    contacts: int
    median: float
    """Minutes of a contact."""
    share: float
    """Of the time in which it hears somebody."""
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
    """What each of some nodes gets in a plan of so many seconds."""
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
