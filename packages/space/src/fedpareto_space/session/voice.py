"""The voice of a node in a session: its messages bear the session, the agreement and a number of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.codecs import Codec, ErrorFeedback
from fedpareto_space.session.events import Arrays, Ask
from fedpareto_space.wire import messages, payload
from fedpareto_space.wire.manifest import Manifest
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.rows import Format
from fedpareto_space.wire.vocabulary import FaultKind

ADOPT = "adopt"
"""The step of a GLOBAL that asks for nothing: it is what the client uses from now on."""
WHOLE = Codec()
"""float32, as they are."""
DIFFERENT = Codec.parse("float32-delta")
"""Codec of the same numbers in fewer bytes, for who has the base."""
NOTHING = bytes(8)
"""The base digest of what builds on nothing."""
KINDS = {Refusal.VERSION: FaultKind.VERSION_MISMATCH, Refusal.CRITICAL_EXTENSION: FaultKind.UNKNOWN_EXTENSION}
"""Refusals that are faults of their own in the failure matrix."""


@dataclass
class Voice:
    """The labels of a node's messages to one other."""

    node: int
    session: bytes
    agreement: bytes = b""
    sequence: int = 0

    def say(self, kind: type[messages.Message], **fields: Any) -> bytes:
        self.sequence += 1
        return messages.encode(kind(session=self.session, sequence=self.sequence, agreement=self.agreement, **fields))


def submission(
    node: int, ask: Ask, base: int, base_digest: bytes, steps: int, agreed: Format, manifest: Manifest, data: bytes
) -> dict[str, Any]:
    """The fields of an UPDATE that answers an ask."""
    return {
        "client": node,
        "base": base,
        "base_digest": base_digest[:8],
        "round": ask.round,
        "step": ask.step,
        "lane": ask.lane,
        "steps": steps,
        "content": agreed.content,
        "codec": agreed.codec,
        "manifest_digest": manifest.digest,
        "payload_digest": payload.short(data),
        "payload": data,
        "manifest": manifest,
    }


def shapes_of(tensors: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in tensors.items()}


def in_order(tensors: Arrays) -> dict[str, np.ndarray]:
    return {name: np.asarray(tensors[name]) for name in sorted(tensors)}


def digest(tensors: Arrays) -> bytes:
    return payload.digest(in_order(tensors))


def bases(asked: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return where the tensors of a submission began, of those for which both ends can say that: a codec measures from
    there.

    That is what the client was sent under the same name, or 0 for `updates` (see core.messages.beginnings).
    """
    found = {name: asked[name] for name, shape in shapes.items() if name in asked and asked[name].shape == shape}
    if "updates" in shapes:
        found["updates"] = np.zeros(shapes["updates"], dtype=np.float32)
    return found


def must_be(manifest: Manifest, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """ProtocolError if a submission has other tensors than its step: before any memory is taken for them."""
    if manifest.shapes != {name: tuple(shape) for name, shape in shapes.items()}:
        raise ProtocolError(Refusal.INCONSISTENT, "the tensors are not those that the rule's step replies with", (2, 6))


@dataclass
class Coder:
    """Codes what one sender submits, and keeps what a lossy codec lost for the next time."""

    codec: Codec
    feedback: bool = False
    residuals: dict[str, np.ndarray] = field(default_factory=dict)
    """Residuals by lane and name."""

    def packed(self, lane: int, tensors: Arrays, bases: Arrays) -> tuple[Manifest, bytes]:
        values = in_order(tensors)
        if self.feedback and not self.codec.lossless:
            for name, array in values.items():
                if payload.is_coded(name, array, bases):
                    values[name] = self._with_rest(f"{lane}/{name}", array, bases[name])
        return payload.pack(values, self.codec, bases)

    def _with_rest(self, key: str, array: np.ndarray, base: np.ndarray) -> np.ndarray:
        residual = self.residuals.get(key)
        residual = np.zeros_like(array) if residual is None or residual.shape != array.shape else residual
        flat = array.reshape(-1), base.reshape(-1), residual.reshape(-1)
        sent = ErrorFeedback(self.codec).send(*flat)
        self.residuals[key] = sent.residual.reshape(array.shape)
        return np.asarray(sent.values, dtype=np.float32).reshape(array.shape)


def opened(
    message: messages.Update | messages.Global, manifest: Manifest, bases: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    if payload.short(message.payload) != message.payload_digest:
        raise ProtocolError(Refusal.WRONG_DIGEST, "the payload does not have its digest")
    return payload.unpack(manifest, message.payload, Codec.parse(message.codec), bases)
