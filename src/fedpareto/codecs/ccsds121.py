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

import numpy as np

from fedpareto.codecs.bits import Reader, Writer
from fedpareto.codecs.errors import CodecError
from fedpareto.errors import UserError

BLOCKS = (8, 16, 32, 64)
"""Samples that a block may have."""
MOST_INTERVAL = 4096
"""Blocks that a reference sample interval may have."""
SEGMENT = 64
"""Blocks after which a run of zero blocks ends."""
REMAINDER = 4
"""In the place of a run's length: all blocks that are left of the segment."""
LARGEST_PAIR = 90
"""The largest unary number of the second extension; longer ones are never the shortest option."""


@dataclass(frozen=True)
class Format:
    """How a stream is coded; both sides must know it."""

    bits: int
    """n, bits of a sample: 1 to 32."""
    block: int = 32
    """J, samples of a block."""
    interval: int = 64
    """Blocks of an interval."""
    padded: bool = False
    """Whether every interval begins with a new byte (AEC_PAD_RSI)."""
    restricted: bool = False
    """Whether the short set of options is used, for at most 4 bits (AEC_RESTRICTED)."""

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= 32:
            raise UserError(f"a sample of {self.bits} bits; it has 1 to 32")
        if self.block not in BLOCKS:
            raise UserError(f"a block of {self.block} samples; it has {', '.join(map(str, BLOCKS))}")
        if not 1 <= self.interval <= MOST_INTERVAL:
            raise UserError(f"an interval of {self.interval} blocks; it has 1 to {MOST_INTERVAL}")
        if self.restricted and self.bits > 4:
            raise UserError(f"the restricted set of options is for at most 4 bits, not {self.bits}")

    @property
    def id_bits(self) -> int:
        """Bits of an option's name."""
        if self.restricted:
            return 1 if self.bits <= 2 else 2
        return 3 if self.bits <= 8 else 4 if self.bits <= 16 else 5

    @property
    def most_split(self) -> int:
        """The largest k that has a name; -1: there is no split."""
        return (1 << self.id_bits) - 3

    @property
    def samples(self) -> int:
        """Of an interval."""
        return self.block * self.interval


