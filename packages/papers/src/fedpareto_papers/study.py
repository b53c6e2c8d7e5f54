"""The framework of all reproductions: cells that run side by side and resume, rows of numbers, tables and files.

A paper fills in which cells there are, what is read of a finished run, and what is shown of the results.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from fedpareto.campaigns.parallel import Pieces, announced
from fedpareto.config.files import write_atomically
from fedpareto.record import reading
from fedpareto.record.run_record import Record
from fedpareto.record.store import RunFolder
from fedpareto.runs.loop import Observe, nothing_more
from fedpareto.runs.progress import Pulse
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text
from fedpareto_papers.claims import Claim

if TYPE_CHECKING:
    from rich.table import Table

Result = TypeVar("Result")


@dataclass(frozen=True)
class Run:
    """A finished run, to be read."""

    folder: Path
    spec: Spec

    @cached_property
    def record(self) -> Record:
        return reading.load(self.folder)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return list(RunFolder(self.folder).read_lines("metrics.jsonl"))


@dataclass(frozen=True)
class Cell:
    """One spec with all its seeds."""

    name: str
    """Also its folder."""
    draft: Mapping[str, Any]
    """The spec as plain values; see spec.draft."""
    read: Callable[[Run], Any]
    """Makes the result of a finished run: a function of a module, so that workers find it."""
    keeps_models: bool = True
    """The clients' models stay in the folder: those of a hundred clients can be hundreds of megabytes."""
    observer: Callable[[], Observe] | None = None
    """Makes what measures more after each round, in the process that runs the cell."""
    called: str = ""
    """Name in messages; empty: that of the folder."""
    tell: Callable[[Any], str] | None = None
    """Says its result in a few words for messages."""

    def spec(self, settings: Sequence[str] = ()) -> Spec:
        """The cell's spec, with parameters that the user set for every run."""
        return Draft(dict(self.draft)).with_settings(settings).finish()


@dataclass(frozen=True, eq=False)
class Found(Generic[Result]):
    """The result of a cell."""

    cell: Cell
    folder: Path
    result: Result
    seconds: float = 0.0
    is_new: bool = True
    """False if all of it was done already."""

    @property
    def name(self) -> str:
        called = self.cell.called or self.cell.name
        return f"{called}: {self.cell.tell(self.result)}" if self.cell.tell else called


def find(settings: Sequence[str], out: Path, cell: Cell, stop: Callable[[], bool]) -> Found[Any]:
    """Run a cell, or what is missing of it, and read its result."""
    spec, folder = cell.spec(settings), out / cell.name
    shown = Pulse(spec, folder)
    shown.name = cell.called or cell.name
    observe = cell.observer() if cell.observer else nothing_more
    is_new = ensure(folder, spec, stop, observe, shown, cell.keeps_models)
    run = RunFolder(folder)
    # A finished run is never resumed, and the state of learners may take gigabytes.
    run.checkpoint_file.unlink(missing_ok=True)
    seconds = float((run.read_json("status.json") or {}).get("seconds", 0.0))
    return Found(cell, folder, cell.read(Run(folder, spec)), seconds, is_new)


@dataclass(frozen=True)
class Study(Generic[Result]):
    """A reproduction, ready to run."""

    name: str
    options: Options

    @property
    def headline(self) -> str:
        """Title and size."""
        quick = "QUICK VERSION of " if self.options.quick else ""
        return f"{quick}{self.title}: {', '.join([*self.size(), *self.options.settings])}"

    @property
    def title(self) -> str:
        """Name and subject."""
        return f"{self.name} ({CATALOGUE[self.name].about})"

    @property
    def settings(self) -> tuple[str, ...]:
        """Parameters of every cell that the user set."""
        return self.options.settings

    def size(self) -> list[str]:
        """Size in words."""
        raise NotImplementedError

    def cells(self) -> Sequence[Cell]:
        """The runs."""
        raise NotImplementedError

    def outcome(self, found: Sequence[Found[Result]], folder: Path) -> Outcome:
        """Make what is shown and written of the results, which are in the order of the cells."""
        raise NotImplementedError

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """Run the cells that are not in the folder yet, and show all of them."""
        pieces = Pieces(partial(find, self.settings), self.cells(), folder, _name)
        found = announced(pieces, self.options.jobs, say, stop)
        # A worker elsewhere may have had another path.
        return self.outcome([replace(one, folder=folder / one.cell.name) for one in found], folder)


