"""A node of a session without a server: every node trains, hands its update to its neighbours, and aggregates itself.

All nodes hold the same updates of a round, since each passes on what it has not seen before, and aggregate them by the
same rule in the same order: their models are equal without anybody who says so.

Where the rule itself has a graph of neighbours (see algorithms.distributed), nothing is passed on: a node speaks with
its neighbours only, from the agreement on, and aggregates what these sent it into a model of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedpareto.codecs import Codec
from fedpareto_space.session import events as happened
from fedpareto_space.session.client_state import WAIT
from fedpareto_space.session.events import (
    Adopt,
    Aggregate,
    Answer,
    Ask,
    Effect,
    Event,
    Exchange,
    Leave,
    Send,
    SetTimer,
    Told,
    Train,
)
from fedpareto_space.session.server import lanes_of
from fedpareto_space.session.server_state import Refuse, Shapes
from fedpareto_space.session.voice import Coder, Voice, bases, digest, must_be, opened, shapes_of, submission
from fedpareto_space.wire import messages, rows
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.negotiation import Capabilities, CheckRule, any_rule, confirm, negotiate
from fedpareto_space.wire.refusals import ProtocolError
from fedpareto_space.wire.rows import Action
from fedpareto_space.wire.terms import Alternatives, Terms
from fedpareto_space.wire.vocabulary import FaultKind, Role

Key = tuple[int, int, int]
"""A client, a version and a lane."""


def neighbours_of(node: int, nodes: Sequence[int], count: int) -> tuple[int, ...]:
    """To whom a node hands what is new: the next ones on the circle of all nodes, by their numbers."""
    circle = sorted(nodes)
    place = circle.index(node)
    return tuple(circle[(place + step) % len(circle)] for step in range(1, min(count, len(circle) - 1) + 1))


@dataclass
class PeerMachine:
    """A node of a session without a server."""

    node: int
    client: int
    session: bytes
    terms: Terms
    nodes: Mapping[int, int]
    capabilities: Capabilities
    refuse: Refuse
    shapes: Shapes
    rule: CheckRule = any_rule
    left: bool = False
    exchange: Exchange | None = None
    linked: tuple[int, ...] | None = None
    """The only nodes that it speaks with, where the rule has a graph of neighbours."""

    def __post_init__(self) -> None:
        topology = self.terms.topology
        count = topology.neighbours if isinstance(topology, rows.Decentralised) else 1
        passed_on = neighbours_of(self.node, list(self.nodes.values()), count)
        self.neighbours = passed_on if self.linked is None else self.linked
        self.agreed: set[int] = set()
        self.voice = Voice(self.node, self.session, self.terms.id)
        agreed = self.terms.format
        self.coder = Coder(Codec.parse(agreed.codec), agreed.error_feedback)
        self.answers: dict[Key, Answer] = {}
        self.known: dict[Key, bytes] = {}
        """Messages of this exchange and of later ones, as they came."""
        self._out: list[Effect] = []
        self._now, self._tries = 0.0, 0

    @property
    def offered_to(self) -> set[int]:
        """Whom this node makes an offer: the one with the lowest number all others; in a graph, each the neighbours
        whose numbers are higher.
        """
        if self.linked is not None:
            return {node for node in self.linked if node > self.node}
        return set(self.nodes.values()) - {self.node} if self.node == min(self.nodes.values()) else set()

    @property
    def ready(self) -> bool:
        """Tell whether there is an agreement: of the proposer with all, of the others with it; in a graph, with all
        neighbours.
        """
        if self.linked is not None:
            return set(self.linked) <= self.agreed
        return self.offered_to <= self.agreed if self.offered_to else bool(self.agreed) or len(self.nodes) == 1

    def handle(self, event: Event, now: float) -> list[Effect]:
        self._out, self._now = [], now
        if self.left:
            return []
        match event:
            case happened.Started():
                self._out.append(Aggregate())
                self._wait()
                self._offer()
            case happened.Received(source, data):
                self._received(source, data)
            case happened.Asked(exchange):
                self._asked(exchange)
            case happened.Trained(answer):
                self._trained(answer)
            case happened.Timer():
                self._waited()
        return self._out

    # -- agreeing --------------------------------------------------------------------------------------------------

    def _offer(self) -> None:
        silent = self.offered_to - self.agreed
        if silent:
            offer = messages.Offer(
                session=self.session, node=self.node, role=Role.PEER, rows=Alternatives.of(self.terms)
            )
            self._out += [Send(node, messages.encode(offer)) for node in sorted(silent)]

    def _received(self, source: int, data: bytes) -> None:
        try:
            message = messages.decode(data)
        except ProtocolError as problem:
            self._out.append(Told(FaultKind.CORRUPT_PAYLOAD, "ignore", f"node {source}: {problem}"))
            return
        if message.session != self.session:
            return
        match message:
            case messages.Offer():
                self._offered(source, message)
            case messages.Accept():
                self._accepted(source, message)
            case messages.Reject():
                self._leave(f"node {source} does not agree: table 6.{message.table}, row {message.row}")
            case messages.Update() if message.agreement == self.terms.id:
                self._update(source, message, data)

    def _offered(self, source: int, offer: messages.Offer) -> None:
        answer = negotiate(offer, self.capabilities, self.rule)
        self._out.append(Send(source, messages.encode(answer)))
        if isinstance(answer, messages.Accept) and answer.terms.id == self.terms.id:
            self._agree(source)

    def _accepted(self, source: int, accept: messages.Accept) -> None:
        try:
            confirm(accept, Alternatives.of(self.terms), self.session)
        except ProtocolError as problem:
            self._leave(f"node {source}: {problem}")
            return
        self._agree(source)

    def _agree(self, source: int) -> None:
        begins = not self.ready
        self.agreed.add(source)
        if begins and self.ready:
            self._train()

    # -- a round ---------------------------------------------------------------------------------------------------

    def _asked(self, exchange: Exchange) -> None:
        self.exchange, self._tries = exchange, 0
        if exchange.over:
            own = lanes_of(exchange.asks, self.client)[0]
            self.left = True
            self._out += [Adopt(own.tensors), SetTimer(WAIT, None), Leave("done")]
            return
        self.answers = {}
        self.known = {key: data for key, data in self.known.items() if key[1] >= exchange.version}
        if self.ready:
            self._train()
        for key, data in list(self.known.items()):
            if key[1] == exchange.version:
                self._take(key, data)

    def _train(self) -> None:
        if self.exchange is not None:
            for ask in lanes_of(self.exchange.asks, self.client):
                self._out.append(Train(ask, ask.tensors))

    def _trained(self, answer: Answer) -> None:
        if self.exchange is None or answer.failure:
            self._leave(f"training failed: {answer.failure}")
            return
        ask, agreed = answer.ask, self.terms.format
        packed = self.coder.packed(ask.lane, answer.tensors, self._bases(ask, shapes_of(answer.tensors)))
        version, began = self.exchange.version, digest(ask.tensors)
        fields = submission(self.node, ask, version, began, 1, agreed, *packed)
        message = self.voice.say(messages.Update, **fields)
        self._spread(message, 0)
        key = self.client, version, ask.lane
        self.known[key] = message
        self._take(key, message)

    def _update(self, source: int, message: messages.Update, data: bytes) -> None:
        clients = {node: client for client, node in self.nodes.items()}
        version = -1 if self.exchange is None else self.exchange.version
        if message.client not in clients or message.base < version:
            return
        key = clients[message.client], message.base, message.lane
        if key in self.known:
            return
        self.known[key] = data
        if self.linked is None:
            self._spread(data, source)
        if message.base == version:
            self._take(key, data)

    def _bases(self, ask: Ask, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
        return bases(ask.tensors, shapes) if self.linked is None else {}

    def _asks(self) -> dict[Key, Ask]:
        assert self.exchange is not None
        version = self.exchange.version
        heard = set(self.nodes.values()) if self.linked is None else {self.node, *self.linked}
        return {(ask.client, version, ask.lane): ask for ask in self.exchange.asks if self.nodes[ask.client] in heard}

    def _spread(self, data: bytes, source: int) -> None:
        self._out += [Send(node, data) for node in self.neighbours if node != source]

    def _take(self, key: Key, data: bytes) -> None:
        """Adds an update of this exchange; with the last of them the round is over."""
        message, asks = messages.decode(data), self._asks()
        if key not in asks or not isinstance(message, messages.Update) or message.manifest is None:
            return
        ask = asks[key]
        try:
            if self.linked is None and message.base_digest != digest(ask.tensors)[:8]:
                self._leave(f"node {message.client} builds on another model")
                return
            must_be(message.manifest, self.shapes(ask.step))
            answer = Answer(ask, opened(message, message.manifest, self._bases(ask, message.manifest.shapes)))
        except ProtocolError as problem:
            del self.known[key]
            self._out.append(Told(FaultKind.CORRUPT_PAYLOAD, "drop", f"node {message.client}: {problem}"))
            return
        if (why := self.refuse(answer)) is not None:
            self._leave(f"node {message.client}: {why}")
            return
        self.answers[key] = answer
        if self.answers.keys() == asks.keys():
            self._wait()
            self._out.append(Aggregate([self.answers[one] for one in sorted(self.answers)]))

    # -- time-outs -------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        failures = self.terms.client_failures
        self._out.append(SetTimer(WAIT, self._now + failures.timeout * failures.backoff**self._tries))

    def _waited(self) -> None:
        """A neighbour is silent: what it may not have got goes out again, as often as was agreed."""
        failures = self.terms.client_failures
        action = failures.on_timeout
        self._out.append(Told(FaultKind.CLIENT_SILENT, spelled(action), f"waited {self._tries + 1} times"))
        if action is Action.LEAVE or self._tries >= failures.retries:
            self._leave("a neighbour is silent")
            return
        self._tries += 1
        self._offer()
        for key, data in self.known.items() if action is Action.RETRY else ():
            if self.linked is None or key[0] == self.client:
                self._spread(data, 0)
        self._wait()

    def _leave(self, reason: str) -> None:
        self.left = True
        self._out += [SetTimer(WAIT, None), Leave(reason)]


def as_peers(terms: Terms, neighbours: int = 1) -> Terms:
    failures = replace(terms.server_failures, succession=(), handover_after=None)
    return replace(terms, topology=rows.Decentralised(neighbours), servers=(), server_failures=failures)
