"""A sum of which the server learns nothing but the sum: what a user asks for, who masks with whom, and the ring.

Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", 2017; with neighbours instead
of all pairs after Bell et al., "Secure single-server aggregation with (poly)logarithmic overhead", 2020.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config import kinds
from fedpareto.config.bounds import AtLeast, Bounded, ShareBelowOne, Whole
from fedpareto.config.errors import UserError

VERSION = 2
"""Version of the protocol: parties of one federation have the same."""
STEPS = ("advertise", "share", "train", "unmask")
"""The exchanges of a round."""
FEWEST = 3
"""Clients in a sum: of two, each knows the other's part."""
UNLIKELY = 2.0**-40
"""Largest probability that a graph of neighbours does not protect, with `colluding` clients."""
NOBODY = -1
"""The mark in a list of neighbours where there is none."""


@dataclass(frozen=True)
class SecureSum(Bounded):
    """Pairwise masks that cancel in the sum, in a ring of integers, with recovery from drop-outs."""

    prefix: ClassVar[str] = "secure_sum: "

    kind: kinds.SecureSum = "none"
    """`masked`: clients mask what they send, so that the server learns the sum over all of them and nothing else."""
    threshold: Annotated[float, AtLeast(0.5, below=1)] = 0.67
    """More than this share of a round's clients have to stay to its end, and of a client and its neighbours to recover
    its mask. With two thirds a server that tells clients different things needs a third of them on its side.
    """
    neighbours: Annotated[int, AtLeast(FEWEST - 1, besides=(0,))] = 0
    """Number of others with which each client shares masks; 0: all if there are few, else as many as `colluding` needs.
    """
    colluding: ShareBelowOne = 0.1
    """Share of the clients that may be in league with the server, for which `neighbours` are counted."""
    bits: int = 64
    """Bits of each number in the ring, 32 or 64: what a number costs on the way."""
    precision: Whole = 24
    """Bits of it behind the binary point: numbers are rounded to multiples of 2^-precision."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.colluding < self.threshold:
            raise UserError(f"secure_sum: colluding is {self.colluding:g}; it is a share from 0 to below threshold")
        if self.bits not in (32, 64):
            raise UserError(f"secure_sum: bits is {self.bits}; it is 32 or 64")
        if not 0 <= self.precision <= self.bits - 8:
            raise UserError(f"secure_sum: precision is {self.precision}; it is a number of bits, at most bits - 8")

    @property
    def ring(self) -> Ring:
        """The ring in which numbers are added."""
        return Ring(self.bits, self.precision)

    def most_neighbours(self, clients: int) -> int:
        """The most neighbours that each client among so many has."""
        wanted = self.neighbours or _enough(clients, self.colluding, self.threshold)
        # A ring of clients has as many neighbours on either side.
        return clients - 1 if wanted >= clients - 1 else wanted + wanted % 2

    def needed(self, of: int) -> int:
        """Number of so many holders that have to be there: more than the threshold."""
        return _more_than(self.threshold, of)


@dataclass(frozen=True)
class Ring:
    """The integers modulo 2^bits, of which each stands for a multiple of 2^-precision."""

    bits: int
    precision: int

    @property
    def dtype(self) -> torch.dtype:
        """Type of its numbers in tensors, where they are signed."""
        return torch.int64 if self.bits == 64 else torch.int32

    @property
    def words(self) -> np.dtype[np.unsignedinteger]:
        """Type of its numbers in arrays, where they wrap around; in one byte order on every machine."""
        return np.dtype("<u8" if self.bits == 64 else "<u4")

    @property
    def unit(self) -> float:
        """The number that 1 stands for."""
        return 2.0**-self.precision

    def largest(self, clients: int) -> float:
        """The largest entry that each of so many clients may have, so that no sum wraps around."""
        return float(2 ** (self.bits - 1) // clients - 1) * self.unit

    def encoded(self, values: Tensor, clients: int) -> Tensor:
        """Whole numbers for values `[n, D]`, each row one of so many clients' that will be added up."""
        exact, largest = values.double(), self.largest(clients)
        length = float(exact.abs().max()) if exact.numel() else 0.0
        if not length <= largest:
            raise UserError(
                f"secure_sum: a value of {length:g} does not fit; with bits={self.bits}, precision={self.precision} "
                f"and {clients} clients at most {largest:g} does"
            )
        return (exact / self.unit).round().to(self.dtype)

    def decoded(self, total: Tensor) -> Tensor:
        """The values that a sum stands for, in double precision."""
        return total.double() * self.unit


def neighbourhood(ids: np.ndarray, keys: bytes, most: int) -> np.ndarray:
    """The neighbours of each of some clients, ascending ids `[m, most]`, NOBODY where there are fewer.

    Clients are put in a circle, in an order that follows from everybody's fresh `keys`, so that nobody can choose a
    place; neighbours are those next to each other on either side.
    """
    m = len(ids)
    found = np.full((m, most), NOBODY, dtype=np.int64)
    if m - 1 <= most:
        for row in range(m):
            found[row, : m - 1] = np.delete(ids, row)
        return found
    seed = hashlib.sha256(keys).digest()
    drawn = [hashlib.sha256(seed + int(one).to_bytes(8, "little", signed=True)).digest() for one in ids]
    circle = np.array(sorted(range(m), key=drawn.__getitem__))
    steps = np.arange(1, most // 2 + 1)
    for place, row in enumerate(circle):
        found[row] = np.sort(ids[circle[(place + np.concatenate([steps, -steps])) % m]])
    return found


def _more_than(share: float, of: int) -> int:
    return math.floor(share * of + 1e-9) + 1


@lru_cache(maxsize=256)
def _enough(clients: int, colluding: float, threshold: float) -> int:
    """The fewest neighbours, an even number, with which `colluding` clients and the server learn nothing more, even if
    as many drop out as may and the server tells clients different things; all others where no fewer will do.
    """
    others, liars = clients - 1, math.ceil(colluding * clients)
    gone = colluding + 1 - threshold
    for k in range(2, others, 2):
        # A circle falls apart where two arcs of k/2 clients are colluding or gone.
        parts = clients**2 / 2 * gone**k
        # Both secrets of a client take twice as many shares as are needed. It gives one itself, honest neighbours one
        # each, and colluding ones two. With a threshold near a half a few of those are enough, whatever k is: then
        # neighbours are for a server that tells all clients the same.
        enough = _more_than(threshold, k + 1)
        if 2 * threshold - 1 >= 2 * colluding:
            enough = 2 * enough - 1 - k
        if parts < UNLIKELY and clients * _at_least(others, liars, k, enough) < UNLIKELY:
            return k
    return max(others, FEWEST - 1)


def _at_least(population: int, marked: int, drawn: int, count: int) -> float:
    """The probability that of so many drawn without replacement at least `count` are marked."""
    ways = sum(math.comb(marked, i) * math.comb(population - marked, drawn - i) for i in range(count, drawn + 1))
    return ways / math.comb(population, drawn)