# -- encoding ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """How each block of one or several streams is written, `[B]` each."""

    split: np.ndarray
    """k; -1: not split."""
    option: np.ndarray
    """One of the following."""
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
    plan = _planned(blocks, len(blocks), form)
    lengths, starts = _intervals(plan.bits, len(blocks), form)
    writer = Writer(int(starts[-1] + plan.bits[-1] + 7) // 8)
    _write(writer, blocks, plan, starts, form)
    return writer.data(), lengths


def sizes(samples: np.ndarray, form: Format) -> np.ndarray:
    """Bytes of each interval of each row of `[r, n]` once it is coded, `[r, intervals]`; intervals are padded."""
    rows = len(samples)
    blocks = _in_blocks(samples, form)
    each = len(blocks) // rows
    plan = _planned(blocks, each, form)
    lengths, _ = _intervals(plan.bits, each, form)
    return lengths.reshape(rows, -1)


def _in_blocks(rows: np.ndarray, form: Format) -> np.ndarray:
    """Rows of samples as blocks `[B, J]`."""
    fill = -rows.shape[1] % form.block
    if fill:
        rows = np.concatenate([rows, np.repeat(rows[:, -1:], fill, axis=1)], axis=1)
    return rows.reshape(-1, form.block)


def _planned(blocks: np.ndarray, each: int, form: Format) -> _Plan:
    """The shortest option for each block, of streams that have `each` blocks."""
    name, count = form.id_bits, len(blocks)
    zero = blocks.max(axis=1) == 0
    option = np.full(count, PLAIN, dtype=np.int8)
    bits = np.full(count, name + form.block * form.bits, dtype=np.int64)
    best, split = bits - name, np.full(count, -1, dtype=np.int64)
    if form.most_split >= 0:
        split, length = _splits(blocks, zero, each, form)
        shorter = length < best
        option[shorter], bits[shorter] = SPLIT, name + length[shorter]
    pairs = _pair_bits(blocks, form)
    # Of equal lengths the second extension is preferred to a split, and what is as it is to both.
    shorter = np.where(option == SPLIT, pairs <= bits - name, pairs < best)
    option[shorter], bits[shorter] = PAIRS, name + pairs[shorter]
    run = np.zeros(count, dtype=np.int64)
    if zero.any():
        _runs(zero, each, form, option, bits, run)
    return _Plan(split, option, bits, run)


def _splits(blocks: np.ndarray, zero: np.ndarray, each: int, form: Format) -> tuple[np.ndarray, np.ndarray]:
    """The k of each block, and the bits without the name.

    A larger k costs one bit more for each sample and saves D(k) = Σ ⌈(x >> k) / 2⌉, which falls with k. So the length
    is smallest from the first k with D(k) ≤ J to the first with D(k) < J, and both are at most three above the first k
    with 2ᵏ ≥ mean / 3.
    """
    size, most = form.block, form.most_split
    mean = np.maximum(_row_sums(blocks) / (3 * size), 1)
    first = np.ceil(np.log2(mean) - 1e-9).astype(np.int64)
    low, high = np.full(len(blocks), 99), np.full(len(blocks), 99)
    for step in range(4):
        saved = _row_sums(_halves(blocks, first + step))
        low = np.where(saved <= size, np.minimum(low, first + step), low)
        high = np.where(saved < size, np.minimum(high, first + step), high)
        if (high < 99).all():
            break
    low, high = np.minimum(low, most), np.minimum(high, most)
    split = _nearest_to_last(low, high, zero, each)
    unary = _row_sums(_shifted(blocks, split))
    return split, unary + size * (split + 1)


def _shifted(blocks: np.ndarray, by: np.ndarray) -> np.ndarray:
    found: np.ndarray = blocks >> by.astype(blocks.dtype)[:, None]
    return found


def _halves(blocks: np.ndarray, by: np.ndarray) -> np.ndarray:
    """⌈(x >> k) / 2⌉."""
    shifted = _shifted(blocks, by)
    return (shifted >> 1) + (shifted & 1)


def _row_sums(blocks: np.ndarray) -> np.ndarray:
    found: np.ndarray = blocks.sum(axis=1, dtype=np.int64)
    return found


def _nearest_to_last(low: np.ndarray, high: np.ndarray, zero: np.ndarray, each: int) -> np.ndarray:
    """Of the best k from `low` to `high` the one that is nearest to the last block's; 0 is before the first.

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


def _pair_bits(blocks: np.ndarray, form: Format) -> np.ndarray:
    """Bits of the second extension, of which one belongs to its name; very many where it is never the shortest."""
    found = np.full(len(blocks), np.iinfo(np.int64).max // 2)
    small = np.flatnonzero(blocks.max(axis=1) <= 2 * form.block)
    values = blocks[small].astype(np.int64)
    left, right = values[:, 0::2], values[:, 1::2]
    both = left + right
    found[small] = 1 + (both * (both + 1) // 2 + right + 1).sum(axis=1)
    return found


def _runs(zero: np.ndarray, each: int, form: Format, option: np.ndarray, bits: np.ndarray, run: np.ndarray) -> None:
    """Zero blocks become runs, which end with their segment."""
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
    chosen = np.flatnonzero(option != COVERED)
    # One bit more for the second extension (1) and for zero blocks (0), whose name is 0.
    longer = (option == PAIRS) | (option == ZERO)
    names = np.select([option == SPLIT, option == PAIRS, option == PLAIN], [plan.split + 1, 1, (1 << name) - 1], 0)
    writer.put(starts[chosen], names[chosen], (name + longer)[chosen])
    after = starts + name + longer
    zeros = np.flatnonzero(option == ZERO)
    writer.put_ones(after[zeros] + plan.run[zeros])
    pairs = np.flatnonzero(option == PAIRS)
    if len(pairs):
        values = blocks[pairs].astype(np.int64)
        both = values[:, 0::2] + values[:, 1::2]
        _put_unary(writer, after[pairs], both * (both + 1) // 2 + values[:, 1::2])
    plain = np.flatnonzero(option == PLAIN)
    if len(plain):
        _put_binary(writer, after[plain], blocks[plain], np.full(len(plain), form.bits))
    split = np.flatnonzero(option == SPLIT)
    if len(split):
        own = plan.split[split]
        ends = _put_unary(writer, after[split], _shifted(blocks[split], own))
        some = np.flatnonzero(own)
        _put_binary(writer, ends[some], blocks[split[some]], own[some])


def _put_unary(writer: Writer, starts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Numbers `[b, j]` as so many zeros and a one; returns where each block of them ends."""
    ends = np.cumsum(values.astype(np.int64) + 1, axis=1) + starts[:, None]
    writer.put_ones(ends.ravel() - 1)
    found: np.ndarray = ends[:, -1]
    return found


def _put_binary(writer: Writer, starts: np.ndarray, values: np.ndarray, widths: np.ndarray) -> None:
    """The lowest bits of numbers `[b, j]`."""
    places = starts[:, None] + np.arange(values.shape[1]) * widths[:, None]
    kept = values.astype(np.uint64) & ((np.uint64(1) << widths.astype(np.uint64)) - np.uint64(1))[:, None]
    writer.put(places.ravel(), kept.ravel(), np.repeat(widths, values.shape[1]))


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
    blocks = np.zeros((total, form.block), dtype=np.uint32)
    _fill(blocks, reader, coded, form)
    samples = blocks.reshape(-1)
    return samples[:count]


@dataclass(frozen=True)
class _Coded:
    """Where the blocks of a stream are, `[b]` each; zero blocks are left out."""

    block: np.ndarray
    option: np.ndarray
    split: np.ndarray
    start: np.ndarray
    """Behind the name."""
    unary: np.ndarray
    """Behind the unary part."""


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
    found = reader.get(places, name + 1).astype(np.int64)
    names, longer = found >> 1, found < 2
    option = np.where(longer, np.where(found & 1, PAIRS, ZERO), np.where(names == (1 << name) - 1, PLAIN, SPLIT))
    split = np.where(option == SPLIT, names - 1, 0)
    start = places + name + longer
    counts = np.array([size, size // 2, 0, 1])[option]
    unary = reader.after_ones(start, counts)
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


def _fill(blocks: np.ndarray, reader: Reader, coded: _Coded, form: Format) -> None:
    """The samples of all blocks that are not zero."""
    size = form.block
    plain = coded.option == PLAIN
    if plain.any():
        blocks[coded.block[plain]] = _binary(reader, coded.start[plain], np.full(int(plain.sum()), form.bits), size)
    pairs = coded.option == PAIRS
    if pairs.any():
        blocks[coded.block[pairs]] = _pairs(_unary(reader, coded.start[pairs], coded.unary[pairs], size // 2), form)
    split = coded.option == SPLIT
    if split.any():
        own = coded.split[split]
        values = _unary(reader, coded.start[split], coded.unary[split], size)
        if (values > (2**form.bits - 1 >> own)[:, None]).any():
            raise CodecError(f"a number has more than {form.bits} bits")
        low = _binary(reader, coded.unary[split], own, size)
        blocks[coded.block[split]] = values.astype(np.uint64) << own.astype(np.uint64)[:, None] | low


def _unary(reader: Reader, starts: np.ndarray, ends: np.ndarray, count: int) -> np.ndarray:
    """`count` unary numbers from each start on, `[b, count]`."""
    ones = reader.ones(starts, ends).reshape(-1, count)
    before = np.concatenate([starts[:, None] - 1, ones[:, :-1]], axis=1)
    found: np.ndarray = ones - before - 1
    return found


def _binary(reader: Reader, starts: np.ndarray, widths: np.ndarray, count: int) -> np.ndarray:
    places = starts[:, None] + np.arange(count) * widths[:, None]
    return reader.get(places.ravel(), np.repeat(widths, count)).reshape(-1, count)


def _pairs(numbers: np.ndarray, form: Format) -> np.ndarray:
    """Two samples from each number: their sum s is the largest with s (s + 1) / 2 ≤ number."""
    if (numbers > LARGEST_PAIR).any():
        raise CodecError("a pair of numbers is larger than the second extension writes")
    both = ((np.sqrt(8 * numbers + 1) - 1) // 2).astype(np.int64)
    right = numbers - both * (both + 1) // 2
    found = np.stack([both - right, right], axis=2).reshape(len(numbers), -1)
    if (found >= 2**form.bits).any():
        raise CodecError(f"a number has more than {form.bits} bits")
    return found
