"""Results of clients by the machine they run on: is a policy fair to slow clients?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.record.units import TIME
from fedpareto.report.comparison import marked_cells
from fedpareto.report.likeness import comparable
from fedpareto.report.machines import OfClients, of_clients
from fedpareto.report.table import Column, Row, Table

if TYPE_CHECKING:
    from rich.console import RenderableType

TITLE = "Clients by device"
NOTE = (
    "Exchange: how long a task and its reply are expected to take, median over the clients. Updates: rounds that used "
    "a reply of a client. Utility: under clients' own preferences, each on its own held-out rows."
)


def by_device(records: Sequence[Record]) -> list[Table]:
    runs = comparable(records)
    found = [[one for seed in run.started if (one := of_clients(run, seed)) is not None] for run in runs]
    timed = [(run, seeds) for run, seeds in zip(runs, found, strict=True) if len(seeds) == len(run.started)]
    if not timed:
        return []
    groups = dict.fromkeys(group for _, seeds in timed for one in seeds for group in one.groups)
    values = {group: [_of_group(seeds, group) for _, seeds in timed] for group in groups}
    every = [one for of_runs in values.values() for one in of_runs]
    columns = tuple(c.suited([one[:, j] for one in every]) for j, c in enumerate(_columns(timed[0][0])))
    timed_runs = [run for run, _ in timed]
    rows = (row for group, of_runs in values.items() for row in _rows(group, timed_runs, of_runs, columns))
    return [Table(columns, tuple(rows), (NOTE,), TITLE)]


def in_terminal(records: Sequence[Record]) -> RenderableType | None:
    for table in by_device(records):
        labels = [row.label if len(records) > 1 else row.label.rpartition(", ")[2] for row in table.rows]
        return table.to_narrow(labels, [column.heading for column in table.columns], caption=NOTE)
    return None


def _columns(run: Record) -> tuple[Column, ...]:
    direction = 1 if not run.single or run.objectives[0].maximise else -1
    what = run.objectives[0].name if run.single else "utility"
    return (
        Column("clients", "clients"),
        Column("exchange", "exchange", 0, TIME),
        Column("updates", "updates of a client"),
        Column("utility", f"mean {what}", direction),
        Column("worst", f"worst {what}", direction),
    )


def _rows(group: str, runs: Sequence[Record], values: Sequence[Array], columns: Sequence[Column]) -> Iterator[Row]:
    having = [(run, one) for run, one in zip(runs, values, strict=True) if (one[:, 0] > 0).any()]
    cells = [
        marked_cells([one[:, j] for _, one in having], column, [run for run, _ in having])
        for j, column in enumerate(columns)
    ]
    for i, (run, _) in enumerate(having):
        yield Row.of(run, f"{run.label}, {group}", (column[i] for column in cells))


def _of_group(seeds: Sequence[OfClients], group: str) -> Array:
    """Columns `[seeds, 5]` of a group."""
    rows = []
    for one in seeds:
        own = one.tier == one.groups.index(group) if group in one.groups else np.zeros(len(one.tier), dtype=bool)
        utility = one.utility[own][np.isfinite(one.utility[own])]
        measured = (utility.mean(), one.worst(utility)) if len(utility) else (np.nan, np.nan)
        means = (np.median(one.seconds[own]), one.updates[own].mean()) if own.any() else (np.nan, np.nan)
        rows.append([own.sum(), *means, *measured])
    return np.array(rows, dtype=np.float64)
