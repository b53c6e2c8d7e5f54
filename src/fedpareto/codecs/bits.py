"""Fields of bits, most significant bit first, at any position of a stream: many at once, without a loop over them."""

from __future__ import annotations

from functools import cached_property

import numpy as np

WORD = 32
"""Bits of a word. A field has at most as many, so it lies in two neighbouring words."""
SLACK = 8
"""Bytes of zeros behind a stream that is read, so that a field at its very end has two words."""

_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)
"""The bits that are set in a byte …"""
_PLACE = np.array([([i for i in range(8) if byte >> (7 - i) & 1] + [8] * 8)[:8] for byte in range(256)], dtype=np.uint8)
"""… and the place of the first, second … of them, `[256, 8]`."""
_FRONT = np.array([0xFF << (8 - places) & 0xFF for places in range(8)], dtype=np.uint8)
"""Masks of the first bits of a byte."""


class Writer:
    """A stream of a known length, all zeros at first."""

    def __init__(self, size: int) -> None:
        """For `size` bytes."""
        self.size = size
        self._words = np.zeros(size // 4 + 2, dtype=np.uint32)

    def put(self, places: np.ndarray, values: np.ndarray, widths: np.ndarray | int) -> None:
        """Writes fields, `[n]` each: `values` of `widths` bits at the bits `places`. Fields never overlap."""
        word, inside = places >> 5, places & 31
        # Shifted to the top of 64 bits, from where the field's place in its word is a shift to the right.
        wide = values.astype(np.uint64) << (2 * WORD - widths - inside).astype(np.uint64)
        self._add(word, wide >> np.uint64(WORD))
        self._add(word + 1, wide & np.uint64(0xFFFFFFFF))

    def put_ones(self, places: np.ndarray) -> None:
        """Sets single bits."""
        self._add(places >> 5, np.left_shift(np.uint32(1), (31 - (places & 31)).astype(np.uint32)))

    def _add(self, word: np.ndarray, part: np.ndarray) -> None:
        # Sums of distinct bits of one word: below 2³², which doubles hold exactly.
        summed = np.bincount(word, weights=part, minlength=len(self._words))
        self._words |= summed.astype(np.uint32)

    def data(self) -> bytes:
        """The stream."""
        return self._words.astype(">u4").tobytes()[: self.size]


class Reader:
    """A stream to be read. A place beyond its end reads as zeros; who reads checks the places."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._bytes = np.frombuffer(data + bytes(SLACK + 3), dtype=np.uint8)

    @cached_property
    def _words(self) -> np.ndarray:
        whole = self._bytes[: len(self._bytes) // 4 * 4]
        return whole.view(">u4").astype(np.uint64)

    @cached_property
    def _ranks(self) -> np.ndarray:
        """How many bits are set before each byte."""
        found = np.zeros(len(self._bytes) + 1, dtype=np.int64)
        np.cumsum(_ONES[self._bytes], out=found[1:])
        return found

    def get(self, places: np.ndarray, widths: np.ndarray | int) -> np.ndarray:
        """The fields of `widths` bits, at most 32, at the bits `places`, as unsigned numbers of 64 bits."""
        word = np.minimum(places >> 5, len(self._words) - 2)
        both = self._words[word] << np.uint64(WORD) | self._words[word + 1]
        kept = both >> (2 * WORD - widths - (places & 31)).astype(np.uint64)
        found: np.ndarray = kept & ((np.uint64(1) << np.asarray(widths, dtype=np.uint64)) - np.uint64(1))
        return found

    def after_ones(self, places: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Behind the `counts`-th bit that is set from `places` on; beyond the stream if there are not as many."""
        byte = np.minimum(places >> 3, len(self._bytes) - 1)
        wanted = self._ranks[byte] + _ONES[self._bytes[byte] & _FRONT[places & 7]] + counts
        found = np.searchsorted(self._ranks, wanted, side="left") - 1
        is_there = found < len(self._bytes)
        found = np.minimum(found, len(self._bytes) - 1)
        inside = _PLACE[self._bytes[found], np.clip(wanted - self._ranks[found] - 1, 0, 7)]
        end = 8 * found + inside + 1
        return np.where(counts == 0, places, np.where(is_there, end, 8 * len(self._bytes) + 1))

    def ones(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The places of all bits that are set in the spans from `starts` to `ends`, in their order."""
        lengths = ends - starts
        before = np.cumsum(lengths) - lengths
        places = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
        bits = np.unpackbits(self._bytes)
        return places[bits[places] > 0]
