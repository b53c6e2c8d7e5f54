"""The numbers of a run's lines as columns that grow with it: each line is looked at once."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo.fairness import LOW_SHARE, shares_improved
from fedpareto.report.entries import EVALUATIONS, Line
from fedpareto.report.parsing import COUNTS, MEASURED
from fedpareto.report.record import Record

Array = NDArray[np.float64]

FIELDS = ("seed", "round", *(name for name in (*MEASURED, *COUNTS) if name != "over"))


class Series:
    """By name, a number of each line, NaN where it is not known."""

    def __init__(self) -> None:
        self.epoch, self.total = 0, 0
        self._columns: dict[str, array[float]] = {}
        self._losses: dict[int, tuple[int, Array, NDArray[np.int64]]] = {}

    def follow(self, about: Record, lines: Sequence[Line], epoch: int) -> None:
        """Takes lines into account that were not there before; in another epoch, all anew."""
        if epoch != self.epoch or len(lines) < self.total:
            self.__init__()  # type: ignore[misc]
            self.epoch = epoch
        new = lines[self.total :]
        if not new:
            return
        for name, values in self._numbers(about, new):
            column = self._columns.setdefault(name, array("d"))
            column.extend([np.nan] * (self.total - len(column)))
            column.frombytes(np.ascontiguousarray(values, dtype=np.float64).tobytes())
        self.total += len(new)
        for column in self._columns.values():
            column.extend([np.nan] * (self.total - len(column)))

    def since(self, since: int) -> dict[str, Array]:
        """The numbers of the lines from this one on."""
        return {name: np.array(column[since:], dtype=np.float64) for name, column in self._columns.items()}

    def _numbers(self, about: Record, lines: Sequence[Line]) -> Iterator[tuple[str, Array]]:
        for name in FIELDS:
            yield name, np.array([getattr(line, name) for line in lines], dtype=np.float64)
        averages = np.stack([line.averages for line in lines])
        m, own = len(about.objectives), about.splits.index(about.own_split)
        for e, evaluation in enumerate(EVALUATIONS):
            for s, split in enumerate(about.splits):
                for j in range(m):
                    yield f"{evaluation}.{split}.{j}", averages[:, e, s, j]
            points = values_of(lines, evaluation, own)
            for j, objective in enumerate(about.objectives):
                worst, nine = low_ends(points[:, j], objective.maximise)
                yield f"{evaluation}.worst.{j}", worst
                yield f"{evaluation}.nine.{j}", nine
        yield "improved", np.array([self._improved(line) for line in lines])
        others = dict.fromkeys(name for line in lines for name, value in line.row.items() if _is_number(value))
        for name in others.keys() - set(FIELDS):
            values = (line.row.get(name) for line in lines)
            yield name, np.array([value if _is_number(value) else np.nan for value in values], dtype=np.float64)

    def _improved(self, line: Line) -> float:
        """The share of the participants whose loss did not rise in a round; NaN where losses were not measured."""
        losses = line.losses
        if losses is None:
            return float("nan")
        now = line.round, losses, line.columns.participants(line.row)
        before = self._losses.get(line.seed)
        self._losses[line.seed] = now
        return shares_improved([before, now]).get(line.round, np.nan) if before is not None else np.nan


def values_of(lines: Sequence[Line], evaluation: str, split: int) -> Array:
    """`[k, m, n]`: what each client has by line and objective; NaN where it is not known."""
    return lines[0].columns.stacked([line.row for line in lines], evaluation, split)


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
