"""A square matrix in few bytes, for there is one of every round: whole numbers, and of symmetric ones a half."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpareto.record.run_files import Array

PLACES = 10_000
"""Similarities are written to four decimal places."""
SMALL, EXACT = "<i2", "<f8"
"""Types: PLACES of a number, if that is whole; the number itself."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The type and size of a packed square matrix."""

    rows: int
    type: str
    half: bool
    """True if the half below the diagonal is left out, because it equals the half above."""

    @property
    def length(self) -> int:
        count = self.rows * (self.rows + 1) // 2 if self.half else self.rows**2
        return count * np.dtype(self.type).itemsize


@dataclass(frozen=True, slots=True)
class Packed:
    """A square matrix in as few bytes as hold its numbers exactly."""

    kind: Kind
    content: bytes

    @classmethod
    def of(cls, matrix: Array) -> Packed:
        """Pack a matrix `[k, k]`."""
        with np.errstate(over="ignore", invalid="ignore"):
            small = np.round(matrix * PLACES).astype(SMALL)
        found = small if np.array_equal(small / PLACES, matrix) else matrix.astype(EXACT)
        half = np.array_equal(found, found.T, equal_nan=True)
        content = found[_above(len(found))] if half else found
        return cls(Kind(len(found), found.dtype.str, half), content.tobytes())

    @property
    def matrix(self) -> Array:
        rows, numbers = self.kind.rows, np.frombuffer(self.content, self.kind.type)
        whole = np.empty((rows, rows))
        if self.kind.half:
            above = _above(rows)
            whole[above] = whole.T[above] = numbers
        else:
            whole[:] = numbers.reshape(rows, rows)
        return whole / PLACES if self.kind.type == SMALL else whole


@lru_cache(maxsize=8)
def _above(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the diagonal and of all above it."""
    return np.triu_indices(rows)
