"""Faults on purpose, to see whether what was agreed about them is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fedpareto_space.session.events import Answer, Arrays
from fedpareto_space.wire import messages
from fedpareto_space.wire.vocabulary import FaultKind


@dataclass(frozen=True)
class Mishap:
    """One fault, in one round of a node's session."""

    fault: FaultKind
    round: int = 1
    seconds: float = 0.0
    """Seconds that it lasts, or by which it makes a client late."""


def poisoned(answer: Answer) -> Answer:
    return replace(answer, tensors={name: np.full_like(array, np.nan) for name, array in answer.tensors.items()})


def flipped(tensors: Arrays) -> None:
    """One bit of stored weights is another."""
    array = max(tensors.values(), key=lambda one: one.size)
    array.setflags(write=True)
    array.reshape(-1).view(np.uint8)[0] ^= 1


def altered(data: bytes, mishaps: list[Mishap]) -> Iterator[bytes]:
    wanted = {FaultKind.DUPLICATE, FaultKind.CORRUPT_PAYLOAD, FaultKind.VERSION_MISMATCH}
    due = [one for one in mishaps if one.fault in wanted]
    message = messages.decode(data) if due else None
    round_ = getattr(message, "round", 0)
    for mishap in due:
        hits = mishap.round == round_ and isinstance(message, messages.Update | messages.Global)
        if mishap.fault is FaultKind.DUPLICATE and hits:
            mishaps.remove(mishap)
            yield data
        elif mishap.fault is FaultKind.CORRUPT_PAYLOAD and hits:
            assert isinstance(message, messages.Update | messages.Global)
            mishaps.remove(mishap)
            payload = bytearray(message.payload)
            payload[len(payload) // 2] ^= 1
            data = messages.encode(replace(message, payload=bytes(payload)))
        elif mishap.fault is FaultKind.VERSION_MISMATCH and isinstance(message, messages.Offer | messages.Accept):
            mishaps.remove(mishap)
            data = messages.encode(replace(message, version=(messages.MAJOR + 1, 0)))
    yield data


def extensions_of(mishaps: list[Mishap]) -> tuple[messages.Extension, ...]:
    unknown = any(one.fault is FaultKind.UNKNOWN_EXTENSION for one in mishaps)
    return (messages.Extension(99, True, 2, 3),) if unknown else ()
