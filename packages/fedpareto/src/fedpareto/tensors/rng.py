"""Counter-based randomness: a number is a function of (seed, purpose, client, lane, round, position), nothing else.

`Addresses` draws for a whole stack of clients in integer tensor arithmetic: Philox4x32-10 (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", 2011) keyed by seed and purpose, with its counter at (position, client, lane,
round). So a client draws the same bits alone on a node, in a stack of a thousand, in any chunk and order, on a CPU and
on a GPU. `generator` is for what is drawn once for a whole federation, such as a partition of rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.tensors.philox import LAST, MULTIPLIERS, ROUNDS, WEYL
from fedpareto.tensors.quantiles import logarithm, normal_quantile

SERVER = -1
"""The server's own client number in a stream's address."""

_MASK64 = (1 << 64) - 1
_MASK = (1 << 32) - 1
_IN_CACHE = 1 << 14
"""Blocks that a CPU computes at once: their 64-bit words stay in its cache."""
Words = TypeVar("Words", Tensor, np.ndarray)
"""Whole numbers, of torch or of NumPy: the arithmetic is the same."""


@dataclass(frozen=True)
class Address:
    """Address of a stream: whose it is, and when."""

    seed: int
    client: int = SERVER
    round: int = 0
    lane: int = 0


@dataclass(frozen=True, eq=False)
class Addresses:
    """Addresses of a stack of n: whole numbers `[n]` each, on the device where numbers are to be drawn."""

    seed: Tensor
    client: Tensor
    round: Tensor
    lane: Tensor

    @classmethod
    def of(cls, addresses: Sequence[Address], device: torch.device | str = "cpu") -> Addresses:
        rows = [(one.seed & _MASK64, one.client, one.round, one.lane) for one in addresses]
        columns = np.array(rows, dtype=object).reshape(-1, 4).T
        return cls(*(torch.tensor([signed(int(x)) for x in column], device=device) for column in columns))

    @classmethod
    def at(
        cls, seed: int, clients: np.ndarray, round: int, lane: int = 0, device: torch.device | str = "cpu"
    ) -> Addresses:
        client = torch.as_tensor(np.asarray(clients, dtype=np.int64), device=device)
        same = (torch.full_like(client, signed(value)) for value in (seed, round, lane))
        seeds, rounds, lanes = same
        return cls(seeds, client, rounds, lanes)

    @classmethod
    def cat(cls, parts: Sequence[Addresses]) -> Addresses:
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in _FIELDS))

    def __len__(self) -> int:
        return len(self.client)

    def __getitem__(self, rows: slice | np.ndarray | Tensor) -> Addresses:
        if isinstance(rows, np.ndarray):
            rows = torch.as_tensor(rows, device=self.client.device)
        return Addresses(*(getattr(self, name)[rows] for name in _FIELDS))

    def to(self, device: torch.device | str) -> Addresses:
        return Addresses(*(getattr(self, name).to(device) for name in _FIELDS))

    def with_lane(self, lane: int | Tensor) -> Addresses:
        """Addresses in another lane: streams of their own."""
        return replace(self, lane=torch.zeros_like(self.lane) + lane)

    def repeated(self, times: int) -> Addresses:
        """Addresses, each `times` times in a row, `[n · times]`."""
        return Addresses(*(getattr(self, name).repeat_interleave(times) for name in _FIELDS))

    # -- numbers ---------------------------------------------------------------------------------------------------

    def words(self, purpose: str, count: int, start: int | Tensor = 0) -> Tensor:
        """The whole numbers below 2³² at the positions from `start` (a multiple of 4), `[n, count]`."""
        return self._words((purpose,), count, start)[:, 0]

    def uniform(self, purpose: str, count: int, start: int | Tensor = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers from 0 to below 1, `[n, count]`: with 24 random bits, or 53 in double precision (two words each)."""
        if dtype == torch.float64:
            high, low = self._pairs(purpose, count, start)
            return ((high >> 5) * 2**26 + (low >> 6)).double() * 2.0**-53
        return (self.words(purpose, count, start) >> 8).to(dtype) * 2.0**-24

    def normal(self, purpose: str, count: int, start: int | Tensor = 0) -> Tensor:
        """Numbers from the standard normal distribution, double precision, `[n, count]`."""
        return normal_quantile(self._inside(purpose, count, start))

    def exponential(self, purpose: str, count: int, start: int | Tensor = 0) -> Tensor:
        """Numbers from the exponential distribution with mean 1, double precision, `[n, count]`."""
        return -logarithm(self._inside(purpose, count, start))

    def orders(self, purpose: str, counts: Tensor, passes: int, longest: int, compiled: bool = False) -> Tensor:
        """`passes` random orders of 0 … count − 1 for each client, `[n, passes, longest]`.

        From a client's `count` on, the remaining places follow in their own order. `compiled`: the same by machine code
        on a CPU, see `order_kernels`.
        """
        purposes = tuple([f"{purpose} {number}" for number in range(passes)])
        if compiled:
            keys = self._compiled_keys(purposes, counts, longest)
            return _sorted(keys).bitwise_and_(2**30 - 1)
        words = self._words(purposes, longest)
        place = torch.arange(longest, device=words.device)
        # A place in the low bits: keys are never equal, and sorted keys tell their places.
        keys = words.mul_(2**30).add_(place)
        if keys.is_cuda or bool((counts < longest).any()):  # A GPU is not waited for.
            keys = torch.where(place < counts.view(-1, 1, 1), keys, place + LAST)
        return _sorted(keys).bitwise_and_(2**30 - 1)

    def _compiled_keys(self, purposes: tuple[str, ...], counts: Tensor, longest: int) -> Tensor:
        from fedpareto.tensors.order_kernels import write_keys

        columns = torch.stack([getattr(self, name) for name in _FIELDS]).numpy()
        codes = np.array([zlib.crc32(purpose.encode()) for purpose in purposes])
        keys = np.empty((len(self), len(purposes), longest), dtype=np.int64)
        write_keys(columns, codes, counts.numpy(), keys)
        return torch.from_numpy(keys)

    def _inside(self, purpose: str, count: int, start: int | Tensor) -> Tensor:
        """Numbers above 0 and below 1, with 52 random bits."""
        high, low = self._pairs(purpose, count, start)
        return (((high >> 6) * 2**26 + (low >> 6)).double() + 0.5) * 2.0**-52

    def _pairs(self, purpose: str, count: int, start: int | Tensor) -> tuple[Tensor, Tensor]:
        high, low = self.words(purpose, 2 * count, 2 * start).view(len(self), count, 2).unbind(-1)
        return high, low

    def _words(self, purposes: tuple[str, ...], count: int, start: int | Tensor = 0) -> Tensor:
        """`[n, purposes, count]`."""
        device, blocks = self.client.device, -(-count // 4)
        first = start.div(4, rounding_mode="floor") if isinstance(start, Tensor) else start // 4
        block = torch.arange(blocks, device=device) + first
        # Filled on the device: a CUDA graph cannot hold a copy from the host.
        codes = block.new_empty((1, len(purposes), 1))
        for place, purpose in enumerate(purposes):
            codes[:, place].fill_(zlib.crc32(purpose.encode()))
        columns = [self.seed, self.client, self.round, self.lane]
        for place, column in enumerate(columns):
            columns[place] = column.view(-1, 1, 1)
        if device.type != "cpu":
            return torch.stack(_drawn(columns, codes, block), dim=-1).flatten(-2)[..., :count]
        # NumPy starts its loops sooner than torch.
        words = np.empty((len(self), len(purposes), blocks, 4), dtype=np.int64)
        seed, client, round_, lane = columns[0].numpy(), columns[1].numpy(), columns[2].numpy(), columns[3].numpy()
        codes_, block_ = codes.numpy(), block.numpy()
        rows_at_once = max(1, _IN_CACHE // max(1, len(purposes) * blocks))
        for i in range(0, len(words), rows_at_once):
            rows = slice(i, i + rows_at_once)
            some = seed[rows], client[rows], round_[rows], lane[rows]
            for place, word in enumerate(_drawn(some, codes_, block_)):
                words[rows, ..., place] = word
        return torch.from_numpy(words).flatten(-2)[..., :count]


_FIELDS = ("seed", "client", "round", "lane")


def _drawn(columns: Sequence[Words], codes: Words, block: Words) -> tuple[Words, Words, Words, Words]:
    """The four words of each block, `[n, purposes, blocks]`, of addresses `[n, 1, 1]` each."""
    seed, client, round, lane = columns
    key = seed & _MASK, (codes ^ (seed >> 32)) & _MASK
    return philox((block & _MASK, client & _MASK, lane & _MASK, round & _MASK), key)


def pairs(
    seed: int, clients: np.ndarray, rounds: np.ndarray | int, lanes: np.ndarray | int, purpose: str, place: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Two numbers for each client, at least 0 and below 1, `[n]` each: those of `Addresses.uniform` in double precision
    from the position 2 · `place` on. Without tensors, which take longer to make if clients are few.
    """
    # Even a single number is an array: those wrap around without a warning.
    *columns, code, block = (
        np.atleast_1d(np.asarray(value, dtype=np.int64))
        for value in (signed(seed), clients, rounds, lanes, zlib.crc32(purpose.encode()), place)
    )
    a, b, c, d = _drawn(columns, code, block)
    first, second = (((high >> 5) * 2**26 + (low >> 6)) * 2.0**-53 for high, low in ((a, b), (c, d)))
    return first, second


def philox(counter: Sequence[Words], key: Sequence[Words]) -> tuple[Words, Words, Words, Words]:
    """Philox4x32-10: four words from a counter of four and a key of two, each below 2³² in 64-bit integers.

    They need not have the same shape, only shapes that fit.
    """
    if isinstance(key[0], Tensor):
        return _philox_of_tensors(counter, key)
    a, b, c, d = counter
    # What is small stays small for as long as it can.
    firsts, seconds = _each_round(key[0], WEYL[0]), _each_round(key[1], WEYL[1])
    for first, second in zip(firsts, seconds, strict=True):
        # 64-bit products wrap around alike everywhere. `b` and `d` are only read by ^, so the mask comes after it.
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, c = (right >> 32) ^ (b ^ first), (left >> 32) ^ (d ^ second)
        a &= _MASK
        c &= _MASK
        b, d = right, left
    return a, b & _MASK, c, d & _MASK


def _philox_of_tensors(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`philox` on a GPU, which takes as long for an operation whatever it does: there are four in a round.

    `a` and `c` are computed as one tensor, `b` and `d` too, and both halves of a product are read where they lie.
    """
    of_key = np.broadcast_shapes(*(one.shape for one in key))
    shape = np.broadcast_shapes(of_key, *(one.shape for one in counter))
    first, second = (_each_round(one.expand(of_key), step) for one, step in zip(key, WEYL, strict=True))
    keys = torch.stack([first, second], dim=1).int()
    a, b, c, d = (one.expand(shape) for one in counter)
    words, low = torch.stack([a, c]), torch.stack([b, d]).int()
    products = torch.empty_like(words)
    (below, _), (lower, upper) = _halves(words), _halves(products)
    for of_round in keys.unbind():
        mixed = low ^ of_round
        torch.mul(words[1], MULTIPLIERS[1], out=products[0])
        torch.mul(words[0], MULTIPLIERS[0], out=products[1])
        torch.bitwise_xor(upper, mixed, out=below)
        low = lower
    (a, c), (b, d) = words, products & _MASK
    return a, b, c, d


def _halves(words: Tensor) -> tuple[Tensor, Tensor]:
    lower, upper = words.view(torch.int32).view(*words.shape, 2).unbind(-1)
    return lower, upper


def _each_round(key: Words, step: int) -> Words:
    """The key of each round, `[rounds, ...]`."""
    if isinstance(key, np.ndarray):
        return (key + np.arange(ROUNDS).reshape(-1, *[1] * key.ndim) * step) & _MASK
    return key + torch.arange(ROUNDS, device=key.device).view(-1, *[1] * key.dim()) * step


def _sorted(keys: Tensor) -> Tensor:
    """Along the last dimension; NumPy's sort uses a CPU's vector units, torch's does not."""
    if keys.device.type != "cpu":
        return keys.sort(dim=-1).values
    array = keys.numpy()
    array.sort(axis=-1)
    return keys


def signed(value: int) -> int:
    """Any 64 bits as a signed number."""
    value &= _MASK64
    return value - (1 << 64) if value >> 63 else value


# -- one stream ----------------------------------------------------------------------------------------------------


def generator(address: Address, purpose: str) -> np.random.Generator:
    """A fresh stream for one purpose ("deal", "participants", …), such as of the server in one round."""
    key = address.seed & _MASK64, zlib.crc32(purpose.encode())
    # The lowest word counts the numbers drawn, so streams of different addresses never overlap.
    counter = 0, address.client & _MASK64, address.lane & _MASK64, address.round & _MASK64
    return np.random.Generator(
        np.random.Philox(key=np.array(key, dtype=np.uint64), counter=np.array(counter, dtype=np.uint64))
    )


def generators(addresses: Sequence[Address], purpose: str) -> Iterator[np.random.Generator]:
    """The streams of several clients in turn, for data that are made once."""
    return (generator(address, purpose) for address in addresses)


def torch_generator(address: Address, purpose: str) -> torch.Generator:
    """The address as a torch generator, for initialising models."""
    seed = int(generator(address, purpose).integers(0, 2**63))
    return torch.Generator().manual_seed(seed)
