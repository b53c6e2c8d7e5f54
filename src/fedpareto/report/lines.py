"""The lines of a run in little space: hours of rounds stay in memory, and a Line is made when somebody asks for it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from fedpareto.columns import KEY, Block, Columns
from fedpareto.report._files import Array, Clusters
from fedpareto.report.entries import EVALUATIONS, Line

COUNTS = ("replies", "failures", "bytes_up", "bytes_down")
MEASURED = (
    *("hypervolume", "trained_hypervolume", "seconds", "epsilon"),
    *("clock", "over", "joules", "staleness", "at"),
)
"""Numbers of a line that need not be there."""
NUMBERS = ("seed", "round", *COUNTS, *MEASURED)
"""What is kept of every line, in this order; behind it its averages, and where its blocks begin."""
FIRST_COUNT, FIRST_MEASURED = 2, 2 + len(COUNTS)
Layout = tuple[tuple[str, Block], ...]
"""A line's blocks, as if the first began at 0."""


class Lines(Sequence[Line]):
    """All lines of a run, in the order in which they were written."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._means = len(EVALUATIONS), len(columns.splits), columns.objectives
        self._width = len(NUMBERS) + int(np.prod(self._means)) + 1
        self._numbers = array("d")
        self._seeds: list[int] = []
        self._layouts: list[Layout] = []
        self._rest: list[Mapping[str, Any]] = []
        self._clusters: list[Clusters | None] = []
        self._similar: list[np.ndarray | None] = []
        self._compared: list[tuple[int, ...] | None] = []
        self._shared: dict[Any, Any] = {}
        self._of_seed: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return len(self._seeds)

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
        """One more."""
        numbers, layout = self._kept(line)
        self._numbers.extend(numbers)
        self._of_seed.setdefault(line.seed, array("q")).append(len(self))
        self._seeds.append(self._one_of(line.seed))
        self._layouts.append(layout)
        self._rest.append(self._rest_of(line))
        self._clusters.append(self._one_of(line.few_clusters))
        self._similar.append(line.packed)
        self._compared.append(self._one_of(line.similarity_of))

    def replace(self, place: int, line: Line) -> None:
        """Another in the place of one."""
        numbers, self._layouts[place] = self._kept(line)
        self._numbers[place * self._width : (place + 1) * self._width] = numbers
        self._rest[place], self._similar[place] = self._rest_of(line), line.packed
        self._clusters[place], self._compared[place] = map(self._one_of, (line.few_clusters, line.similarity_of))

    def _kept(self, line: Line) -> tuple[array[float], Layout]:
        blocks: Mapping[str, Block] = line.row.get(KEY, {})
        begin = min((block.at for block in blocks.values()), default=0)
        numbers = array("d", (float(getattr(line, name)) for name in NUMBERS))
        numbers.frombytes(np.ascontiguousarray(line.averages).tobytes())
        numbers.append(begin)
        return numbers, self._one_of(tuple((name, block.moved(-begin)) for name, block in blocks.items()))

    def _rest_of(self, line: Line) -> Mapping[str, Any]:
        return {key: value for key, value in line.row.items() if key not in ("seed", "round", KEY)} or NOTHING

    def _one_of(self, value: Any) -> Any:
        """The same for all lines that have the same."""
        return self._shared.setdefault(value, value)

    def place_of(self, seed: int, round: int) -> int | None:
        """Where the line of a round is, if there is one."""
        places = self._of_seed.get(seed, array("q"))
        if not places or round > self._round(places[-1]):  # Nearly always.
            return None
        return next((place for place in reversed(places) if self._round(place) == round), None)

    def _round(self, place: int) -> int:
        return int(self._numbers[place * self._width + 1])

    # -- reading ---------------------------------------------------------------------------------------------------

    def numbers(self, since: int = 0) -> Array:
        """`[k, …]`: a row for each line, of NUMBERS, the averages, and one more."""
        found = np.frombuffer(self._numbers[since * self._width :].tobytes(), dtype=np.float64)
        return found.reshape(-1, self._width)

    def averages(self, numbers: Array) -> Array:
        """`[k, 2, splits, m]`: those among these numbers."""
        return numbers[:, len(NUMBERS) : -1].reshape(-1, *self._means)

    def rest(self, since: int = 0) -> list[Mapping[str, Any]]:
        """What each line holds beyond its numbers, clusters and similarities."""
        return self._rest[since:]

    def row(self, place: int) -> dict[str, Any]:
        """A line's row: what else it holds, and its blocks."""
        begin = int(self._numbers[(place + 1) * self._width - 1])
        blocks = {name: block.moved(begin) for name, block in self._layouts[place]}
        return {"seed": self._seeds[place], "round": self._round(place), **self._rest[place], KEY: blocks}

    def rows_with(self, name: str, places: Iterable[int]) -> list[dict[str, Any]]:
        """Rows with one of their blocks and nothing else."""
        found = []
        for place in places:
            begin = int(self._numbers[(place + 1) * self._width - 1])
            blocks = {key: block.moved(begin) for key, block in self._layouts[place] if key == name}
            found.append({KEY: blocks})
        return found

    def has_block(self, place: int, name: str) -> bool:
        """Whether a line has values of clients of this name."""
        return any(key == name for key, _ in self._layouts[place])

    def _made(self, place: int) -> Line:
        numbers = self._numbers[place * self._width : (place + 1) * self._width]
        counts = dict(zip(COUNTS, map(int, numbers[FIRST_COUNT:FIRST_MEASURED]), strict=True))
        measured: Any = dict(zip(MEASURED, numbers[FIRST_MEASURED : len(NUMBERS)], strict=True))
        return Line(
            seed=self._seeds[place],
            round=int(numbers[1]),
            **counts,
            **measured,
            averages=np.array(numbers[len(NUMBERS) : -1]).reshape(self._means),
            few_clusters=self._clusters[place],
            packed=self._similar[place],
            similarity_of=self._compared[place],
            row=self.row(place),
            columns=self.columns,
        )

    def ordered(self) -> Chosen:
        """By seed and round."""
        rounds = self.numbers()[:, 1].tolist()
        order = [
            place for seed in sorted(self._of_seed) for place in sorted(self._of_seed[seed], key=rounds.__getitem__)
        ]
        return Chosen(self, order)

    def seed_of(self, place: int) -> int:
        """A line's seed."""
        return self._seeds[place]


NOTHING: Mapping[str, Any] = {}


class Chosen(Sequence[Line]):
    """Some of a run's lines; each is made once, when somebody asks for it."""

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
        """The lines of each seed, in the same order."""
        grouped: dict[int, list[int]] = {}
        for place in self._places:
            grouped.setdefault(self._lines.seed_of(place), []).append(place)
        return {seed: Chosen(self._lines, places) for seed, places in grouped.items()}


def by_seed(lines: Iterable[Line]) -> dict[int, Sequence[Line]]:
    """The lines of each seed, in the same order."""
    if isinstance(lines, Chosen):
        return lines.by_seed()
    grouped: dict[int, list[Line]] = {}
    for line in lines:
        grouped.setdefault(line.seed, []).append(line)
    return dict(grouped)
