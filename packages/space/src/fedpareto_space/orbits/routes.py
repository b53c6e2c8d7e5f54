"""Routes over a contact plan that arrive as early as possible: Dijkstra's algorithm where time is the distance.

A message is stored by each node until its next contact, and crosses a contact as a whole. Earliest arrival is the rule
of contact graph routing (CCSDS 734.3-B-1); queues of other messages are not foreseen.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from fedpareto.config.errors import UserError
from fedpareto_space.orbits.plans import Contact, ContactPlan, Range, in_order


@dataclass(frozen=True)
class Hop:
    """A message on one contact."""

    contact: Contact
    leaves: float
    """Time at which its first bit is sent."""
    arrives: float
    """Time at which its last bit is there."""


class Router:
    """Finds routes over one plan."""

    def __init__(self, plan: ContactPlan) -> None:
        ranges: dict[tuple[int, int], list[Range]] = defaultdict(list)
        for one in plan.ranges:
            ranges[min(one.a, one.b), max(one.a, one.b)].append(one)
        self._from: dict[int, dict[int, list[tuple[Contact, float]]]] = defaultdict(lambda: defaultdict(list))
        for contact in in_order(plan.contacts):
            known = ranges.get((min(contact.a, contact.b), max(contact.a, contact.b)), ())
            self._from[contact.a][contact.b].append((contact, _delay(contact, known)))
        self._ends = {
            (a, b): list(accumulate((contact.end for contact, _ in some), max))
            for a, peers in self._from.items()
            for b, some in peers.items()
        }

    def route(self, source: int, target: int, now: float = 0.0, size: int = 0) -> tuple[Hop, ...] | None:
        """The hops of a message of `size` bytes that arrives first; None if the plan has no way, () if it is there."""
        hops = self._search(source, target, now, size)
        if source != target and target not in hops:
            return None
        found = list[Hop]()
        while target != source:
            found.append(hops[target])
            target = hops[target].contact.a
        return tuple(reversed(found))

    def arrivals(self, source: int, now: float = 0.0, size: int = 0) -> dict[int, float]:
        return {source: now, **{node: hop.arrives for node, hop in self._search(source, None, now, size).items()}}

    def _search(self, source: int, target: int | None, now: float, size: int) -> dict[int, Hop]:
        if size < 0:
            raise UserError(f"a message of {size} bytes; it has 0 or more")
        hops, done = dict[int, Hop](), set[int]()
        waiting = [(now, source)]
        while waiting:
            time, node = heapq.heappop(waiting)
            if node in done:
                continue
            done.add(node)
            if node == target:
                break
            for peer in self._from.get(node, ()):
                hop = None if peer in done else self._first(node, peer, time, size)
                if hop is not None and (peer not in hops or hop.arrives < hops[peer].arrives):
                    hops[peer] = hop
                    heapq.heappush(waiting, (hop.arrives, peer))
        return hops

    def _first(self, node: int, peer: int, time: float, size: int) -> Hop | None:
        """The contact by which a message arrives first: it may be a later one that is faster."""
        best: Hop | None = None
        for contact, delay in self._from[node][peer][bisect_right(self._ends[node, peer], time) :]:
            if best is not None and contact.start >= best.arrives:
                break
            leaves = max(time, contact.start)
            sent = leaves + 8 * size / contact.rate
            if leaves < contact.end and sent <= contact.end and (best is None or sent + delay < best.arrives):
                best = Hop(contact, leaves, sent + delay)
        return best


def _delay(contact: Contact, known: Sequence[Range]) -> float:
    """Seconds that a signal travels during a contact; 0 where the plan does not say."""
    return next((one.seconds for one in known if one.start < contact.end and contact.start < one.end), 0.0)
