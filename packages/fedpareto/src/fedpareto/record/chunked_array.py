"""Rows of numbers, appended one by one for hours, in pieces of memory that stay where they are.

One array that grows moves each time, and leaves holes behind which nothing else fits into.
"""

from __future__ import annotations

import numpy as np

SIZE = 2**13
"""Bytes of a piece."""


class Pieces:
    """`[k, width]` numbers of one type, growing."""

    def __init__(self, width: int, type: str) -> None:
        self._width, self._type = width, np.dtype(type)
        self._rows = max(1, SIZE // max(1, width * self._type.itemsize))
        self._pieces: list[np.ndarray] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def extend(self, rows: np.ndarray) -> None:
        """More rows, `[k, width]`."""
        while len(rows):
            begin = self._length % self._rows
            if not begin:
                self._pieces.append(np.empty((self._rows, self._width), self._type))
            taken = rows[: self._rows - begin]
            self._pieces[-1][begin : begin + len(taken)] = taken
            self._length += len(taken)
            rows = rows[len(taken) :]

    def __getitem__(self, place: int) -> np.ndarray:
        """One row, `[width]`, as a view."""
        if not 0 <= place < self._length:
            raise IndexError(place)
        row: np.ndarray = self._pieces[place // self._rows][place % self._rows]
        return row

    def since(self, place: int) -> np.ndarray:
        """`[k - place, width]`: a copy of the rows from one on."""
        first = place // self._rows
        found = np.concatenate([*self._pieces[first:], np.empty((0, self._width), self._type)])
        return found[place - first * self._rows : self._length - first * self._rows]
