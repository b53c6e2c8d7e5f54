"""Fields of bits, most significant bit first, at any position of a stream: many at once, without a loop over them.

What is short enough is handled in words: up to 64 bits at the top of one word, and numbers of equal width in stacks
`[j, b]`, number by number for all blocks b.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fedpareto.codecs.errors import CodecError

WINDOW = 64
"""Bits that are read or written at once."""
EXACT = 53
"""Bits of a window that a double holds: its exponent is the place of the first one."""
SLACK = 16
"""Bytes of zeros behind a stream that is read, so that a window at its very end is inside."""

_LOW = np.uint64(0xFFFFFFFF)
_TOP = np.uint64(1 << 63)
_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)
"""The bits that are set in a byte …"""
_PLACE = np.array([([i for i in range(8) if byte >> (7 - i) & 1] + [8] * 9)[:9] for byte in range(256)], dtype=np.uint8)
"""… and the place of the first, second … of them, `[256, 9]`."""
_FRONT = np.array([0xFF << (8 - places) & 0xFF for places in range(8)], dtype=np.uint8)
"""Masks of the first bits of a byte."""


class Writer:
    """A stream of a known length, all zeros at first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._words = np.zeros(size // 4 + 4, dtype=np.uint32)

    def put(self, places: np.ndarray, top: np.ndarray) -> None:
        """Writes up to 64 bits, at the top of words `[n]`, at the bits `places`; below them are zeros."""
        word, inside = places >> 5, (places & 31).astype(np.uint64)
        self._or(word, (top >> (np.uint64(32) + inside)).astype(np.uint32))
        self._or(word + 1, ((top >> inside) & _LOW).astype(np.uint32))
        last = ((top << (np.uint64(32) - inside)) & _LOW).astype(np.uint32)
        reaching = np.flatnonzero(last)
        self._or(word[reaching] + 2, last[reaching])

    def _or(self, word: np.ndarray, part: np.ndarray) -> None:
        if (word[1:] > word[:-1]).all():  # No word twice: several times faster.
            self._words[word] |= part
        else:
            np.bitwise_or.at(self._words, word, part)

    def put_ones(self, places: np.ndarray) -> None:
        np.bitwise_or.at(self._words, places >> 5, np.uint32(1) << (31 - (places & 31)).astype(np.uint32))

    def put_numbers(self, places: np.ndarray, numbers: np.ndarray, width: int) -> None:
        """Writes numbers `[j, b]` of `width` bits, those of a block one after the other from its place `[b]` on."""
        size, inside = len(numbers) * width, (places & 31).astype(np.uint32)
        shifted = _shifted(_packed(numbers, width), inside)
        word = places >> 5
        if size < 64:  # So short that there is no word between the first and the last.
            for number, part in enumerate(shifted):
                self._or(word + number, part)
            return
        # Words between are this block's alone: they are copied in one piece.
        whole = size // 32 - 1
        between = np.ascontiguousarray(shifted[1 : 1 + whole].T)
        _pieces(self._words, whole)[word + 1] = between.view(f"V{4 * whole}")[:, 0]
        for number in (0, *range(1 + whole, len(shifted))):
            self._words[word + number] |= shifted[number]

    def data(self) -> bytes:
        return self._words.astype(">u4").tobytes()[: self.size]


def _pieces(words: np.ndarray, count: int) -> np.ndarray:
    kind = f"V{words.itemsize * count}"
    return np.ndarray(len(words) - count + 1, kind, words, strides=(words.itemsize,))


def _shifted(words: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Words `[w, b]` of 32 bits, moved to the right by 0 to 31 bits of each block: `[w + 1, b]`."""
    found = np.empty((len(words) + 1, words.shape[1]), dtype=np.uint32)
    np.right_shift(words, by, out=found[:-1])
    found[-1] = 0
    found[1:] |= words << (np.uint32(32) - by)
    return found


def _packed(numbers: np.ndarray, width: int) -> np.ndarray:
    """Numbers `[j, b]` one after the other in words of 32 bits, `[words, b]`."""
    found = np.zeros((-(-len(numbers) * width // 32), numbers.shape[1]), dtype=np.uint32)
    for number, own in enumerate(numbers):
        word, inside = divmod(number * width, 32)
        beyond = inside + width - 32
        if beyond <= 0:
            found[word] |= own << np.uint32(-beyond)
        else:
            found[word] |= own >> np.uint32(beyond)
            found[word + 1] |= own << np.uint32(32 - beyond)
    return found


def unary(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers `[j, b]` as so many zeros and a one each: at the top of words `[b]` as far as they fit, and the bits."""
    ends = np.zeros(numbers.shape[1], dtype=np.uint64)
    top = np.zeros_like(ends)
    for own in numbers:
        top |= _TOP >> (ends + own)
        ends += own
        ends += np.uint64(1)
    return top, ends.astype(np.int64)


class Reader:
    """A stream to be read. A place beyond its end reads as zeros; who reads checks the places."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._bytes = np.frombuffer(data + bytes(SLACK + -len(data) % 4), dtype=np.uint8)
        self._raw = self._bytes.view(">u4").astype(np.uint32)
        self._words = self._raw.astype(np.uint64)

    @cached_property
    def _ranks(self) -> np.ndarray:
        """Number of bits that are set before each byte."""
        found = np.zeros(len(self._bytes) + 1, dtype=np.int64)
        np.cumsum(_ONES[self._bytes], out=found[1:])
        return found

    def windows(self, places: np.ndarray) -> np.ndarray:
        word, inside = np.minimum(places >> 5, len(self._words) - 3), (places & 31).astype(np.uint64)
        both = self._words[word] << np.uint64(32) | self._words[word + 1]
        found: np.ndarray = both << inside | self._words[word + 2] >> (np.uint64(32) - inside)
        return found

    def numbers(self, places: np.ndarray, count: int, width: int) -> np.ndarray:
        """`count` numbers of `width` bits one after the other from each place `[b]` on: `[count, b]`."""
        needed = -(-count * width // 32) + 1
        inside = (places & 31).astype(np.uint32)
        if len(self._raw) < needed:
            raise CodecError("the coded bytes end too early")
        pieces = _pieces(self._raw, needed)
        taken = pieces[np.minimum(places >> 5, len(pieces) - 1)].view(np.uint32).reshape(-1, needed).T
        words = taken[:-1] << inside
        words |= taken[1:] >> (np.uint32(32) - inside)
        found = np.empty((count, len(places)), dtype=np.uint32)
        mask = np.uint32((1 << width) - 1)
        for number in range(count):
            place, offset = divmod(number * width, 32)
            beyond = offset + width - 32
            if beyond <= 0:
                own = words[place] >> np.uint32(-beyond)
            else:
                own = words[place] << np.uint32(beyond) | words[place + 1] >> np.uint32(32 - beyond)
            np.bitwise_and(own, mask, out=found[number])
        return found

    def after_ones(self, places: np.ndarray, counts: np.ndarray, top: np.ndarray) -> np.ndarray:
        """Place behind the `counts`-th bit that is set from `places` on; beyond the stream if there are not as many.

        `top` are the windows there, in which most are found.
        """
        several = top.astype(">u8").view(np.uint8).reshape(-1, 8)
        ranks = np.cumsum(_ONES[several], axis=1, dtype=np.int64)
        byte = (ranks < counts[:, None]).sum(axis=1)
        inside = np.minimum(byte, 7)
        rows = np.arange(len(top))
        own = several[rows, inside]
        place = _PLACE[own, np.clip(counts - ranks[rows, inside] + _ONES[own] - 1, 0, 8)]
        ends = np.where(counts == 0, places, places + 8 * inside + place + 1)
        far = np.flatnonzero(byte == 8)
        if len(far):
            ends[far] = self._far_ones(places[far], counts[far])
        return ends

    def _far_ones(self, places: np.ndarray, counts: np.ndarray) -> np.ndarray:
        byte = np.minimum(places >> 3, len(self._bytes) - 1)
        wanted = self._ranks[byte] + _ONES[self._bytes[byte] & _FRONT[places & 7]] + counts
        found = np.searchsorted(self._ranks, wanted, side="left") - 1
        is_there = found < len(self._bytes)
        found = np.minimum(found, len(self._bytes) - 1)
        inside = _PLACE[self._bytes[found], np.clip(wanted - self._ranks[found] - 1, 0, 7)]
        return np.where(is_there, 8 * found + inside + 1, 8 * len(self._bytes) + 1)

    def unary(self, starts: np.ndarray, ends: np.ndarray, count: int) -> np.ndarray:
        """`count` unary numbers in each span `[b]`: `[count, b]`."""
        found = np.empty((count, len(starts)), dtype=np.uint32)
        long = np.flatnonzero(ends - starts > EXACT)
        left = self.windows(starts) >> np.uint64(WINDOW - EXACT)
        for number in range(count):
            # The exponent of a double is the place of the first one; zeros before it are the number.
            lead = np.uint64(1023 + EXACT - 1) - (left.astype(np.float64).view(np.uint64) >> np.uint64(52))
            found[number] = lead
            left <<= lead + np.uint64(1)
            left &= np.uint64((1 << EXACT) - 1)
        if len(long):
            found[:, long] = self._long_unary(starts[long], ends[long], count)
        return found

    def _long_unary(self, starts: np.ndarray, ends: np.ndarray, count: int) -> np.ndarray:
        lengths = ends - starts
        before = np.cumsum(lengths) - lengths
        places = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
        ones = places[np.unpackbits(self._bytes)[places] > 0].reshape(-1, count)
        return np.diff(ones, axis=1, prepend=starts[:, None] - 1).T - 1
