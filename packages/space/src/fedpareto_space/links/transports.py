"""Transports of messages between nodes: one small interface, and a network in memory.

Nodes have ipn node numbers. Times are seconds that are passed in; nothing here looks at a clock.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Protocol

from fedpareto.config.errors import UserError

Contact = tuple[float, float, int, int]
"""From when to when which two nodes hear each other: (start, end, a, b), both ways."""


@dataclass(frozen=True)
class Delivery:
    """A message that has arrived, whole."""

    source: int
    data: bytes
    at: float
    """Time at which its last byte arrived."""


@dataclass
class Traffic:
    """Counts of what one node has sent and received so far."""

    messages_sent: int = 0
    messages_received: int = 0
    messages_dropped: int = 0
    """Replaced by a newer one, too old, or given up."""
    packets_sent: int = 0
    packets_received: int = 0
    packets_refused: int = 0
    """Damaged or not understood."""
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_repeated: int = 0
    """Part of `bytes_sent` that had been sent before."""

    def sends(self, size: int, *, again: bool = False) -> None:
        """Count a packet that went out, with all its headers."""
        self.packets_sent += 1
        self.bytes_sent += size
        self.bytes_repeated += size if again else 0

    def receives(self, size: int) -> None:
        self.packets_received += 1
        self.bytes_received += size


class Transport(Protocol):
    """Interface by which one node sends and receives messages."""

    @property
    def node(self) -> int:
        """The ipn node number."""

    @property
    def traffic(self) -> Traffic:
        """Bytes and packets so far."""

    def send(
        self, to: int, data: bytes, now: float, *, priority: int = 0, lifetime: float = inf, replaces: str = ""
    ) -> int:
        """Take a message for `to`, and give it a number.

        A higher priority goes first; with the same, the older. After `lifetime` seconds it is given up. One with the
        same key `replaces` to the same node takes the place of an older one of which nothing was sent yet.
        """

    def poll(self, now: float) -> list[Delivery]:
        """Let time pass to `now`, and hand out what has arrived."""

    def contact(self, peer: int, up: bool, now: float) -> None:
        """From now on `peer` can, or cannot, be reached."""

    def next(self) -> float | None:
        """Return the time at which something may happen next; None if nothing will before somebody sends."""


class Network(Protocol):
    """Simulated transports that share one clock."""

    def transport(self, node: int) -> Transport:
        """The transport of a node; always the same one."""

    def advance(self, until: float) -> float:
        """Let time pass to the next delivery, but not beyond `until`; give the time that it is then."""


@dataclass(frozen=True)
class Parcel:
    """A message on its way out."""

    number: int
    to: int
    data: bytes
    priority: int
    expires: float
    key: str


class Outbox:
    """Messages that wait for each peer: by priority, then by age; the newest wins among those with one key."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[Parcel]] = defaultdict(list)

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def put(self, parcel: Parcel) -> int:
        """Add a message; the number of older ones that it replaces."""
        waiting = self._waiting[parcel.to]
        kept = [one for one in waiting if not parcel.key or one.key != parcel.key]
        replaced = len(waiting) - len(kept)
        kept.append(parcel)
        kept.sort(key=lambda one: (-one.priority, one.number))
        self._waiting[parcel.to] = kept
        return replaced

    def expire(self, now: float) -> int:
        dropped = 0
        for peer, waiting in self._waiting.items():
            kept = [one for one in waiting if one.expires > now]
            dropped += len(waiting) - len(kept)
            self._waiting[peer] = kept
        return dropped

    def take(self, peer: int, above: float = -inf) -> Parcel | None:
        """The next message for a peer, if its priority is above a given one."""
        waiting = self._waiting[peer]
        return waiting.pop(0) if waiting and waiting[0].priority > above else None

    def next_expiry(self) -> float:
        return min((one.expires for waiting in self._waiting.values() for one in waiting), default=inf)


class SimulatedTransport:
    """One node's end of a simulated network."""

    def __init__(self, network: SimulatedNetwork, node: int) -> None:
        self.node, self.traffic = node, Traffic()
        self.outbox, self._network, self._inbox = Outbox(), network, list[Delivery]()

    def send(
        self, to: int, data: bytes, now: float, *, priority: int = 0, lifetime: float = inf, replaces: str = ""
    ) -> int:
        if to == self.node:
            raise UserError(f"node {to} cannot send to itself")
        self._network.pass_time(now)
        parcel = Parcel(self._network.number(), to, bytes(data), priority, now + lifetime, replaces)
        self.traffic.messages_dropped += self.outbox.put(parcel)
        self._network.work(self.node, to)
        return parcel.number

    def poll(self, now: float) -> list[Delivery]:
        self._network.pass_time(now)
        arrived, self._inbox = self._inbox, []
        return arrived

    def contact(self, peer: int, up: bool, now: float) -> None:
        self._network.pass_time(now)
        self._network.connect(self.node, peer, up)

    def next(self) -> float | None:
        return self._inbox[0].at if self._inbox else self._network.next_event()

    def arrived(self, delivery: Delivery) -> None:
        self._inbox.append(delivery)
        self._network.news = True


