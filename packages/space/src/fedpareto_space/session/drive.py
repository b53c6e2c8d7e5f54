"""A session over any network, in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedpareto.spec.spec import Spec
from fedpareto_space.links.transports import Contact, MemoryNetwork, Network
from fedpareto_space.session import events as happened
from fedpareto_space.session.agreement import (
    FIRST_CLIENT,
    beginning_as,
    capabilities,
    client_half,
    enough_of,
    known_rule,
    server_half,
    terms_of,
)
from fedpareto_space.session.client import ClientMachine
from fedpareto_space.session.events import Ask, Exchange
from fedpareto_space.session.host import ClientHost, Host, Note, PeerHost, ServerHost
from fedpareto_space.session.learning import ServerHalf
from fedpareto_space.session.mishaps import Mishap, extensions_of
from fedpareto_space.session.peer import PeerMachine
from fedpareto_space.session.server import ServerMachine
from fedpareto_space.session.voice import digest
from fedpareto_space.wire import rows
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.negotiation import Capabilities
from fedpareto_space.wire.terms import Alternatives, Terms
from fedpareto_space.wire.vocabulary import FaultKind, Role

SESSION = bytes(range(8))
"""Session of simulations, which have one; a real server draws it."""
HORIZON = 30 * 24 * 3600.0
"""Simulated seconds after which a session that has not ended is left alone."""

Mishaps = Mapping[int, Sequence[Mishap]]


@dataclass
class Plan:
    """Public knowledge about a session before it begins."""

    spec: Spec
    terms: Terms
    """Terms that the server would like best."""
    offers: Alternatives | None = None
    """All that it would do; nothing: only that."""
    session: bytes = SESSION

    @classmethod
    def of(cls, spec: Spec, terms: Terms | None = None) -> Plan:
        return cls(spec, terms or terms_of(spec))

    @property
    def nodes(self) -> dict[int, int]:
        return {client: FIRST_CLIENT + client for client in range(self.spec.clients)}

    def linked(self, client: int) -> tuple[int, ...] | None:
        """The nodes of a client's neighbours, where the algorithm has a graph of them."""
        graph = self.spec.algorithm.neighbours(self.spec.clients)
        return None if graph is None else tuple(self.nodes[other] for other in graph.beside(client).tolist())

    @property
    def servers(self) -> list[int]:
        """The server's node, then the stand-bys'."""
        return [one.node for one in self.terms.servers]

    def server_machine(self, node: int, half: ServerHalf) -> ServerMachine:
        return ServerMachine(
            node,
            self.session,
            self.terms,
            self.offers or Alternatives.of(self.terms),
            self.nodes,
            half.refusal,
            half.shapes,
            enough=enough_of(self.terms, half),
            late=not self.spec.algorithm.waits,
            standby=node != self.servers[0],
        )

    def client_machine(self, client: int, abilities: Capabilities | None = None) -> ClientMachine:
        node = self.nodes[client]
        found = abilities or capabilities(node, Role.CLIENT, beginning_as(self.spec))
        return ClientMachine(node, client, found, slices=self.spec.problem.layout.slices, rule=known_rule)


@dataclass
class Finished:
    """The end of a session."""

    seconds: float
    """Simulated."""
    models: dict[int, np.ndarray]
    digest: bytes | None
    """SHA-256 of what the server sent all clients at the end, by client."""
    log: list[Note]
    reasons: dict[int, str]
    """Why each node left; empty if it did not."""

    def faults(self) -> list[tuple[str, str]]:
        known = {spelled(kind) for kind in FaultKind}
        return [(note.what, note.action) for note in self.log if note.what in known]


