"""The lines of a run in little space: hours of rounds stay in memory, and a Line is made at its first use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from fedpareto.record.chunked_array import Pieces
from fedpareto.record.columns import KEY, Block, Columns
from fedpareto.record.entries import EVALUATIONS, Line, Packed
from fedpareto.record.run_files import Array, Clusters

COUNTS = ("replies", "failures", "bytes_up", "bytes_down")
MEASURED = (
    *("hypervolume", "trained_hypervolume", "seconds", "epsilon"),
    *("clock", "over", "joules", "staleness", "at"),
)
"""Numbers of a line that need not be there."""
NUMBERS = ("seed", "round", *COUNTS, *MEASURED)
"""Numbers that are stored of every line, in this order; its averages and ELSEWHERE follow."""
ELSEWHERE = ("begin", "alike")
"""Numbers that point elsewhere: the byte of the first block, and the index of the line's Alike."""
FIRST_COUNT, FIRST_MEASURED = 2, 2 + len(COUNTS)
Layout = tuple[tuple[str, Block], ...]
"""A line's blocks, as if the first began at 0."""


class Alike(NamedTuple):
    """Values that many lines have in common."""

    seed: int
    layout: Layout
    clusters: Clusters | None
    compared: tuple[int, ...] | None


class Lines(Sequence[Line]):
    """All lines of a run, in the order in which they were written."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._means = len(EVALUATIONS), len(columns.splits), columns.objectives
        self._end = len(NUMBERS) + int(np.prod(self._means))
        self._numbers = Pieces(self._end + len(ELSEWHERE), "<f8")
        self._alike: list[Alike] = []
        self._places: dict[Alike, int] = {}
        self._packed: dict[int, Packed] = {}
        self._rest: dict[int, Mapping[str, Any]] = {}
        self._last: dict[int, int] = {}
        """Largest round by seed."""

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> Line: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Line]: ...

    def __getitem__(self, place: int | slice) -> Line | Sequence[Line]:
        if isinstance(place, slice):
            return Chosen(self, range(len(self))[place])
        return self._made(range(len(self))[place])

    # -- keeping ---------------------------------------------------------------------------------------------------

    def append(self, line: Line) -> None:
        self._last[line.seed] = max(line.round, self._last.get(line.seed, line.round))
        self._note(len(self), line)
        self._numbers.extend(self._kept(line)[None])

    def replace(self, place: int, line: Line) -> None:
        self._note(place, line)
        self._numbers[place][:] = self._kept(line)

    def _note(self, place: int, line: Line) -> None:
        rest = {key: value for key, value in line.row.items() if key not in ("seed", "round", KEY)}
        _keep(self._rest, place, rest or None)
        _keep(self._packed, place, line.packed)

    def _kept(self, line: Line) -> Array:
        blocks: Mapping[str, Block] = line.row.get(KEY, {})
        begin = min((block.at for block in blocks.values()), default=0)
        layout = tuple((name, block.moved(-begin)) for name, block in blocks.items())
        alike = Alike(line.seed, layout, line.few_clusters, line.similarity_of)
        if alike not in self._places:
            self._places[alike] = len(self._alike)
            self._alike.append(alike)
        numbers = (float(getattr(line, name)) for name in NUMBERS)
        return np.array([*numbers, *line.averages.ravel(), begin, self._places[alike]])

    def place_of(self, seed: int, round: int) -> int | None:
        """Return the index of the line of a round, if there is one."""
        if round > self._last.get(seed, -1):  # Nearly always.
            return None
        rounds = self.numbers()[:, 1]
        return next((int(at) for at in (rounds == round).nonzero()[0][::-1] if self.seed_of(int(at)) == seed), None)

    # -- reading ---------------------------------------------------------------------------------------------------

    def numbers(self, since: int = 0) -> Array:
        """`[k, …]`: a row for each line, of NUMBERS, the averages, and what is kept elsewhere."""
        return self._numbers.since(since)

    def averages(self, numbers: Array) -> Array:
        """`[k, 2, splits, m]`: the averages in rows of `numbers`."""
        return numbers[:, len(NUMBERS) : self._end].reshape(-1, *self._means)

    def rest(self, since: int = 0) -> list[Mapping[str, Any]]:
        """Return the values of each line beyond its numbers, clusters and similarities."""
        return [self._rest.get(place, NOTHING) for place in range(since, len(self))]

    def _elsewhere(self, place: int) -> tuple[int, Alike]:
        begin, alike = map(int, self._numbers[place][self._end :])
        return begin, self._alike[alike]

    def row(self, place: int) -> dict[str, Any]:
        """Return a line's row: its other values, and its blocks."""
        begin, alike = self._elsewhere(place)
        blocks = {name: block.moved(begin) for name, block in alike.layout}
        known = {"seed": alike.seed, "round": int(self._numbers[place][1])}
        return {**known, **self._rest.get(place, NOTHING), KEY: blocks}

    def rows_with(self, name: str, places: Iterable[int]) -> list[dict[str, Any]]:
        found = []
        for place in places:
            begin, alike = self._elsewhere(place)
            found.append({KEY: {key: block.moved(begin) for key, block in alike.layout if key == name}})
        return found

    def has_block(self, place: int, name: str) -> bool:
        return any(key == name for key, _ in self._elsewhere(place)[1].layout)

    def _made(self, place: int) -> Line:
        numbers, alike = self._numbers[place], self._elsewhere(place)[1]
        counts = dict(zip(COUNTS, map(int, numbers[FIRST_COUNT:FIRST_MEASURED]), strict=True))
        measured: Any = dict(zip(MEASURED, numbers[FIRST_MEASURED : len(NUMBERS)].tolist(), strict=True))
        return Line(
            seed=alike.seed,
            round=int(numbers[1]),
            **counts,
            **measured,
            averages=numbers[len(NUMBERS) : self._end].reshape(self._means).copy(),
            few_clusters=alike.clusters,
            packed=self._packed.get(place),
            similarity_of=alike.compared,
            row=self.row(place),
            columns=self.columns,
        )

    def ordered(self) -> Chosen:
        """Return the lines by seed and round."""
        numbers = self.numbers()
        seeds = sorted({alike.seed for alike in self._alike})
        ranks = np.array([seeds.index(alike.seed) for alike in self._alike], dtype=np.int64)
        return Chosen(self, np.lexsort((numbers[:, 1], ranks[numbers[:, self._end + 1].astype(np.int64)])).tolist())

    def seed_of(self, place: int) -> int:
        return self._elsewhere(place)[1].seed


