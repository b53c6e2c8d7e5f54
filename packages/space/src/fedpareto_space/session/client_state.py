"""The state of a client in a session, and the part of it that survives a reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from fedpareto.codecs import Codec
from fedpareto_space.session import triggers
from fedpareto_space.session.events import Answer, Arrays, Ask, Effect
from fedpareto_space.session.keeping import Saved
from fedpareto_space.session.voice import NOTHING, Coder, Voice, in_order
from fedpareto_space.wire import cbor, messages
from fedpareto_space.wire.negotiation import Capabilities, CheckRule, any_rule
from fedpareto_space.wire.terms import TERMS, Terms
from fedpareto_space.wire.vocabulary import FaultKind

WAIT, TRIGGER = "wait", "trigger"
"""Names of timers: how long to wait for the server, and when a trigger may fire by time alone."""
Verify = Callable[[int, bytes], bool]
"""Test whether a node is who it says, by a message's bytes: a hook for signatures."""
_CHECKPOINT = "the checkpoint of a client's session"


class Mode(Enum):
    """Modes of a client."""

    IDLE = "idle"
    AGREED = "agreed"
    PAUSED = "paused"
    LEFT = "left"
    DONE = "done"


@dataclass(eq=False)
class Lane:
    """State of one lane: the global message that it builds on, and what the client has made of it."""

    ask: Ask
    version: int
    digest: bytes
    """SHA-256 of the global message's tensors."""
    local: Arrays
    """Tensors from which the next local step begins …"""
    local_digest: bytes
    """… as it was stored."""
    progress: triggers.Progress
    answer: Answer | None = None
    steps: int = 0
    """Local steps since that global message."""
    after: int = 0
    """Local steps after the submission."""
    submitted: bool = False
    received: bool = False
    """The server said that it has the submission."""
    tries: int = 0
    """Trainings that were tried again."""


@dataclass
class ClientState:
    """State of a client's machine."""

    node: int
    """Number of its node in the ipn scheme."""
    client: int
    """Number of the client in the federation."""
    capabilities: Capabilities
    slices: Mapping[str, slice] = field(default_factory=dict)
    """Slices of a model by the names of its tensors."""
    rule: CheckRule = any_rule
    """Knows the aggregation rules and their parameters."""
    verify: Verify = lambda node, data: False
    mode: Mode = Mode.IDLE
    terms: Terms | None = None
    server: int = 0
    voice: Voice | None = None
    lanes: dict[int, Lane] = field(default_factory=dict)
    held: dict[tuple[int, int], dict[str, np.ndarray]] = field(default_factory=dict)
    """Global messages by version and lane, on which the next may build."""
    solution: Arrays | None = None

    def __post_init__(self) -> None:
        self.coder = Coder(Codec())
        self.faults: set[FaultKind] = set()
        self._answers: dict[tuple[int, str, int], messages.Update] = {}
        self._manifests: set[bytes] = set()
        """Digests of manifests that the server has: they are sent once."""
        self._countered: tuple[messages.Counter, int] | None = None
        """Counter-offer of this client, and the node that got it."""
        self._busy: Lane | None = None
        self._later: list[messages.Global] = []
        """Arrived while a local step is being done."""
        self._tries, self._globals = 0, 0
        """Times that the server was waited for in vain, and global models so far."""
        self._standbys = 0
        self._alone = False
        """The client goes on by itself, because the server is silent."""
        self._checkpoint = b""
        self._out: list[Effect] = []
        self._now = 0.0

    @property
    def agreed(self) -> Terms:
        assert self.terms is not None, "nothing is done before there is an agreement"
        return self.terms

    @property
    def speaker(self) -> Voice:
        assert self.voice is not None, "nothing is said before there is an agreement"
        return self.voice

    def newest(self) -> tuple[int, bytes]:
        """The version that it holds, and the first bytes of its digest."""
        return max(((lane.version, lane.digest[:8]) for lane in self.lanes.values()), default=(0, NOTHING))

    # -- what survives a reset -------------------------------------------------------------------------------------

    def saved(self) -> bytes:
        """Agreement, global models and local ones, and what is kept for the codec."""
        voice, kept = self.speaker, Saved()
        kept.values = {
            "voice": [voice.session.hex(), voice.agreement.hex(), voice.sequence],
            "terms": cbor.encode(TERMS.to_wire(self.agreed)).hex(),
            "server": self.server,
            "globals": self._globals,
            "answers": [messages.encode(one).hex() for one in self._answers.values()],
            "lanes": [self._put(kept, lane) for lane in self.lanes.values()],
        }
        kept.put("residuals", self.coder.residuals)
        return kept.to_bytes()

    @staticmethod
    def _put(kept: Saved, lane: Lane) -> dict[str, Any]:
        kept.put(f"asked {lane.ask.lane}", in_order(lane.ask.tensors))
        kept.put(f"local {lane.ask.lane}", in_order(lane.local))
        digests = {"digest": lane.digest.hex(), "local": lane.local_digest.hex()}
        return {
            "round": lane.ask.round,
            "step": lane.ask.step,
            "lane": lane.ask.lane,
            "version": lane.version,
        } | digests

    def restore(self, saved: bytes, now: float = 0.0) -> None:
        kept = Saved.from_bytes(saved, _CHECKPOINT)
        session, agreement, sequence = kept.values["voice"]
        self.voice = Voice(self.node, bytes.fromhex(session), bytes.fromhex(agreement), sequence)
        self.terms = TERMS.from_wire(cbor.decode(bytes.fromhex(kept.values["terms"])))
        self.server, self._globals, self.mode = kept.values["server"], kept.values["globals"], Mode.AGREED
        answers = [messages.decode(bytes.fromhex(one)) for one in kept.values["answers"]]
        self._answers = {(one.round, one.step, one.lane): one for one in answers if isinstance(one, messages.Update)}
        agreed = self.agreed.format
        self.coder = Coder(Codec.parse(agreed.codec), agreed.error_feedback, kept.get("residuals"))
        self.lanes, self.held, self._checkpoint = {}, {}, saved
        for one in kept.values["lanes"]:
            asked, local = kept.get(f"asked {one['lane']}"), kept.get(f"local {one['lane']}")
            ask = Ask(self.client, one["round"], one["step"], one["lane"], asked)
            digests = bytes.fromhex(one["digest"]), bytes.fromhex(one["local"])
            progress = triggers.Progress(now)
            self.lanes[ask.lane] = Lane(ask, one["version"], digests[0], local, digests[1], progress)
            self.held[one["version"], ask.lane] = asked
