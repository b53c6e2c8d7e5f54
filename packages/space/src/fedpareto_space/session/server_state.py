"""The state of a server in a session: its members, what it asked them, and what a stand-by needs to go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf

import numpy as np

from fedpareto_space.session.events import Answer, Ask, Effect, Exchange
from fedpareto_space.session.keeping import Saved
from fedpareto_space.session.voice import Voice
from fedpareto_space.wire import cbor
from fedpareto_space.wire.manifest import Manifest
from fedpareto_space.wire.messages import Extension
from fedpareto_space.wire.terms import TERMS, Alternatives, Terms

ROUND, DEADLINE, OFFER, SILENCE = "round", "deadline", "offer", "silence"
"""Names of timers: how long clients are waited for, when a round ends, when an offer is made again, and how long a
stand-by waits for the server.
"""
VERSIONS_KEPT = 8
"""Versions of what a client was asked: an update that builds on an older one is on an unknown base."""
_COPY = "the copy of a server's state"

Refuse = Callable[[Answer], str | None]
"""Why an update does not count, or None."""
Shapes = Callable[[str], Mapping[str, tuple[int, ...]]]
"""The names and shapes of what a client step replies with: nothing else is unpacked."""


class Status(Enum):
    """Status of a client at the server."""

    OFFERED = "offered"
    JOINED = "joined"
    SILENT = "silent"
    REFUSED = "refused"
    QUARANTINED = "quarantined"
    LEFT = "left"
    DONE = "done"

    @property
    def there(self) -> bool:
        return self in (Status.OFFERED, Status.JOINED)


@dataclass(eq=False)
class Member:
    """A client."""

    node: int
    client: int
    voice: Voice
    terms: Terms | None = None
    status: Status = Status.OFFERED
    offered: float = -inf
    """Time of the last offer to it."""
    asked: dict[tuple[int, int], Ask] = field(default_factory=dict)
    """The last asks by version and lane."""
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The version and lane of what went out under a sequence number."""
    held: dict[int, int] = field(default_factory=dict)
    """The version that it is known to hold, by lane."""
    answered: set[tuple[int, int]] = field(default_factory=set)
    """Versions and lanes of its updates."""
    manifests: dict[bytes, Manifest] = field(default_factory=dict)
    """Manifests by digest: a client sends each once."""
    invalid: int = 0
    tries: int = 0

    def note(self, ask: Ask, version: int) -> None:
        self.asked[version, ask.lane] = ask
        self.sent[self.voice.sequence] = version, ask.lane
        self.asked = {key: one for key, one in self.asked.items() if key[0] > version - VERSIONS_KEPT}
        self.sent = {number: key for number, key in self.sent.items() if key in self.asked}
        self.answered = {key for key in self.answered if key[0] > version - VERSIONS_KEPT}


@dataclass
class ServerState:
    """State of a server's machine."""

    node: int
    session: bytes
    terms: Terms
    """Terms that the server would agree to: rows of table 6.3 are the same for all clients."""
    offers: Alternatives
    nodes: Mapping[int, int]
    refuse: Refuse
    shapes: Shapes
    enough: int | None = None
    """Updates that close a round although others are still at work; None: all who were asked."""
    late: bool = True
    """An update of an earlier round has a meaning to the rule."""
    standby: bool = False
    """Another node is the server, until it falls silent."""
    extensions: tuple[Extension, ...] = ()
    exchange: Exchange | None = None

    def __post_init__(self) -> None:
        self.members = {
            node: Member(node, client, Voice(self.node, self.session)) for client, node in self.nodes.items()
        }
        self.answers: dict[tuple[int, int], Answer] = {}
        """Answers of this exchange, by client and lane …"""
        self.latecomers: dict[tuple[int, int], Answer] = {}
        """… and of earlier ones."""
        self.over, self.paused = False, False
        self._tries = 0
        """Times that a lost quorum was waited for."""
        self._learning = False
        self._late = False
        self._copy = b""
        self._out: list[Effect] = []
        self._now = 0.0

    @property
    def there(self) -> list[Member]:
        return [member for member in self.members.values() if member.status.there]

    def of_client(self, client: int) -> Member:
        return self.members[self.nodes[client]]

    # -- a stand-by goes on with this ------------------------------------------------------------------------------

    def copy_of(self, learnt: bytes) -> bytes:
        """The members, and what the server half has learnt."""
        kept = Saved(arrays={"learnt": np.frombuffer(learnt, dtype=np.uint8)})
        joined = [member for member in self.members.values() if member.terms is not None]
        kept.values["members"] = [
            [one.node, one.status.value, cbor.encode(TERMS.to_wire(one.terms)).hex()] for one in joined
        ]
        return kept.to_bytes()

    def take(self, copy: bytes) -> bytes:
        """The members of a copy; gives back what the server half has learnt."""
        kept = Saved.from_bytes(copy, _COPY)
        for node, status, terms in kept.values["members"]:
            member = self.members[node]
            member.status, member.terms = Status(status), TERMS.from_wire(cbor.decode(bytes.fromhex(terms)))
            assert member.terms is not None
            member.voice = Voice(self.node, self.session, member.terms.id)
        return kept.arrays["learnt"].tobytes()
