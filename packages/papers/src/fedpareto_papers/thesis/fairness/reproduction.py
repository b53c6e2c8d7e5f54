"""The thesis's tables of hypervolumes on the command line: what is printed, written and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpareto.campaigns.parallel import Jobs
from fedpareto.config.files import write_atomically
from fedpareto_papers.catalogue import Options, Outcome, Say, json_text, read_json
from fedpareto_papers.claims import Claim
from fedpareto_papers.thesis.fairness import claims, fronts, published, tables
from fedpareto_papers.thesis.fairness.tables import Cell, OnCell, Plan

if TYPE_CHECKING:
    from rich.table import Table


def prepare(name: str, options: Options) -> ThesisTable:
    """One of published.TABLES, with what the user chose."""
    options.refuse(name, "preferences")
    options.must_name_parts()
    plan = Plan.make(
        name,
        quick=options.quick,
        rounds=options.rounds,
        clients=options.clients,
        repetitions=options.seeds or 1,
        problems=options.problems,
        algorithms=options.algorithms,
        settings=options.settings,
    )
    return ThesisTable(plan, options.jobs)


@dataclass(frozen=True)
class ThesisTable:
    """A table, ready to run."""

    plan: Plan
    jobs: Jobs = 1

    @property
    def headline(self) -> str:
        """The table and its size."""
        plan = self.plan
        size = f"{plan.clients} clients, {plan.rounds} rounds, {plan.runs} runs a cell"
        seeds = f", {plan.repetitions} repetitions" if plan.repetitions > 1 else ""
        given = "".join(f", {text}" for text in plan.settings)
        return f"{'QUICK VERSION of ' if plan.quick else ''}{plan.table} ({plan.published.about}): {size}{seeds}{given}"

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The cells, the fronts as a figure, and the verdicts on the thesis's claims."""
        plan = self.plan
        cells = tables.reproduce(plan, folder, _progress(plan, say), stop, self.jobs)
        record = tables.as_json(plan, cells)
        # Claims compare tables: each leaves its cells here for the others.
        write_atomically(_record_file(folder, plan.table), json_text(record))
        files = fronts.write(plan.table, cells, folder)
        judged = [] if plan.quick else _judged(folder, plan)
        record = record | {"claims": [asdict(claim) for claim in judged]}
        return Outcome(record, [_table(self.headline, plan, cells), *_lines(plan, cells), *map(str, judged)], files)


def _record_file(folder: Path, table: str) -> Path:
    return folder / f"{table}.json"


def _judged(folder: Path, plan: Plan) -> list[Claim]:
    """The claims that can be checked on this table, with others of the same size that are in the folder."""
    known: dict[str, list[Cell]] = {}
    for table in published.TABLES:
        record = read_json(_record_file(folder, table))
        if record is not None and tables.is_like(record, plan):
            known[table] = [Cell(**cell) for cell in record["cells"]]
    return [claim for claim in claims.verdicts(known) if claim.verdict != "cannot be judged"]


def _progress(plan: Plan, say: Say) -> OnCell:
    """A row for each cell; the time left is estimated from the cells that were trained, not those only read."""
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
        how = "" if trained else " (already done)"
        say(
            f"cell {number} of {total}, {cell.problem}, {cell.algorithm}: "
            f"ours {_number(cell.ours)}, published {cell.published:.3f}{how}{left}"
        )

    return show


# -- what is printed -----------------------------------------------------------------------------------------------


def _table(headline: str, plan: Plan, cells: list[Cell]) -> Table:
    """Ours, published and difference, a row a problem."""
    from rich.table import Table

    names = [published.TITLES[name] for name in plan.algorithms]
    table = Table("problem", *names, title=headline, caption="ours / published (difference)")
    by_name = {(cell.problem, cell.algorithm): cell for cell in cells}
    for problem in plan.problems:
        table.add_row(problem, *(_shown(by_name[problem, name]) for name in plan.algorithms))
    return table


def _shown(cell: Cell) -> str:
    if cell.ours is None:
        return f"none / {cell.published:.3f}"
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.3f}"
    return f"{cell.ours:.3f}{spread} / {cell.published:.3f} ({_number(cell.difference, '+')})"


def _lines(plan: Plan, cells: list[Cell]) -> Iterator[Any]:
    """The table in a few sentences, the ranges of the fronts, and where the two differ."""
    found = tables.summary(cells)
    yield (
        f"{found.cells} cells: mean difference {_number(found.mean_difference, '+')} "
        f"(absolute {_number(found.mean_absolute_difference)}), largest {_number(found.largest_difference, '+')}; "
        f"ours is at least the published value in {found.at_least_published}"
    )
    if found.without_value:
        yield (
            f"{found.without_value} cells have no value, because no solution converged; no mean counts them (as 0 they "
            f"would make the mean difference {found.mean_difference_with_zeros:+.3f})"
        )
    empty = sum(cell.empty for cell in cells if cell.ours is not None)
    if empty:
        yield f"{empty} repetitions of other cells had no front and count in no mean"
    if plan.quick:
        yield "This was --quick: too few rounds and runs to be compared with what was published."
        return
    yield from claims.differences(cells).sentences()
    yield _ranges(plan, cells)


def _ranges(plan: Plan, cells: list[Cell]) -> Table:
    """The ranges of each front, ours and the published one (the appendix's tables of ranges)."""
    from rich.table import Table

    doubts = dict.fromkeys(
        published.published_range(plan.table, cell.problem, cell.algorithm).doubtful for cell in cells
    )
    note = "; ".join(f"* doubtful: {doubt}" for doubt in doubts if doubt)
    table = Table(
        "problem",
        "algorithm",
        "points",
        "accuracy",
        "published",
        "fairness",
        "published",
        title="Ranges of the fronts (first repetition)",
        caption=note or None,
    )
    for cell in cells:
        ours = published.own_range(cell.front)
        theirs = published.published_range(plan.table, cell.problem, cell.algorithm)
        star = "*" if theirs.doubtful else ""
        table.add_row(
            cell.problem,
            published.TITLES[cell.algorithm],
            str(len(cell.front)),
            _span(ours.accuracy) if ours else "none",
            _span(theirs.accuracy) + star,
            _span(ours.fairness) if ours else "none",
            _span(theirs.fairness) + star,
        )
    return table


def _span(range_: tuple[float, float]) -> str:
    return f"{range_[0]:.3f}–{range_[1]:.3f}"


def _number(value: float | None, sign: str = "") -> str:
    return "none" if value is None else format(value, f"{sign}.3f")
