"""Messages as bundles that relays store and forward: the profile "relay", over any transport for each hop."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import ceil, inf

from fedpareto.config.errors import UserError
from fedpareto_space.links.bundles import (
    AGE,
    DROP_IF_UNKNOWN,
    HOPS,
    PAYLOAD,
    PREVIOUS_NODE,
    Bundle,
    Endpoint,
    bundle,
    decode,
    encode,
)
from fedpareto_space.links.refusal import Refused
from fedpareto_space.links.transports import Contact, Delivery, Network, Traffic, Transport

Routes = Mapping[tuple[int, int], int]
"""(node, destination): the next hop. Who is not named is a neighbour."""

MOST_HOPS = 16
"""Hops after which a bundle is going in circles."""
LIFETIME = 365 * 86400.0
"""Seconds that a bundle lives if nobody says otherwise."""
REMEMBERED = 4096
"""Bundles that are known again if they come twice."""
KNOWN = (PAYLOAD, PREVIOUS_NODE, AGE, HOPS)


class BundleTransport:
    """One node: its own messages as bundles, and bundles of others that it passes on.

    A bundle that waits for a contact waits in the transport of its next hop, which is the node's store.
    """

    def __init__(self, hop: Transport, routes: Routes | None = None, most_hops: int = MOST_HOPS) -> None:
        self._hop, self._routes, self._most_hops = hop, routes or {}, most_hops
        self._inbox: deque[Delivery] = deque()
        self._seen: OrderedDict[tuple[Endpoint, int, int], None] = OrderedDict()
        self._sequence = 0
        self.dropped: Counter[str] = Counter()
        """Bundles that were not passed on, by reason."""

    @property
    def node(self) -> int:
        return self._hop.node

    @property
    def traffic(self) -> Traffic:
        """Traffic of all hops from and to this node; a bundle that is passed on counts on both."""
        return self._hop.traffic

    def send(
        self, to: int, data: bytes, now: float, *, priority: int = 0, lifetime: float = inf, replaces: str = ""
    ) -> int:
        """Take a message; see `Transport`. On relays no bundle replaces another."""
        if to == self.node:
            raise UserError(f"node {to} cannot send to itself")
        self._sequence += 1
        lives = ceil(1000 * min(lifetime, LIFETIME))
        created = _milliseconds(now) or 1  # 0 would say that there is no clock
        ends = Endpoint(self.node), Endpoint(to)
        made = bundle(*ends, bytes(data), created, self._sequence, lives, self._most_hops)
        key = f"{to} {replaces}" if replaces else ""
        return self._hop.send(self._next(to), encode(made), now, priority=priority, lifetime=lifetime, replaces=key)

    def _next(self, to: int) -> int:
        return self._routes.get((self.node, to), to)

    def poll(self, now: float) -> list[Delivery]:
        """Take what has arrived here, pass on what is for others, and hand out what is for this node."""
        self.pump(now)
        arrived = [*self._inbox]
        self._inbox.clear()
        return arrived

    def pump(self, now: float) -> bool:
        """Take what has arrived here, and pass on what is for others; whether something is for this node."""
        before = len(self._inbox)
        for delivery in self._hop.poll(now):
            try:
                self._take(decode(delivery.data), delivery)
            except Refused as refusal:
                self.dropped[refusal.reason] += 1
        return len(self._inbox) > before

    def _take(self, found: Bundle, delivery: Delivery) -> None:
        if found.identity in self._seen:
            raise Refused("bundle", "it has come before")
        self._seen[found.identity] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        age = max(found.age or 0, _milliseconds(delivery.at) - found.created if found.created else 0)
        if age >= found.lifetime:
            raise Refused("bundle", "too old")
        if found.destination.node == self.node:
            self._inbox.append(Delivery(found.source.node, found.payload, delivery.at))
        else:
            self._pass_on(found, age, delivery)

    def _pass_on(self, found: Bundle, age: int, delivery: Delivery) -> None:
        most, taken = found.hops or (self._most_hops, 0)
        if taken + 1 >= most:
            raise Refused("bundle", "too many hops")
        kept = tuple(block for block in found.blocks if block.kind in KNOWN or not block.flags & DROP_IF_UNKNOWN)
        passed = replace(found, blocks=kept).told(AGE, age).told(HOPS, [most, taken + 1])
        passed = passed.told(PREVIOUS_NODE, [2, [self.node, 0]])
        left = (found.lifetime - age) / 1000
        self._hop.send(self._next(found.destination.node), encode(passed), delivery.at, lifetime=left)

    def contact(self, peer: int, up: bool, now: float) -> None:
        """From now on `peer` can, or cannot, be reached in one hop."""
        self._hop.contact(peer, up, now)

    def next(self) -> float | None:
        return self._inbox[0].at if self._inbox else self._hop.next()


def _milliseconds(seconds: float) -> int:
    return max(0, round(1000 * seconds))


class BundleNetwork:
    """Bundles over a simulated network of hops, with all its relays."""

    def __init__(self, hops: Network, routes: Routes | None = None) -> None:
        self._hops, self._routes = hops, routes or {}
        self._nodes: dict[int, _Node] = {}
        self._news = False
        for node in {end for (here, there), hop in self._routes.items() for end in (here, there, hop)}:
            self.transport(node)

    def transport(self, node: int) -> BundleTransport:
        if node not in self._nodes:
            self._nodes[node] = _Node(self, self._hops.transport(node), self._routes)
        return self._nodes[node]

    def advance(self, until: float) -> float:
        while True:
            at = self._hops.advance(until)
            self._pump(at)
            if self._news or self._next() > until:
                self._news = False
                return at

    def pass_time(self, now: float) -> None:
        while (at := self._next()) <= now:
            self._pump(at)
        self._pump(now)

    def _pump(self, now: float) -> None:
        for node in [*self._nodes.values()]:
            self._news |= node.pump(now)

    def _next(self) -> float:
        return min((at for node in self._nodes.values() if (at := node.hop_next()) is not None), default=inf)


class _Node(BundleTransport):
    """A node of a network, whose relays work whenever one of them is looked at."""

    def __init__(self, network: BundleNetwork, hop: Transport, routes: Routes) -> None:
        super().__init__(hop, routes)
        self._network = network

    def hop_next(self) -> float | None:
        return self._hop.next()

    def poll(self, now: float) -> list[Delivery]:
        """Let time pass to `now` at all nodes, and hand out what is for this one."""
        self._network.pass_time(now)
        return super().poll(now)


def fewest_hops(contacts: Iterable[Contact]) -> dict[tuple[int, int], int]:
    """Routes over as few hops as possible between nodes that are ever in contact; of equals, over the lowest node."""
    neighbours: dict[int, set[int]] = {}
    for _, _, one, other in contacts:
        neighbours.setdefault(one, set()).add(other)
        neighbours.setdefault(other, set()).add(one)
    routes = {}
    for destination in neighbours:
        reached, edge = {destination}, [destination]
        while edge:
            found: dict[int, int] = {}
            for node in sorted(edge):
                for other in neighbours[node] - reached:
                    found.setdefault(other, node)
            routes.update({(here, destination): hop for here, hop in found.items()})
            reached |= found.keys()
            edge = [*found]
    return routes