class SimulatedNetwork(ABC):
    """Nodes, who is in contact with whom, and what happens when; a subclass says how a message travels.

    Without contacts all nodes hear each other always, until `contact` says otherwise.
    """

    def __init__(self, contacts: Sequence[Contact] | None = None) -> None:
        self.now = -inf
        self.news = False
        """A message has arrived since time was last let pass."""
        self._nodes: dict[int, SimulatedTransport] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._always = contacts is None
        self._links: dict[tuple[int, int], bool] = {}
        self._plan = _merged(contacts or ())
        for (one, other), times in self._plan.items():
            for start, end in times:
                self.at(start, partial(self.connect, one, other, True))
                self.at(end, partial(self.connect, one, other, False))

    def transport(self, node: int) -> SimulatedTransport:
        if node not in self._nodes:
            self._nodes[node] = SimulatedTransport(self, node)
        return self._nodes[node]

    def number(self) -> int:
        self._count += 1
        return self._count

    def at(self, time: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, self.number(), what))

    def next_event(self) -> float | None:
        return max(self._events[0][0], self.now) if self._events else None

    def advance(self, until: float) -> float:
        while self._events and self._events[0][0] <= until and not self.news:
            self._step()
        if not self.news:
            self.now = max(self.now, until)
        self.news = False  # a node that nobody polls any more does not hold up the others
        return self.now

    def pass_time(self, now: float) -> None:
        while self._events and self._events[0][0] <= now:
            self._step()
        self.now = max(self.now, now)

    def _step(self) -> None:
        time, _, what = heapq.heappop(self._events)
        self.now = max(self.now, time)
        what()

    def connected(self, one: int, other: int) -> bool:
        return self._links.get((min(one, other), max(one, other)), self._always)

    def contact_end(self, one: int, other: int) -> float:
        times = self._plan.get((min(one, other), max(one, other)), [])
        place = bisect_right(times, (self.now, inf)) - 1
        return times[place][1] if place >= 0 and times[place][1] > self.now else inf

    def connect(self, one: int, other: int, up: bool) -> None:
        if self.connected(one, other) == up:
            return
        self._links[min(one, other), max(one, other)] = up
        ways = ((one, other), (other, one))
        for here, there in ways:
            self.contact_changed(here, there, up)
        for here, there in ways if up else ():
            self.work(here, there)

    def contact_changed(self, node: int, peer: int, up: bool) -> None:  # noqa: B027 (most have nothing else to do)
        """React to a contact's begin or end, beside sending what waits."""

    @abstractmethod
    def work(self, node: int, peer: int) -> None:
        """Send what a node has for a peer, as far as that is possible now."""


def _merged(contacts: Sequence[Contact]) -> dict[tuple[int, int], list[tuple[float, float]]]:
    plan: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for start, end, one, other in sorted(contacts):
        if not start < end or one == other:
            raise UserError(f"contact ({start}, {end}, {one}, {other}): it is (start, end, node, other node)")
        times = plan[min(one, other), max(one, other)]
        if times and start <= times[-1][1]:
            times[-1] = (times[-1][0], max(end, times[-1][1]))
        else:
            times.append((start, end))
    return dict(plan)


class MemoryNetwork(SimulatedNetwork):
    """Messages that arrive at once, or after a delay, whole and in order; they wait for a contact."""

    def __init__(self, contacts: Sequence[Contact] | None = None, delay: float = 0.0) -> None:
        super().__init__(contacts)
        self.delay = delay

    def work(self, node: int, peer: int) -> None:
        here, there = self.transport(node), self.transport(peer)
        here.traffic.messages_dropped += here.outbox.expire(self.now)
        while self.connected(node, peer) and (parcel := here.outbox.take(peer)) is not None:
            here.traffic.messages_sent += 1
            here.traffic.sends(len(parcel.data))
            there.traffic.receives(len(parcel.data))
            there.traffic.messages_received += 1
            delivery = Delivery(node, parcel.data, self.now + self.delay)
            self.at(delivery.at, partial(there.arrived, delivery))
