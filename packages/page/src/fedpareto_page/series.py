"""The numbers of a run's lines as columns that grow with it: each line is looked at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo.fairness import LOW_SHARE, shares_improved
from fedpareto.record.chunked_array import Pieces
from fedpareto.record.entries import EVALUATIONS
from fedpareto.record.lines import NUMBERS, Lines
from fedpareto.record.run_record import Record

Array = NDArray[np.float64]

LEFT_OUT = ("over",)
"""Of the numbers that are kept of a line: the page has no use for it."""


class Series:
    """By name, a number of each line, NaN where it is not known; what follows from clients' values is kept here."""

    def __init__(self) -> None:
        self.epoch = 0
        self._begin()

    def _begin(self) -> None:
        self.total = 0
        self._columns: dict[str, Pieces] = {}
        self._losses: dict[int, tuple[int, Array, NDArray[np.int64]]] = {}

    def follow(self, about: Record, lines: Lines, epoch: int) -> None:
        """Takes lines into account that were not there before; in another epoch, all anew."""
        if epoch != self.epoch or len(lines) < self.total:
            self.epoch = epoch
            self._begin()
        count = len(lines) - self.total
        if not count:
            return
        for name, values in self._derived(about, lines):
            column = self._columns.setdefault(name, Pieces(1, "<f8"))
            column.extend(np.full((self.total - len(column), 1), np.nan))
            column.extend(np.asarray(values, dtype=np.float64)[:, None])
        self.total += count
        for column in self._columns.values():
            column.extend(np.full((self.total - len(column), 1), np.nan))

    def since(self, about: Record, lines: Lines, since: int) -> dict[str, Array]:
        """The numbers of the lines from this one on."""
        numbers = lines.numbers(since)
        found = {name: numbers[:, i] for i, name in enumerate(NUMBERS) if name not in LEFT_OUT}
        averages = lines.averages(numbers)
        for e, evaluation in enumerate(EVALUATIONS):
            for s, split in enumerate(about.splits):
                for j in range(len(about.objectives)):
                    found[f"{evaluation}.{split}.{j}"] = averages[:, e, s, j]
        return found | {name: column.since(since)[:, 0] for name, column in self._columns.items()}

    def _derived(self, about: Record, lines: Lines) -> Iterator[tuple[str, Array]]:
        places, own = range(self.total, len(lines)), about.splits.index(about.own_split)
        points = values_of(lines, places, "sent", own)
        for j, objective in enumerate(about.objectives):
            worst, nine = low_ends(points[:, j], objective.maximise)
            yield f"sent.worst.{j}", worst
            yield f"sent.nine.{j}", nine
        yield "improved", np.array([self._improved(lines, place) for place in places])
        rest = lines.rest(self.total)
        for name in dict.fromkeys(name for one in rest for name, value in one.items() if _is_number(value)):
            values = (one.get(name) for one in rest)
            yield name, np.array([value if _is_number(value) else np.nan for value in values], dtype=np.float64)

    def _improved(self, lines: Lines, place: int) -> float:
        """The share of the participants whose loss did not rise in a round; NaN where losses were not measured."""
        if not lines.has_block(place, "losses"):
            return float("nan")
        line = lines[place]
        losses, before = line.losses, self._losses.get(line.seed)
        assert losses is not None
        now = self._losses[line.seed] = line.round, losses, line.columns.participants(line.row)
        return shares_improved([before, now]).get(line.round, np.nan) if before is not None else np.nan


def values_of(lines: Lines, places: Sequence[int], evaluation: str, split: int) -> Array:
    """`[k, m, n]`: what each client has by line and objective; NaN where it is not known."""
    return lines.columns.stacked(lines.rows_with(evaluation, places), evaluation, split)


def low_ends(values: Array, maximise: bool) -> tuple[Array, Array]:
    """Of values `[k, n]`, the worst of each row, and what nine of ten have at least; NaN without any."""
    ordered = np.sort(values if maximise else -values, axis=1)  # NaN comes last.
    known = np.isfinite(ordered).sum(axis=1)
    place = np.maximum(known - 1, 0) * (LOW_SHARE / 100)
    low = np.floor(place).astype(np.int64)
    rows = np.arange(len(ordered))
    at, above = ordered[rows, low], ordered[rows, np.minimum(low + 1, np.maximum(known - 1, 0))]
    nine = at + (above - at) * (place - low)
    sign = 1.0 if maximise else -1.0
    return sign * ordered[:, 0], sign * nine


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