@dataclass
class Simulation:
    """Nodes on a network that share a simulated clock."""

    plan: Plan
    network: Network = field(default_factory=MemoryNetwork)
    contacts: Sequence[Contact] = ()
    """Contacts of nodes, if they do not hear each other always."""
    seconds: Callable[[Ask], float] = lambda ask: 1.0
    """Seconds that a client trains."""
    mishaps: Mishaps = field(default_factory=dict)
    abilities: Mapping[int, Capabilities] = field(default_factory=dict)
    """Abilities by client, where they are not all that this package can do."""
    on_exchange: Callable[[Exchange, float], None] = lambda exchange, now: None
    horizon: float = HORIZON

    def __post_init__(self) -> None:
        self.result: Exchange | None = None
        make = self._client if self.plan.servers else self._peer
        self.servers = [self._server(node) for node in self.plan.servers]
        self.clients = [make(client) for client in self.plan.nodes]

    def _server(self, node: int) -> ServerHost:
        half = server_half(self.plan.spec, self.plan.terms)
        machine = self.plan.server_machine(node, half)
        mishaps = list(self.mishaps.get(node, ()))
        machine.extensions = extensions_of(mishaps)
        transport = self.network.transport(node)
        return ServerHost(transport, mishaps=mishaps, machine=machine, teacher=half, on_exchange=self._exchange)

    def _exchange(self, exchange: Exchange, now: float) -> None:
        if exchange.over:
            self.result = exchange
        self.on_exchange(exchange, now)

    def _peer(self, client: int) -> ClientHost | PeerHost:
        plan, node = self.plan, self.plan.nodes[client]
        half = server_half(plan.spec, plan.terms)
        abilities = self.abilities.get(client) or capabilities(node, Role.PEER, beginning_as(plan.spec))
        given = (node, client, plan.session, plan.terms, plan.nodes, abilities, half.refusal, half.shapes)
        return PeerHost(
            self.network.transport(node),
            machine=PeerMachine(*given, rule=known_rule, linked=plan.linked(client)),
            pupil=client_half(plan.spec, client, plan.terms),
            teacher=half,
            seconds=self.seconds,
            on_exchange=self._exchange,
        )

    def _client(self, client: int) -> ClientHost | PeerHost:
        node, spec = self.plan.nodes[client], self.plan.spec
        return ClientHost(
            self.network.transport(node),
            mishaps=list(self.mishaps.get(node, ())),
            make_machine=lambda: self.plan.client_machine(client, self.abilities.get(client)),
            make_pupil=lambda terms: client_half(spec, client, terms),
            seconds=self.seconds,
        )

    @property
    def hosts(self) -> list[Host]:
        return [*self.servers, *self.clients]

    def run(self) -> Finished:
        """Until everybody has left, or nothing more will happen."""
        now, begins = 0.0, sorted((start, one, other) for start, _, one, other in self.contacts)
        for host in self.hosts:
            host.happen(happened.Started(), now)
            if not self.contacts:
                for other in self.hosts:
                    host.happen(happened.ContactBegan(other.node), now)
        while any(host.active for host in self.hosts) and now < self.horizon:
            while begins and begins[0][0] <= now:
                self._meet(*begins.pop(0))
            if any([host.tick(now) for host in self.hosts]):  # noqa: C419 (every one of them is to be done)
                continue
            until = min([self.horizon, *(host.next() for host in self.hosts), *(begin[0] for begin in begins[:1])])
            if until == self.horizon and all(host.transport.next() is None for host in self.hosts):
                break
            now = max(now, self.network.advance(until))
        return self._finished(now)

    def _meet(self, at: float, one: int, other: int) -> None:
        for host in self.hosts:
            if host.node in (one, other):
                peer = other if host.node == one else one
                host.happen(happened.ContactBegan(peer), at)

    def _finished(self, now: float) -> Finished:
        log = sorted((note for host in self.hosts for note in host.log), key=lambda note: note.at)
        found = None if self.result is None else result_digest(self.result)
        models = {host.machine.client: host.model for host in self.clients if host.model is not None}
        return Finished(now, models, found, log, {host.node: host.reason for host in self.hosts})


def result_digest(exchange: Exchange) -> bytes:
    asks = sorted(exchange.asks, key=lambda ask: ask.client)
    return digest({f"{ask.client:09d} {name}": array for ask in asks for name, array in ask.tensors.items()})


def routes_of(topology: object, server: int, clients: Sequence[int]) -> dict[tuple[int, int], int]:
    """For bundles: the next hop from a node to another, where they do not talk directly.

    Along a ring every node passes on to the next. In a hierarchy with l levels clients are split into groups, and those
    below talk to the server by the first of their group, and so on upwards.
    """
    if isinstance(topology, rows.Ring):
        circle = [server, *sorted(clients)]
        hops = dict(zip(circle, [*circle[1:], circle[0]], strict=True))
        return {(here, there): hops[here] for here in circle for there in circle if here != there}
    if isinstance(topology, rows.Hierarchical):
        return _tree(server, sorted(clients), topology.levels)
    return {}


def _tree(head: int, below: Sequence[int], levels: int) -> dict[tuple[int, int], int]:
    if levels < 2 or not below:
        return {}
    size = max(2, round(len(below) ** ((levels - 1) / levels)))
    found: dict[tuple[int, int], int] = {}
    for start in range(0, len(below), size):
        first, *others = below[start : start + size]
        for node in others:
            found |= {(head, node): first, (node, head): first}
        inner = _tree(first, others, levels - 1)
        found |= inner
        found |= {(node, head): hop for (node, there), hop in inner.items() if there == first}
    return found
