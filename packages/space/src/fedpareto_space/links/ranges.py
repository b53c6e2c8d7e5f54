"""Sets of bytes of a file, as half-open ranges that neither touch nor overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Ranges:
    """Bytes of a file that are there, or are asked for."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else 0

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        found = []
        place = bisect_right(self._ends, start)
        while start < end:
            if place == len(self._starts) or self._starts[place] >= end:
                found.append((start, end))
                break
            if start < self._starts[place]:
                found.append((start, self._starts[place]))
            start = self._ends[place]
            place += 1
        return found

    def take(self, most: int) -> tuple[int, int]:
        """Remove the first bytes of the set, at most so many, and give them as a range."""
        start = self._starts[0]
        end = min(self._ends[0], start + most)
        if end == self._ends[0]:
            del self._starts[0], self._ends[0]
        else:
            self._starts[0] = end
        return start, end

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()