def _name(cell: Cell) -> str:
    return cell.name


# -- rows of numbers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A cell of a published table, over its runs."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Row:
    """Metrics of one run, beside published ones."""

    key: Mapping[str, str]
    """The columns that say which run it is, such as its algorithm."""
    values: Mapping[str, list[float]]
    """Numbers by metric, one for each seed."""
    published: Mapping[str, Entry] = field(default_factory=dict)
    """Published numbers by metric; empty where nothing was."""

    def __getitem__(self, column: str) -> str:
        return self.key[column]

    def mean(self, metric: str) -> float:
        return float(np.mean(self.values[metric]))

    def deviation(self, metric: str) -> float:
        """The deviation over the seeds (population)."""
        return float(np.std(self.values[metric]))

    def text(self, metric: str, shown: Callable[[float, float], str]) -> str:
        """Ours, and what was published in brackets, each shown by its mean and its deviation."""
        if metric not in self.values:
            return "–"
        ours, entry = shown(self.mean(metric), self.deviation(metric)), self.published.get(metric)
        return ours if entry is None else f"{ours} ({shown(entry.mean, entry.deviation)})"

    def as_json(self) -> dict[str, Any]:
        """The row with means and deviations."""
        return dict(self.key) | {
            "metrics": {
                metric: {
                    "ours": self.mean(metric),
                    "deviation": self.deviation(metric),
                    "seeds": values,
                    "published": asdict(self.published[metric]) if metric in self.published else None,
                }
                for metric, values in self.values.items()
            }
        }


def by_metric(seeds: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """Numbers of each seed as lists by metric."""
    return {metric: [values[metric] for values in seeds] for metric in seeds[0]}


# -- files and tables ----------------------------------------------------------------------------------------------


def save_json(folder: Path, name: str, record: Mapping[str, Any]) -> list[Path]:
    """Write a record as NAME.json."""
    file = folder / f"{name}.json"
    write_atomically(file, json_text(record))
    return [file]


def save_rows(folder: Path, name: str, rows: Sequence[Row]) -> list[Path]:
    """Write NAME.csv with a line for each number."""
    header = (*(rows[0].key if rows else ()), "metric", "ours", "deviation", "published", "published_deviation")
    lines: list[Sequence[Any]] = []
    for row in rows:
        for metric in row.values:
            entry = row.published.get(metric)
            theirs = ("", "") if entry is None else (entry.mean, entry.deviation)
            lines.append((*row.key.values(), metric, row.mean(metric), row.deviation(metric), *theirs))
    file = folder / f"{name}.csv"
    write_atomically(file, csv_text(header, lines))
    return [file]


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
    return text.getvalue()


def table(
    title: str,
    left: Sequence[str],
    right: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    section: int = 0,
    caption: str | None = None,
) -> Table:
    """A table with columns of words and of numbers; a line where the first `section` words of a row change."""
    from rich.table import Table

    shown = Table(*left, title=title, caption=caption)
    for heading in right:
        shown.add_column(heading, justify="right")
    last: Sequence[str] = ()
    for row in rows:
        if last and last[:section] != row[:section]:
            shown.add_section()
        last = row
        shown.add_row(*row)
    return shown


def judgeable(claims: Iterable[Claim]) -> list[Claim]:
    return [claim for claim in claims if claim.verdict != "cannot be judged"]


def claims_json(claims: Iterable[Claim]) -> dict[str, Any]:
    return {"claims": [asdict(claim) for claim in claims]}
