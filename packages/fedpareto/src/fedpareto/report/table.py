"""A table of runs and metrics, for a terminal, a README, a page or a program."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.moo.fairness import Evaluation
from fedpareto.moo.intervals import interval
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record, mean_and_deviation
from fedpareto.record.units import COUNT, Quantity

if TYPE_CHECKING:
    from rich.console import RenderableType


MISSING = "–"
PLUS_MINUS = " ± "
SIGNIFICANT = 4
"""Digits of a column's largest mean."""


@dataclass(frozen=True)
class Column:
    """One metric."""

    key: str
    title: str
    direction: int = 0
    """1 when higher is better, -1 when lower is, 0 when neither is."""
    quantity: Quantity = COUNT
    """The quantity of the values; a program gets them as they are counted, a reader in a unit that suits the column."""
    unit: tuple[str, float] = ("", 1.0)
    """The reader's unit, and its size in what is counted."""

    @property
    def heading(self) -> str:
        """The title with its unit, and an arrow towards better."""
        unit = f" ({self.unit[0]})" if self.unit[0] else ""
        return self.title + unit + {1: " ↑", -1: " ↓", 0: ""}[self.direction]

    def suited(self, values: Sequence[Array]) -> Column:
        """Return the column in a unit that suits these values of several runs."""
        means = [mean_and_deviation(one)[0] for one in values]
        return replace(self, unit=self.quantity.unit(max((one for one in means if math.isfinite(one)), default=0.0)))


@dataclass(frozen=True)
class Cell:
    """One metric of one run."""

    values: tuple[float, ...]
    """Values by started seed; NaN where the metric is not known."""
    text: str
    best: bool = False

    @property
    def mean(self) -> float:
        return mean_and_deviation(np.array(self.values))[0]

    @property
    def mean_text(self) -> str:
        """The text without the deviation, where space is short."""
        return self.text.partition(PLUS_MINUS)[0]

    @property
    def deviation(self) -> float:
        """Population deviation (ddof 0) over the seeds."""
        return mean_and_deviation(np.array(self.values))[1]


@dataclass(frozen=True)
class Row:
    """One run."""

    label: str
    algorithm: str
    folder: str
    """The folder's own name, without its path: a table may be shared."""
    status: str
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    evaluation: Evaluation | None = None
    """The evaluation, where the table has both."""
    is_reference: bool = False
    """True for a reference that runs are compared with."""

    @classmethod
    def of(cls, run: Record, label: str, cells: Iterable[Cell], evaluation: Evaluation | None = None) -> Row:
        about = run.algorithm, run.folder.name, run.status.name, run.started
        return cls(label, *about, tuple(cells), evaluation)


