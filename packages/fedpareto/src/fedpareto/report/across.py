"""Statistics over clients, in tables: a row for each run and evaluation, a column for each statistic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.moo.fairness import Evaluation, across_objectives
from fedpareto.record.entries import EVALUATIONS, OWN_TEST
from fedpareto.record.run_record import Record
from fedpareto.report.comparison import marked_cells
from fedpareto.report.likeness import comparable
from fedpareto.report.table import Column, Row, Table

if TYPE_CHECKING:
    from rich.console import RenderableType

NOTES = (
    "Mean ± population deviation over the seeds, of the clients that have a value. Sent: the models after the last "
    "round. Trained: those of the participants of the last evaluated round after its local steps, before the server "
    "made the next of them; the same where clients end with the models that they trained.",
    "Nine tenths of the clients do at least as well as the percentile says. Jain's index is 1 where all clients have "
    "the same; it depends on where zero is.",
)
"""Notes below the last table."""
HEADINGS = ("mean", "dev.", "worst", "low 10 %", "best", "Jain")
"""Headings in a terminal."""


def across_clients(records: Sequence[Record]) -> list[Table]:
    """Make a table for each objective: statistics over the clients of every run, by both evaluations; none for one
    client.
    """
    runs = [run for run in comparable(records) if run.clients > 1 and any(map(run.last_values, EVALUATIONS))]
    return [_across_table(runs, j) for j in range(len(runs[0].objectives))] if runs else []


def _across_table(runs: Sequence[Record], j: int) -> Table:
    columns = _across_columns(runs[0], j)
    rows = [row for evaluation in EVALUATIONS for row in _across_rows(runs, j, evaluation, columns)]
    is_last, is_own = j == len(runs[0].objectives) - 1, runs[0].own_split == OWN_TEST
    where = "Each client on its own test rows." if is_own else f"Measured {runs[0].measured}."
    return Table(
        columns,
        tuple(rows),
        (where, *NOTES) if is_last else (),
        f"{runs[0].objectives[j].name} across clients",
    )


def _across_columns(run: Record, j: int) -> tuple[Column, ...]:
    objective = run.objectives[j]
    direction = 1 if objective.maximise else -1
    # Clients with different preferences are not meant to have equal objectives.
    even = 1 if run.single else 0
    return (
        Column("mean", "mean", direction),
        Column("deviation", "deviation", -even),
        Column("worst", "worst", direction),
        Column("low", "10th percentile" if objective.maximise else "90th percentile", direction),
        Column("best", "best", direction),
        Column("jain", "Jain's index", even),
    )


def _across_rows(runs: Sequence[Record], j: int, evaluation: Evaluation, columns: Sequence[Column]) -> Iterator[Row]:
    measured = [run for run in runs if run.last_values(evaluation)]
    if not measured:
        return
    found = [[across_objectives(v, run.maximise)[j] for v in run.last_values(evaluation)] for run in measured]
    cells = []
    for column in columns:
        # None, of an index that has no meaning, becomes NaN.
        values = [np.array([getattr(one, column.key) for one in seeds], dtype=np.float64) for seeds in found]
        cells.append(marked_cells(values, column, measured))
    for i, run in enumerate(measured):
        yield Row.of(run, f"{run.label}, {evaluation}", (column[i] for column in cells), evaluation)


def in_terminal(records: Sequence[Record]) -> RenderableType | None:
    from rich.console import Group

    tables, is_alone = across_clients(records), len(records) == 1
    narrow = (
        table.to_narrow(
            [str(row.evaluation) if is_alone else row.label for row in table.rows],
            HEADINGS,
            f"{table.title} {table.columns[0].heading[-1]}",  # Which way is better.
        )
        for table in tables
    )
    return Group(*narrow) if tables else None
