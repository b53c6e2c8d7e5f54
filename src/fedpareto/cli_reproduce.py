"""`fedpareto reproduce`: a published table, run again and printed beside what was published."""

from __future__ import annotations

import shlex
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from fedpareto.experiments.reproduce.tables import Cell, OnCell, Plan

OUT, QUICK_OUT = Path("runs/reproduce"), Path("runs/reproduce-quick")


def reproduce(
    table: Annotated[str, typer.Argument(help="thesis-5.2, 5.3, 5.4, 5.5, A.17 or A.20, each with thesis- before it.")],
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds, 3 runs a cell: about a minute a table.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write one record a cell here.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the runs are kept.  [default: runs/reproduce(-quick)]")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Repetitions of every cell, for the deviation.")] = 1,
    rounds: Annotated[int | None, typer.Option(help="How many.  [default: 20; with --quick 3]")] = None,
    clients: Annotated[int | None, typer.Option(help="How many.  [default: the table's, 10 or 50]")] = None,
    problem: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this row, such as adult-gender; may be repeated.")
    ] = None,
    algorithm: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this column, such as cfl; may be repeated.")
    ] = None,
) -> None:
    """Run a table of the thesis again: our hypervolumes beside the published ones.

    Ctrl-C or SIGTERM stops after the round under way; the same command goes on from there.

    Example: fedpareto reproduce thesis-5.4 --quick --json table.json
    """
    from fedpareto.experiments.progress import Interrupts
    from fedpareto.experiments.reproduce import tables
    from fedpareto.experiments.runner import Stopped

    plan = tables.Plan.make(
        table,
        quick=quick,
        rounds=rounds,
        clients=clients,
        repetitions=seeds,
        problems=problem or (),
        algorithms=algorithm or (),
    )
    if json is not None and not json.absolute().parent.is_dir():  # Better now than after the last cell.
        raise UserError(f"--json {json}: there is no folder {json.absolute().parent}")
    folder = out or (QUICK_OUT if quick else OUT)
    _say(_headline(plan))
    with Interrupts() as interrupts:
        try:
            cells = tables.reproduce(plan, folder, _progress(plan), interrupts.asked)
        except (Stopped, KeyboardInterrupt) as stopped:
            _say(
                f"{str(stopped) or 'interrupted'}; all is kept in {shlex.quote(str(folder))}, the same command goes on"
            )
            raise typer.Exit(interrupts.exit_code) from None
    if json is not None:
        tables.write_json(json, plan, cells)
    _print(plan, cells)


def _headline(plan: Plan) -> str:
    size = f"{plan.clients} clients, {plan.rounds} rounds, {plan.runs} runs a cell"
    seeds = f", {plan.repetitions} repetitions" if plan.repetitions > 1 else ""
    return f"{'QUICK VERSION of ' if plan.quick else ''}{plan.table} ({plan.published.about}): {size}{seeds}"


def _progress(plan: Plan) -> OnCell:
    """A line for each cell; the time left is judged by the cells that were trained, not by those only read."""
    total, trained_cells, reading = len(plan.cells), 0, 0.0
    last = 0.0

    def show(number: int, cell: Cell, trained: bool, seconds: float) -> None:
        nonlocal trained_cells, reading, last
        trained_cells += trained
        reading += 0.0 if trained else seconds - last
        last = seconds
        left = ""
        if trained_cells and number < total:
            each = (seconds - reading) / trained_cells
            left = f", about {timedelta(seconds=round(each * (total - number)))} left"
        how = "" if trained else " (was there)"
        _say(
            f"cell {number} of {total}, {cell.problem}, {cell.algorithm}: "
            f"ours {_number(cell.ours)}, published {cell.published:.3f}{how}{left}"
        )

    return show


def _print(plan: Plan, cells: list[Cell]) -> None:
    from rich.console import Console

    from fedpareto.experiments.reproduce.tables import summary

    console = Console()
    # In a pipe there is no width to fit into; a cut table would lose words.
    (console if console.is_terminal else Console(width=1000)).print(_table(plan, cells))
    found = summary(cells)
    typer.echo(
        f"{found.cells} cells: mean difference {_number(found.mean_difference, '+')} "
        f"(absolute {_number(found.mean_absolute_difference)}), largest {_number(found.largest_difference, '+')}; "
        f"ours is at least the published value in {found.at_least_published}"
    )
    if found.without_value:
        typer.echo(
            f"{found.without_value} cells have no value, because no solution converged; no mean counts them (as 0 they "
            f"would make the mean difference {found.mean_difference_with_zeros:+.3f})"
        )
    empty = sum(cell.empty for cell in cells if cell.ours is not None)
    if empty:
        typer.echo(f"{empty} repetitions of other cells had no front and count in no mean")
    if plan.quick:
        typer.echo("This was --quick: too few rounds and runs to be compared with what was published.")


def _table(plan: Plan, cells: list[Cell]) -> Table:
    """Ours, published and difference, a row a problem."""
    from rich.table import Table

    from fedpareto.experiments.reproduce.published import TITLES

    table = Table(
        "problem",
        *(TITLES[name] for name in plan.algorithms),
        title=_headline(plan),
        caption="ours / published (difference)",
    )
    by_name = {(cell.problem, cell.algorithm): cell for cell in cells}
    for problem in plan.problems:
        table.add_row(problem, *(_shown(by_name[problem, name]) for name in plan.algorithms))
    return table


def _shown(cell: Cell) -> str:
    if cell.ours is None:
        return f"none / {cell.published:.3f}"
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.3f}"
    return f"{cell.ours:.3f}{spread} / {cell.published:.3f} ({_number(cell.difference, '+')})"


def _number(value: float | None, sign: str = "") -> str:
    return "none" if value is None else format(value, f"{sign}.3f")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
