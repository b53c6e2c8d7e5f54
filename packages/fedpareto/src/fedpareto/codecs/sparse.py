"""Only the largest entries of a vector: where they are, and their values in bfloat16."""

from __future__ import annotations

import math

import numpy as np

from fedpareto.codecs import lossless, numbers
from fedpareto.codecs.errors import CodecError

FINE, BAD = 0, 0xFF
"""The first byte: whether all numbers were finite."""


def count(size: int, percent: float) -> int:
    return max(1, math.ceil(size * percent / 100))


def chosen(change: np.ndarray, percent: float) -> np.ndarray:
    """The places of the largest magnitudes `[..., k]`, ascending; of equal ones the first."""
    many = count(change.shape[-1], percent)
    # Magnitudes as whole numbers are in the same order; the place breaks ties, so the choice is the same everywhere.
    magnitude = (change.view(np.uint32) & np.uint32(0x7FFFFFFF)).astype(np.int64)
    size = change.shape[-1]
    keys = magnitude * size + np.arange(size - 1, -1, -1)
    places = np.argpartition(keys, size - many, axis=-1)[..., size - many :]
    return np.sort(places, axis=-1)


def kept(change: np.ndarray, percent: float) -> np.ndarray:
    """The vectors `[..., d]` as the other end will hold them; NaN if one has a number that is not finite."""
    places = chosen(change, percent)
    values = numbers.from_bfloat16(numbers.to_bfloat16(np.take_along_axis(change, places, axis=-1)))
    found = np.zeros_like(change)
    np.put_along_axis(found, places, values, axis=-1)
    found[~np.isfinite(change).all(axis=-1)] = np.nan
    return found


def encode(change: np.ndarray, percent: float, coder: str) -> bytes:
    """A vector `[d]`: the mark, the values, and the gaps between their places."""
    if not np.isfinite(change).all():
        return bytes([BAD])
    places = chosen(change, percent)
    values = numbers.to_bfloat16(change[places]).astype("<u2").tobytes()
    gaps = np.diff(places, prepend=-1) - 1
    return bytes([FINE]) + values + lossless.coder(coder).pack(gaps.astype(np.uint32), 32)


def decode(data: bytes, size: int, percent: float, coder: str) -> np.ndarray:
    """The vector `[size]`, or CodecError."""
    if data == bytes([BAD]):
        return np.full(size, np.nan, dtype=np.float32)
    many = count(size, percent)
    if len(data) < 1 + 2 * many or data[0] != FINE:
        raise CodecError("the coded bytes end too early, or begin with an unknown mark")
    gaps = lossless.coder(coder).unpack(data[1 + 2 * many :], many, 32)
    places = np.cumsum(gaps.astype(np.int64) + 1) - 1
    if places[-1] >= size:
        raise CodecError(f"an entry lies beyond the {size} numbers")
    found = np.zeros(size, dtype=np.float32)
    found[places] = numbers.from_bfloat16(np.frombuffer(data, dtype="<u2", count=many, offset=1).astype(np.uint16))
    return found