@dataclass(frozen=True)
class Table:
    """The result of `comparison`, for a terminal, a README, a page or a program."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    title: str = ""

    def cell(self, label: str, key: str) -> Cell:
        """The metric `key` of the run `label`."""
        row = next(row for row in self.rows if row.label == label)
        return row.cells[[column.key for column in self.columns].index(key)]

    def to_rich(self, width: int) -> RenderableType:
        """For a terminal, which is narrow: one row per metric, one column per run.

        Runs that do not fit into `width` characters are in further tables below; if one does not, it loses its
        deviations.
        """
        from rich.console import Group
        from rich.text import Text

        most = max(len(column.heading) for column in self.columns)
        left = width - most - len("┃  ┃┃")
        widths = [
            max(len(row.label.partition(" ")[0]), *(len(cell.text) for cell in row.cells)) + len("  ┃")
            for row in self.rows
        ]
        parts: list[list[Row]] = [[]]
        used = 0
        for row, needed in zip(self.rows, widths, strict=True):
            if parts[-1] and used + needed > left:
                parts.append([])
                used = 0
            parts[-1].append(row)
            used += needed
        is_short = max(widths) > left
        return Group(
            *(self._rich_part(part, is_short) for part in parts), *(Text(note, style="dim") for note in self.notes)
        )

    def _rich_part(self, rows: Sequence[Row], is_short: bool) -> RenderableType:
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable()
        table.add_column("", no_wrap=True)
        for row in rows:
            table.add_column(Text(row.label), justify="right")
        for j, column in enumerate(self.columns):
            cells = [row.cells[j] for row in rows]
            texts = [
                Text(cell.mean_text if is_short else cell.text, style="bold green" if cell.best else "")
                for cell in cells
            ]
            table.add_row(Text(column.heading), *texts)
        return table

    def to_narrow(
        self, labels: Sequence[str], headings: Sequence[str], title: str = "", caption: str = ""
    ) -> RenderableType:
        """For a narrow terminal: one row per row, with means only, the best in bold."""
        from rich.table import Table as RichTable
        from rich.text import Text

        style: Any = {"title_justify": "left", "caption_justify": "left"}
        table = RichTable(title=Text(title or self.title), caption=Text(caption) if caption else None, **style)
        for heading in ("", *headings):
            table.add_column(heading, justify="right" if heading else "left")
        for label, row in zip(labels, self.rows, strict=True):
            cells = (Text(cell.mean_text, style="bold green" if cell.best else "") for cell in row.cells)
            table.add_row(Text(label), *cells)
        return table

    def to_markdown(self) -> str:
        """One row per run, the best values in bold."""
        lines = [["run", *(_escaped(column.heading) for column in self.columns)]]
        lines.append(["---", *("---:" for _ in self.columns)])
        for row in self.rows:
            cells = [f"**{cell.text}**" if cell.best else cell.text for cell in row.cells]
            lines.append([_escaped(row.label), *cells])
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        title = f"## {_escaped(self.title)}\n\n" if self.title else ""
        return "\n\n".join([title + body, *(_escaped(note) for note in self.notes)]) + "\n"

    def to_json(self) -> str:
        return json.dumps(self.to_plain(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_plain(self) -> dict[str, Any]:
        """Return everything, with one value per seed; numbers that are not finite are null."""
        words = {1: "higher", -1: "lower", 0: None}
        columns = [
            {"key": c.key, "title": c.title, "better": words[c.direction], **c.quantity.counted_in}
            for c in self.columns
        ]
        keys = [column.key for column in self.columns]
        rows = [
            {
                "label": row.label,
                "algorithm": row.algorithm,
                "folder": row.folder,
                "status": row.status,
                "seeds": list(row.seeds),
                **({"evaluation": row.evaluation} if row.evaluation else {}),
                **({"reference": True} if row.is_reference else {}),
                "values": {k: _json_cell(cell) for k, cell in zip(keys, row.cells, strict=True)},
            }
            for row in self.rows
        ]
        title = {"title": self.title} if self.title else {}
        return title | {"columns": columns, "rows": rows, "notes": list(self.notes)}


def decimals_of(values: Sequence[Array], means: Array) -> int | None:
    """Decimal places of a column's numbers, None where they would be unreadable."""
    known = np.concatenate(values)
    if (known == np.round(known)).all():
        # Counts: not 1.000 replies.
        return int((means != np.round(means)).any())
    largest = float(np.abs(means[np.isfinite(means)]).max(initial=0.0))
    if largest == 0.0:
        return 0
    places = SIGNIFICANT - 1 - math.floor(math.log10(largest))
    return None if not -8 < places < 8 else max(places, 0)


def cell_text(values: Array, decimals: int | None) -> str:
    if np.isnan(values).all():
        return MISSING
    mean, deviation = mean_and_deviation(values)
    parts = [mean] if len(values) == 1 else [mean, deviation]
    return PLUS_MINUS.join(number_text(part, decimals) for part in parts)


def number_text(value: float, decimals: int | None) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if math.isnan(value):
        return "NaN"
    text = f"{value:.{SIGNIFICANT}g}" if decimals is None else f"{value:,.{decimals}f}"
    return text.replace("-", "−")


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", html.escape(text, quote=False))


def _json_cell(cell: Cell) -> dict[str, Any]:
    numbers = [finite(value) for value in cell.values]
    around = interval(cell.values)
    return {
        "mean": finite(cell.mean),
        "deviation": finite(cell.deviation),
        "interval": None if around is None else [around.low, around.high],
        "best": cell.best,
        "per_seed": numbers,
    }


def finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