NOTHING: Mapping[str, Any] = {}
T = TypeVar("T")


def _keep(found: dict[int, T], place: int, value: T | None) -> None:
    """Set or remove an entry."""
    if value is not None:
        found[place] = value
    else:
        found.pop(place, None)


class Chosen(Sequence[Line]):
    """Some of a run's lines; each is made once, at its first use."""

    def __init__(self, lines: Lines, places: Sequence[int]) -> None:
        self._lines, self._places = lines, places
        self._made: dict[int, Line] = {}

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Line: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Line]: ...

    def __getitem__(self, place: int | slice) -> Line | Sequence[Line]:
        if isinstance(place, slice):
            return [self[i] for i in range(len(self))[place]]
        at = self._places[place]
        found = self._made.get(at)
        if found is None:
            found = self._made[at] = self._lines[at]
        return found

    def __iter__(self) -> Iterator[Line]:
        return (self[i] for i in range(len(self)))

    def by_seed(self) -> dict[int, Sequence[Line]]:
        grouped: dict[int, list[int]] = {}
        for place in self._places:
            grouped.setdefault(self._lines.seed_of(place), []).append(place)
        return {seed: Chosen(self._lines, places) for seed, places in grouped.items()}


def by_seed(lines: Iterable[Line]) -> dict[int, Sequence[Line]]:
    """Group lines by seed, in the same order."""
    if isinstance(lines, Chosen):
        return lines.by_seed()
    grouped: dict[int, list[Line]] = {}
    for line in lines:
        grouped.setdefault(line.seed, []).append(line)
    return dict(grouped)
