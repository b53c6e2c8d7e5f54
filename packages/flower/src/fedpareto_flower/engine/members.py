"""Membership: nodes come and go, and each says which client it is before it gets any task."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flwr.app import RecordDict

from fedpareto.config.errors import UserError
from fedpareto.tensors import rng
from fedpareto_flower.engine import schema, wire
from fedpareto_flower.engine.options import FlowerOptions
from fedpareto_flower.engine.pauses import Pauses
from fedpareto_flower.engine.post import HELLO, Post

log = logging.getLogger("fedpareto.flower")


@dataclass(frozen=True)
class _Question:
    """A node was sent an identification request.

    A connection that breaks just as Flower hands a message over loses the message; the request is cheap, so it is
    simply sent again to a node that does not answer.
    """

    message: str
    nonce: str
    deadline: float


@dataclass
class Members:
    """The nodes of a federation that are connected and accepted."""

    post: Post
    federation: str
    clients: Sequence[int]
    expected: Mapping[str, str]
    """Fingerprints that a node must have."""
    owners: Mapping[int, int]
    """Client of each node id, where keys were registered; empty: the first node that claims it."""
    options: FlowerOptions
    nodes: dict[int, int] = field(default_factory=dict)
    """The node of each connected client."""
    parts: tuple[str, ...] = ()
    """The parts of the data, in the order of the evaluations; all nodes have the same."""
    _asked: dict[int, _Question] = field(default_factory=dict)
    _refused: dict[int, float] = field(default_factory=dict)

    def gather(self, without_some: bool, soon: bool = False) -> None:
        """Waits until all clients have joined; after the time limit it continues `without_some`, or not at all.

        With `soon` the limit is near once somebody has joined: nobody waits for those who are away.
        """
        deadline = time.monotonic() + self.options.join_timeout
        pauses = Pauses(self.options.poll)
        while True:
            self.meet()
            missing = [client for client in self.clients if client not in self.nodes]
            if not missing:
                return
            if soon and self.nodes:
                soon, deadline = False, min(deadline, time.monotonic() + self.options.hello_timeout)
            if time.monotonic() > deadline:
                break
            pauses.sleep()
        who = f"client {', '.join(map(str, missing))}"
        if not self.nodes or not without_some:
            raise UserError(
                f"only {len(self.nodes)} of {len(self.clients)} nodes joined within {self.options.join_timeout:g} s; "
                f"missing: {who}. Start them, or set a quorum to go on without them"
            )
        log.warning("starting without %s", who)

    def meet(self) -> None:
        """Removes nodes that left, sends new ones an identification request and handles the answers. Does not wait."""
        online = set(self.post.grid.get_node_ids())
        self.nodes = {client: node for client, node in self.nodes.items() if node in online}
        self._asked = {node: question for node, question in self._asked.items() if node in online}
        if len(self.nodes) < len(self.clients):
            for node in sorted(online - set(self.nodes.values()) - set(self._asked) - self._in_disgrace()):
                self._ask(node)
        for node, said in list(self._answers()):
            self._hear(node, said)

    def forget(self, client: int) -> None:
        """A client's node did not answer: it must identify itself again."""
        self.nodes.pop(client, None)

    def _in_disgrace(self) -> set[int]:
        now = time.monotonic()
        return {node for node, when in self._refused.items() if now - when < self.options.forgiveness}

    def _ask(self, node: int) -> None:
        nonce = secrets.token_hex(16)
        question = wire.encode_greeting(self.federation, rng.SERVER, nonce)
        message = self.post.push(node, HELLO, question, self.options.hello_timeout)
        self._asked[node] = _Question(message, nonce, time.monotonic() + self.options.hello_timeout)

    def _answers(self) -> Iterator[tuple[int, wire.Hello | str]]:
        for node, question in list(self._asked.items()):
            reply = self.post.pull(question.message, node)
            if reply is not None:
                del self._asked[node]
                yield node, _introduction(reply, question.nonce)
            elif time.monotonic() > question.deadline:
                del self._asked[node]
                log.warning("node %d: it did not identify itself within %g s", node, self.options.hello_timeout)

    def _hear(self, node: int, said: wire.Hello | str) -> None:
        why = said if isinstance(said, str) else self._unwelcome(node, said)
        if why is not None:
            self._refused[node] = time.monotonic()
            log.warning("node %d: %s", node, why)
        elif isinstance(said, wire.Hello):
            self.parts = self.parts or said.parts
            self.nodes[said.client] = node
            log.info("node %d joined as client %d", node, said.client)

    def _unwelcome(self, node: int, hello: wire.Hello) -> str | None:
        """Why a node may not join, or None."""
        client = hello.client
        if hello.federation != self.federation:
            return "refused: it belongs to another federation"
        if client not in self.clients:
            return f"refused: it claims to be client {client}, which this federation does not have"
        if self.owners and self.owners.get(node) != client:
            return f"refused: it claims to be client {client}, but its key was registered for another"
        if client in self.nodes:
            return f"refused: it claims to be client {client}, but node {self.nodes[client]} is"
        differs = schema.difference(self.expected, hello.schema)
        if differs is not None:
            return f"refused as client {client}: it disagrees on {differs}"
        if self.parts and hello.parts != self.parts:
            return f"refused as client {client}: its data has the parts {list(hello.parts)}, not {list(self.parts)}"
        return None


def _introduction(reply: RecordDict | str, nonce: str) -> wire.Hello | str:
    if isinstance(reply, str):
        return reply
    try:
        hello = wire.decode_hello(reply)
    except wire.Malformed as problem:
        return f"refused: {problem}"
    return hello if hello.nonce == nonce else "refused: it answers an earlier request (a replay)"
