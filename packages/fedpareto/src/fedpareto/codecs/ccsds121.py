"""Lossless coding of whole numbers after CCSDS 121.0-B, byte for byte as libaec writes it.

Samples of n bits are coded in blocks of J. A block is written in whichever option is shortest: split (the lowest k bits
as they are, the rest in unary), second extension (pairs in unary), as it is, or as a run of blocks that are all zero.
All blocks are coded at once, without a loop. To decode, one must know where a block ends to find the next: blocks are
followed side by side in all intervals whose beginnings are known.

CCSDS 121.0-B-3, "Lossless Data Compression", 2020. The choice between two equal lengths is that of libaec, which starts
from the last block's k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from fedpareto.codecs.errors import CodecError
from fedpareto.config.bounds import AtLeast, Bounded
from fedpareto.config.errors import UserError

BLOCKS = (8, 16, 32, 64)
"""Samples that a block may have."""
MOST_INTERVAL = 4096
"""Blocks that a reference sample interval may have."""
SEGMENT = 64
"""Blocks after which a run of zero blocks ends."""
REMAINDER = 4
"""Mark in the place of a run's length: all blocks that are left of the segment."""
LARGEST_PAIR = 90
"""The largest unary number of the second extension; longer ones are never the shortest option."""


@dataclass(frozen=True)
class Format(Bounded):
    """Format of a stream; both sides must know it."""

    bits: Annotated[int, AtLeast(1, 32)]
    """n, bits of a sample: 1 to 32."""
    block: int = 32
    """J, samples of a block."""
    interval: Annotated[int, AtLeast(1, MOST_INTERVAL)] = 64
    """Blocks of an interval."""
    padded: bool = False
    """True if every interval begins with a new byte (AEC_PAD_RSI)."""
    restricted: bool = False
    """True for the short set of options, which is for at most 4 bits (AEC_RESTRICTED)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block not in BLOCKS:
            raise UserError(f"a block of {self.block} samples; it has {', '.join(map(str, BLOCKS))}")
        if self.restricted and self.bits > 4:
            raise UserError(f"the restricted set of options is for at most 4 bits, not {self.bits}")

    @property
    def id_bits(self) -> int:
        if self.restricted:
            return 1 if self.bits <= 2 else 2
        return 3 if self.bits <= 8 else 4 if self.bits <= 16 else 5

    @property
    def most_split(self) -> int:
        """The largest k that has a name; -1: there is no split."""
        return (1 << self.id_bits) - 3

    @property
    def samples(self) -> int:
        return self.block * self.interval


# -- encoding ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """Plan of each block of one or several streams, `[B]` each."""

    split: np.ndarray
    """k; -1: not split."""
    option: np.ndarray
    """One of SPLIT, PAIRS, PLAIN, ZERO and COVERED."""
    bits: np.ndarray
    """Length with the option's name; 0 for what an earlier block's run covers."""
    run: np.ndarray
    """The unary number of a run of zero blocks."""


SPLIT, PAIRS, PLAIN, ZERO, COVERED = range(5)


def encode(samples: np.ndarray, form: Format) -> tuple[bytes, np.ndarray]:
    """The coded samples, and the bytes of each interval if they are padded (else the bits).

    The last block is filled up with the last sample, as the standard's decoders expect.
    """
    if not len(samples):
        return b"", np.empty(0, dtype=np.int64)
    blocks = _in_blocks(np.asarray(samples)[None], form)
    plan = _planned(blocks, blocks.shape[1], form)
    lengths, starts = _intervals(plan.bits, blocks.shape[1], form)
    writer = Writer(int(starts[-1] + plan.bits[-1] + 7) // 8)
    _write(writer, blocks, plan, starts, form)
    return writer.data(), lengths


def sizes(samples: np.ndarray, form: Format) -> np.ndarray:
    """Bytes of each interval of each row of `[r, n]`, `[r, intervals]`, computed without writing any; intervals are
    padded."""
    rows = len(samples)
    blocks = _in_blocks(samples, form)
    each = blocks.shape[1] // rows
    plan = _planned(blocks, each, form)
    lengths, _ = _intervals(plan.bits, each, form)
    return lengths.reshape(rows, -1)


def _in_blocks(rows: np.ndarray, form: Format) -> np.ndarray:
    """Rows of samples as blocks `[J, B]`: what is done for all blocks at once is done sample by sample of a block."""
    fill = -rows.shape[1] % form.block
    if fill:
        rows = np.concatenate([rows, np.repeat(rows[:, -1:], fill, axis=1)], axis=1)
    # Sums of 64 samples of at most 8 bits are below 2¹⁶.
    kind = np.uint16 if form.bits <= 8 else np.uint32
    return np.ascontiguousarray(rows.reshape(-1, form.block).astype(kind, copy=False).T)


def _planned(blocks: np.ndarray, each: int, form: Format) -> _Plan:
    """The shortest option for each block, of streams that have `each` blocks."""
    name, count = form.id_bits, blocks.shape[1]
    zero = blocks.max(axis=0) == 0
    total = blocks.sum(axis=0, dtype=np.uint16 if form.bits <= 8 else np.float64)
    option = np.full(count, PLAIN, dtype=np.int8)
    bits = np.full(count, form.block * form.bits, dtype=np.int64)
    split = np.full(count, -1, dtype=np.int64)
    if form.most_split >= 0:
        split, length = _splits(blocks, total, zero, each, form)
        shorter = length < bits
        option[shorter], bits[shorter] = SPLIT, length[shorter]
    # The second extension saves at most one bit of two samples that are not split at all.
    able = np.flatnonzero(total + form.block // 2 + 1 <= bits)
    pairs: np.ndarray = 1 + (_paired(blocks[:, able]) + 1).sum(axis=0, dtype=np.int64)  # One bit belongs to the name.
    # Of equal lengths the second extension is preferred to a split, and what is as it is to both.
    shorter = np.where(option[able] == SPLIT, pairs <= bits[able], pairs < bits[able])
    option[able[shorter]], bits[able[shorter]] = PAIRS, pairs[shorter]
    bits += name
    run = np.zeros(count, dtype=np.int64)
    if zero.any():
        _runs(zero, each, form, option, bits, run)
    return _Plan(split, option, bits, run)


def _splits(
    blocks: np.ndarray, total: np.ndarray, zero: np.ndarray, each: int, form: Format
) -> tuple[np.ndarray, np.ndarray]:
    """The k of each block, and the bits without the name.

    A larger k costs one bit more for each sample and saves D(k) = Σ ⌈(x >> k) / 2⌉, which falls with k. So the length
    is smallest from the first k with D(k) ≤ J to the first with D(k) < J, and both are at most three above the first k
    with 2ᵏ ≥ mean / 3.
    """
    size, most = form.block, form.most_split
    mean = np.maximum(total.astype(np.float64) / (3 * size), 1)
    first = np.ceil(np.log2(mean) - 1e-9).astype(np.int64)
    low, high = first.copy(), first.copy()
    shifted = blocks >> first.astype(blocks.dtype)
    half = np.empty_like(shifted)
    for _ in range(4):
        np.bitwise_and(shifted, 1, out=half)
        half += shifted
        half >>= 1
        saved = half.sum(axis=0, dtype=blocks.dtype)
        low += saved > size
        more = saved >= size
        if not more.any():
            break
        high += more
        shifted >>= 1
    low, high = np.minimum(low, most), np.minimum(high, most)
    split = _nearest_to_last(low, high, zero, each)
    if most < form.bits - 1 and (split == most).any():  # Then what is left may be large.
        unary = (blocks >> split.astype(blocks.dtype)).sum(axis=0, dtype=np.int64)
    else:
        unary = (blocks >> split.astype(blocks.dtype)).sum(axis=0, dtype=blocks.dtype).astype(np.int64)
    return split, unary + size * (split + 1)


def _nearest_to_last(low: np.ndarray, high: np.ndarray, zero: np.ndarray, each: int) -> np.ndarray:
    """Best k from `low` to `high`, the one that is nearest to the last block's; 0 is before the first.

    kᵢ = clip(kᵢ₋₁, lowᵢ, highᵢ), where zero blocks are passed over: clips are composed by doubling.
    """
    if (low == high).all():
        return low
    low, high = np.where(zero, 0, low), np.where(zero, 99, high)
    first = np.arange(len(low)) % each == 0
    low[first & zero], high[first & ~zero] = 0, low[first & ~zero]
    high[first & zero] = 0
    reach = 1
    while reach < len(low) and (low != high).any():
        before_low, before_high = low[:-reach], high[:-reach]
        own_low, own_high = low[reach:], high[reach:]
        new_low = np.clip(before_low, own_low, own_high)
        new_high = np.clip(before_high, own_low, own_high)
        low, high = np.concatenate([low[:reach], new_low]), np.concatenate([high[:reach], new_high])
        reach *= 2
    return low


def _paired(blocks: np.ndarray) -> np.ndarray:
    """Two samples as one number, `[J / 2, B]`."""
    left, right = blocks[0::2].astype(np.uint32), blocks[1::2].astype(np.uint32)
    both = left + right
    return both * (both + 1) // 2 + right


def _runs(zero: np.ndarray, each: int, form: Format, option: np.ndarray, bits: np.ndarray, run: np.ndarray) -> None:
    count = len(zero)
    place = np.arange(count) % each % form.interval
    # The last block of a stream ends its segment too.
    ends = (place == form.interval - 1) | (place % SEGMENT == SEGMENT - 1) | (np.arange(count) % each == each - 1)
    begins = zero & ~np.concatenate([[False], zero[:-1] & ~ends[:-1]])
    stops = zero & (ends | ~np.concatenate([zero[1:], [False]]))
    heads, tails = np.flatnonzero(begins), np.flatnonzero(stops)
    length = tails - heads + 1
    unary = np.where(length < 5, length - 1, np.where(ends[tails], REMAINDER, length))
    option[zero], bits[zero] = COVERED, 0
    option[heads], run[heads], bits[heads] = ZERO, unary, form.id_bits + 1 + unary + 1


def _intervals(bits: np.ndarray, each: int, form: Format) -> tuple[np.ndarray, np.ndarray]:
    """The length of each interval, in bytes if padded, and the bit at which each block begins."""
    count = len(bits)
    place = np.arange(count) % each % form.interval
    heads = np.flatnonzero(place == 0)
    lengths = np.add.reduceat(bits, heads)
    if form.padded:
        lengths = (lengths + 7) // 8
    begin = (np.cumsum(lengths) - lengths) * (8 if form.padded else 1)
    before = np.cumsum(bits) - bits
    number = np.cumsum(place == 0) - 1
    return lengths, before + (begin - before[heads])[number]


def _write(writer: Writer, blocks: np.ndarray, plan: _Plan, starts: np.ndarray, form: Format) -> None:
    name, option = form.id_bits, plan.option
    # One bit more for the second extension (1) and for zero blocks (0), whose name is 0.
    split, pairs, plain, zero = (np.flatnonzero(option == one) for one in (SPLIT, PAIRS, PLAIN, ZERO))
    own = plan.split[split]
    every = len(split) == blocks.shape[1]
    chosen = blocks if every else blocks[:, split]
    ends = _put_unary(writer, starts[split], own + 1, name, chosen >> own.astype(blocks.dtype))
    _put_unary(writer, starts[pairs], np.ones_like(pairs), name + 1, _paired(blocks[:, pairs]))
    _put_unary(writer, starts[zero], np.zeros_like(zero), name + 1, plan.run[None, zero].astype(np.uint64))
    writer.put(starts[plain], np.full(len(plain), ((1 << name) - 1) << (WINDOW - name), dtype=np.uint64))
    if len(plain):
        writer.put_numbers(starts[plain] + name, blocks[:, plain].astype(np.uint32), form.bits)
    for width in np.flatnonzero(np.bincount(own, minlength=1)).tolist():
        if width:
            some = np.flatnonzero(own == width)
            low = chosen[:, some].astype(np.uint32) & np.uint32((1 << width) - 1)
            writer.put_numbers(ends[some], low, width)


def _put_unary(writer: Writer, starts: np.ndarray, names: np.ndarray, width: int, values: np.ndarray) -> np.ndarray:
    """Names of `width` bits, and behind them numbers `[j, b]` as so many zeros and a one; returns where they end."""
    top, length = unary(values)
    short = length + width <= WINDOW
    shown = np.where(short, top >> np.uint64(width), np.uint64(0))
    writer.put(starts, names.astype(np.uint64) << np.uint64(WINDOW - width) | shown)
    if not short.all():
        long = np.flatnonzero(~short)
        places = np.cumsum(values[:, long].astype(np.int64) + 1, axis=0) + (starts[long] + width - 1)
        writer.put_ones(places.ravel())
    found: np.ndarray = starts + width + length
    return found


# -- decoding ------------------------------------------------------------------------------------------------------


def decode(data: bytes, count: int, form: Format, lengths: Sequence[int] | np.ndarray | None = None) -> np.ndarray:
    """`count` samples. `lengths` are the bytes of the intervals, if they are padded: then all are read side by side.

    Raises CodecError if the bytes are not what an encoder writes.
    """
    if not count:
        if data:
            raise CodecError(f"{len(data)} bytes for no numbers")
        return np.empty(0, dtype=np.uint32)
    reader = Reader(data)
    total = -(-count // form.block)
    if lengths is None:
        coded = _followed_alone(reader, total, form)
    else:
        coded = _followed(reader, total, form, np.asarray(lengths, dtype=np.int64))
    blocks = _filled(reader, coded, total, form)
    return blocks.T.reshape(-1)[:count]


@dataclass(frozen=True)
class _Coded:
    """Places of the blocks of a stream, `[b]` each; zero blocks are left out."""

    block: np.ndarray
    option: np.ndarray
    split: np.ndarray
    start: np.ndarray
    """Place behind the name."""
    unary: np.ndarray
    """Place behind the unary part."""


def _followed(reader: Reader, total: int, form: Format, lengths: np.ndarray) -> _Coded:
    """All intervals side by side: step by step the next block of each."""
    intervals = -(-total // form.interval)
    if len(lengths) != intervals or (lengths < 0).any() or int(lengths.sum()) != reader.size:
        raise CodecError("the lengths of the intervals do not fit the coded bytes")
    ends = 8 * np.cumsum(lengths)
    places = ends - 8 * lengths
    block = np.arange(intervals) * form.interval
    last = np.minimum(block + form.interval, total)
    parts = []
    active = np.arange(intervals)
    while len(active):
        part, places[active], block[active] = _next(reader, places[active], block[active], last[active], form)
        parts.append(part)
        if (places > ends).any():
            raise CodecError("a coded block is longer than its interval")
        active = active[block[active] < last[active]]
    if (ends - places > 7).any():
        raise CodecError("an interval is longer than its blocks")
    return _joined(parts)


def _followed_alone(reader: Reader, total: int, form: Format) -> _Coded:
    """One block after the other: where intervals begin is not known."""
    parts, places, block = [], np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    while block[0] < total:
        last = np.minimum((block // form.interval + 1) * form.interval, total)
        part, places, block = _next(reader, places, block, last, form)
        parts.append(part)
        if places[0] > 8 * reader.size:
            raise CodecError("the coded bytes end too early")
        if form.padded and block[0] % form.interval == 0:
            places = -(-places // 8) * 8
    if reader.size - places[0] // 8 > 1:
        raise CodecError("there are more bytes than numbers")
    return _joined(parts)


def _joined(parts: Sequence[_Coded]) -> _Coded:
    names = ("block", "option", "split", "start", "unary")
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
    order = np.argsort(joined[0], kind="stable")
    return _Coded(*(one[order] for one in joined))


def _next(
    reader: Reader, places: np.ndarray, block: np.ndarray, last: np.ndarray, form: Format
) -> tuple[_Coded, np.ndarray, np.ndarray]:
    """The blocks that begin at these bits; then where the next ones begin, and their numbers."""
    size, name = form.block, form.id_bits
    top = reader.windows(places)
    found = (top >> np.uint64(WINDOW - name - 1)).astype(np.int64)
    names, longer = found >> 1, found < 2
    option = np.where(longer, np.where(found & 1, PAIRS, ZERO), np.where(names == (1 << name) - 1, PLAIN, SPLIT))
    split = np.where(option == SPLIT, names - 1, 0)
    width = name + longer
    start = places + width
    counts = np.array([size, size // 2, 0, 1])[option]
    unary = reader.after_ones(start, counts, top << width.astype(np.uint64))
    ends = unary + size * np.where(option == PLAIN, form.bits, split)
    run = unary - start - 1
    inside = block % form.interval
    rest = np.minimum(SEGMENT - inside % SEGMENT, last - block)
    run = np.where(run == REMAINDER, rest, np.where(run < REMAINDER, run + 1, run))
    covered = np.where(option == ZERO, run, 1)
    if (covered > last - block).any():
        raise CodecError("a run of zero blocks is longer than its interval")
    coded = np.flatnonzero(option != ZERO)
    part = _Coded(block[coded], option[coded], split[coded], start[coded], unary[coded])
    return part, ends, block + covered


def _filled(reader: Reader, coded: _Coded, total: int, form: Format) -> np.ndarray:
    """The samples of all blocks, `[J, B]`."""
    size = form.block
    blocks = np.zeros((size, total), dtype=np.uint32)
    split, pairs, plain = (np.flatnonzero(coded.option == one) for one in (SPLIT, PAIRS, PLAIN))
    if len(plain):
        blocks[:, coded.block[plain]] = reader.numbers(coded.start[plain], size, form.bits)
    if len(pairs):
        numbers = reader.unary(coded.start[pairs], coded.unary[pairs], size // 2)
        blocks[:, coded.block[pairs]] = _unpaired(numbers, form)
    if len(split):
        own = coded.split[split]
        values = reader.unary(coded.start[split], coded.unary[split], size)
        if (values.max(axis=0) > 2**form.bits - 1 >> own).any():
            raise CodecError(f"a number has more than {form.bits} bits")
        values <<= own.astype(np.uint32)
        for width in np.flatnonzero(np.bincount(own)).tolist():
            if width:
                some = np.flatnonzero(own == width)
                values[:, some] |= reader.numbers(coded.unary[split[some]], size, width)
        blocks[:, coded.block[split]] = values
    return blocks


def _unpaired(numbers: np.ndarray, form: Format) -> np.ndarray:
    """Two samples from each number `[J / 2, b]`: their sum s is the largest with s (s + 1) / 2 ≤ number."""
    if numbers.max() > LARGEST_PAIR:
        raise CodecError("a pair of numbers is larger than the second extension writes")
    found: np.ndarray = _PAIRS[numbers].transpose(0, 2, 1).reshape(-1, numbers.shape[1])
    if found.max() >= 2**form.bits:
        raise CodecError(f"a number has more than {form.bits} bits")
    return found


_PAIRS = np.array([(both - right, right) for both in range(13) for right in range(both + 1)], dtype=np.uint32)
"""Two samples by the number of their pair."""
assert len(_PAIRS) == LARGEST_PAIR + 1


# -- bits ----------------------------------------------------------------------------------------------------------
# Fields of bits, most significant bit first, at any position of a stream: many at once, without a loop over them. What
# is short enough is handled in words: up to 64 bits at the top of one word, and numbers of equal width in stacks
# `[j, b]`, number by number for all blocks b.

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
