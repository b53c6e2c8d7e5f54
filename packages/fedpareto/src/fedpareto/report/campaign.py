"""The runs of a sweep in one table: what was varied, and the headline figures over the seeds.

A choice among runs is made on validation rows, which test rows have no say in, and only where the seeds support it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.moo.indicators import hypervolume
from fedpareto.record.phrases import counted
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record, mean_and_deviation
from fedpareto.report.comparison import comparison, differ, marked_cells
from fedpareto.report.gains import LOCAL
from fedpareto.report.likeness import comparable, unlike
from fedpareto.report.table import MISSING, Cell, Column, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

VALIDATION = "validation"
HEADLINES = ("hypervolume", "own_utility", "epsilon", "seconds")
"""Metrics of a comparison that are shown, besides the means of the objectives."""
MOST_NAMED = 5
"""Most runs in a sentence."""
MOST_DRAWN = 7
"""Most runs in a figure: there are as many colours that a reader tells apart."""


@dataclass(frozen=True)
class Summary:
    """Finished runs that can be compared."""

    records: tuple[Record, ...]
    settings: tuple[Mapping[str, str], ...]
    """Varied values of each run."""
    table: Table
    """All metrics of all runs."""
    columns: tuple[Column, ...]
    """The headline figures, on validation rows first."""
    cells: tuple[tuple[Cell, ...], ...]
    """Cells of the columns, by run."""
    chosen: str
    """The run that is best on validation rows beyond doubt; empty if there is none."""
    sentence: str
    """The choice in words, or the reason why there is none."""

    @property
    def axes(self) -> list[str]:
        """Keys that were varied in any run."""
        return list(dict.fromkeys(key for one in self.settings for key in one))

    def to_rich(self, width: int | None = None) -> RichTable:
        """A row for each run; without deviations if it would not fit into so many characters."""
        from rich.table import Table as RichTable
        from rich.text import Text

        axes = [max(map(len, (axis, *(one.get(axis, "") for one in self.settings)))) for axis in self.axes]
        texts_of = zip(*([cell.text for cell in one] for one in self.cells), strict=True)
        columns = [max(map(len, (one.heading, *of_one))) for one, of_one in zip(self.columns, texts_of, strict=True)]
        is_short = width is not None and sum(each + len("  │") for each in (*axes, *columns)) + 1 > width
        table = RichTable()
        for axis in self.axes:
            table.add_column(Text(axis))
        for column in self.columns:
            table.add_column(Text(column.heading), justify="right")
        for settings, cells in zip(self.settings, self.cells, strict=True):
            words = (Text(settings.get(axis, MISSING)) for axis in self.axes)
            texts = (cell.mean_text if is_short else cell.text for cell in cells)
            styles = ("bold green" if cell.best else "" for cell in cells)
            table.add_row(*words, *map(Text, texts, styles))
        return table

    def to_plain(self) -> dict[str, Any]:
        table = self.table.to_plain()
        for settings, row in zip(self.settings, table["rows"], strict=False):  # References come after the runs.
            row["settings"] = dict(settings)
        return table | {"chosen": self.chosen or None, "choice": self.sentence}

    @property
    def best(self) -> list[Path]:
        """The folders of the runs that a figure has room for, the best by the first column, in their order.

        The best run of `local` is among them: the gain over training alone is measured from it.
        """
        scores = np.array([cells[0].mean for cells in self.cells]) * -self.columns[0].direction
        ranked = np.argsort(scores, kind="stable").tolist()
        alone = [place for place in ranked if self.records[place].algorithm == LOCAL][:1]
        best = [*alone, *(place for place in ranked if place not in alone)][:MOST_DRAWN]
        return [self.records[place].folder for place in sorted(best)]


def summary(records: Sequence[Record], settings: Sequence[Mapping[str, str]]) -> Summary:
    runs = comparable(records)
    table = comparison(records)
    means = [f"mean_{j}" for j in range(len(runs[0].objectives))]
    shown = [place for place, column in enumerate(table.columns) if column.key in (*HEADLINES, *means)]
    columns = [table.columns[place] for place in shown]
    cells = [[row.cells[place] for row in table.rows[: len(runs)]] for place in shown]
    chosen, sentence = "", f"No choice is named: '{runs[0].problem}' has no validation rows to choose by."
    if all(VALIDATION in run.splits for run in runs):
        column, values = _on_validation(runs)
        marked = marked_cells(values, column, runs)
        columns, cells = [column, *columns], [marked, *cells]
        chosen, sentence = _choice(runs, marked, values, column)
    of_runs = tuple(zip(*cells, strict=True))
    return Summary(tuple(records), tuple(settings), table, tuple(columns), of_runs, chosen, sentence)


def _on_validation(runs: Sequence[Record]) -> tuple[Column, list[Array]]:
    first = runs[0].objectives[0]
    if runs[0].single:
        direction = 1 if first.maximise else -1
        column = Column(VALIDATION, f"mean {first.name} on validation rows", direction)
        return column, [np.array([points[:, 0].mean() for points in run.points(VALIDATION)]) for run in runs]
    reference = [objective.reference for objective in runs[0].objectives]
    return Column(VALIDATION, "hypervolume on validation rows", 1), [
        np.array(
            [hypervolume(one[np.isfinite(one).all(axis=1)], reference, run.maximise) for one in run.points(VALIDATION)]
        )
        for run in runs
    ]


def _choice(runs: Sequence[Record], marked: Sequence[Cell], values: list[Array], column: Column) -> tuple[str, str]:
    names = [run.folder.name for run in runs]
    if len(runs) < 2:
        return "", "There is nothing to choose: this is the only run."
    if different := unlike(runs):
        return "", f"No choice is named. {different[0]}"
    best = [name for name, cell in zip(names, marked, strict=True) if cell.best]
    if len(best) == 1:
        return best[0], (
            f"Chosen: {best[0]}, the best {column.title}; the 95 % intervals of its paired differences to all others "
            "exclude zero."
        )
    if min(len(run.started) for run in runs) < 2:
        return "", "No choice is named: one seed says nothing about others; sweep with several, such as seeds: 5."
    scores = np.array([mean_and_deviation(one)[0] for one in values]) * column.direction
    first = int(np.argmax(np.where(np.isfinite(scores), scores, -np.inf)))
    alike = [name for place, name in enumerate(names) if place == first or not differ(first, place, values, runs)]
    more = f" and {len(alike) - MOST_NAMED} more" if len(alike) > MOST_NAMED else ""
    return "", (
        f"No choice is named: {counted(len(alike), 'run')} cannot be told apart by the {column.title} over these "
        f"seeds ({', '.join(alike[:MOST_NAMED])}{more})."
    )
