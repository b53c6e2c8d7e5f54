"""A radio channel as its users see it: rate, loss, bit errors, delay, duplication, reordering and outages.

No modulation is simulated. The same seed gives the same fate to the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

import numpy as np

from fedpareto.config.bounds import Above, Bounded, NotNegative, ShareBelowOne
from fedpareto.config.errors import UserError


@dataclass(frozen=True)
class Channel(Bounded):
    """One direction of a link."""

    rate: Annotated[float, Above(0, what="in bits a second,", besides=(inf,))] = inf
    """Rate in bits a second."""
    loss: ShareBelowOne = 0.0
    """Share of frames that never arrive."""
    bit_errors: ShareBelowOne = 0.0
    """Share of bits that arrive flipped."""
    delay: NotNegative = 0.0
    """Seconds that a frame is on its way."""
    duplication: ShareBelowOne = 0.0
    """Share of frames that arrive twice."""
    reordering: ShareBelowOne = 0.0
    """Share of frames that are overtaken by later ones."""
    late: NotNegative = 1.0
    """Seconds by which such frames are late at most."""
    outages: tuple[tuple[float, float], ...] = ()
    """From when to when nothing arrives, without anybody being told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not start < end for start, end in self.outages):
            raise UserError("outages are pairs of seconds: (from, to)")

    def seconds(self, size: int) -> float:
        return 8 * size / self.rate

    def survives(self, size: int) -> float:
        """The share of frames of so many bytes that arrive undamaged, outages apart."""
        return float((1 - self.loss) * (1 - self.bit_errors) ** (8 * size))

    @property
    def slowest(self) -> float:
        return self.delay + (self.late if self.reordering else 0.0)


class Line:
    """A channel at work: decides what becomes of each frame."""

    def __init__(self, channel: Channel, seed: int, source: int, destination: int) -> None:
        self.channel = channel
        self.drowned = 0
        """Bytes that were sent into an outage."""
        self._random = np.random.default_rng([seed, source, destination])

    def carry(self, frame: bytes, sent: float) -> list[tuple[float, bytes]]:
        """Return the arrivals of a frame and their bytes: none, one or two."""
        channel = self.channel
        if any(start <= sent < end for start, end in channel.outages):
            self.drowned += len(frame)
            return []
        copies = 1
        if channel.duplication and self._random.random() < channel.duplication:
            copies = 2
        arrivals = [self._one(frame, sent) for _ in range(copies)]
        return [arrival for arrival in arrivals if arrival is not None]

    def _one(self, frame: bytes, sent: float) -> tuple[float, bytes] | None:
        channel = self.channel
        if channel.loss and self._random.random() < channel.loss:
            return None
        at = sent + channel.delay
        if channel.reordering and self._random.random() < channel.reordering:
            at += channel.late * self._random.random()
        if channel.bit_errors:
            frame = self._flipped(frame)
        return at, frame

    def _flipped(self, frame: bytes) -> bytes:
        errors = self._random.binomial(8 * len(frame), self.channel.bit_errors)
        if not errors:
            return frame
        damaged = bytearray(frame)
        for place in self._random.integers(8 * len(frame), size=errors):
            damaged[place >> 3] ^= 1 << (place & 7)
        return bytes(damaged)
