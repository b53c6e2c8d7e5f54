"""Conclusions of section 5.3 of the thesis (claims.toml), checked on our tables, and how far ours are from its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness.published import TITLES

if TYPE_CHECKING:
    from fedpareto_papers.thesis.fairness.reproduction import Pooled

FEDERATED = tuple(name for name in published.ALGORITHMS if name != "local")
FAR = 0.05
"""A mean difference beyond this is pointed out."""
LARGEST = 5
"""Number of single cells that are named."""


def verdicts(cells_by_table: Mapping[str, Sequence[Pooled]]) -> list[Claim]:
    """Every claim, checked on our cells of the tables (such as thesis-5.2) that there are."""
    return _Judge(cells_by_table).verdicts()


def holds_as_published() -> list[Claim]:
    """Every claim, checked on the thesis's own numbers."""
    return _OnPublished().verdicts()


class _Judge(Judge):
    package = "fedpareto_papers.thesis.fairness"

    def __init__(self, cells_by_table: Mapping[str, Sequence[Pooled]]) -> None:
        """Hypervolumes by table, problem and algorithm, without the cells that have none."""
        every = {(table, one.problem, one.algorithm): one for table, cells in cells_by_table.items() for one in cells}
        super().__init__({key: one.ours for key, one in every.items() if one.ours is not None})
        self.points = {key: len(one.front) for key, one in every.items() if one.front}

    def places(self) -> Iterable[str]:
        return ("all problems",)

    def key(self, at: At, name: str) -> tuple[str, ...]:
        return at.given, at.place, name

    def name(self, name: str) -> str:
        return TITLES[name]

    def number(self, at: At, value: float) -> str:
        return f"{value:.3f}"

    def conclude(self, one: Statement, parts: Mapping[str, Sequence[Part]]) -> tuple[Verdict, str]:
        if one.hook == "fewer_points":
            return self.on_points(*one.given)
        table = one.given[0]
        if not any(key[0] == table for key in self.values):
            return "cannot be judged", f"needs cells of {table} with a value"
        verdict, detail = judged(one.what, [part for found in parts.values() for part in found])
        if one.hook:
            # The thesis says more, "in almost all cases, all federated algorithms", which has no clear threshold.
            keys = [(table, problem, name) for problem in one.places for name in FEDERATED]
            pairs = [(self.values.get(key), self.values.get((*key[:2], "local"))) for key in keys]
            won = [ours > local for ours, local in pairs if ours is not None and local is not None]
            detail += f"; of all federated cells, {sum(won)} of {len(won)} beat it" if won else ""
        return verdict, detail

    def best_federated_beats_local(self, one: Statement, problem: str) -> Iterator[Part]:
        at = At(problem, given=one.given[0])
        missing = [name for name in published.ALGORITHMS if self.key(at, name) not in self.values]
        federated = tuple(name for name in FEDERATED if name not in missing)
        compared = replace(one, better=federated, than=("local",))
        part = self.compare(compared, at) if federated and "local" not in missing else None
        # A missing algorithm might have been the best.
        lacks = part is None or (missing and not part.holds)
        yield Part(problem, None, self.unknown(one, missing)) if part is None or lacks else part

    def fewer_points(self, one: Statement, place: str) -> Iterable[Part]:
        return ()  # All of the tables together; see `conclude`.

    def on_points(self, deo: str, ddp: str) -> tuple[Verdict, str]:
        """Holds if there are fewer both on average and in most pairs of cells that differ in nothing but the gap."""
        pairs = [
            (self.points.get((deo, problem, name)), self.points.get((ddp, f"{problem.removesuffix('deo')}ddp", name)))
            for problem in published.TABLES[deo].cells
            for name in published.ALGORITHMS
        ]
        both = [(first, second) for first, second in pairs if first is not None and second is not None]
        if not both:
            return "cannot be judged", f"needs cells with a front in both {deo} and {ddp}"
        means = [fmean(column) for column in zip(*both, strict=True)]
        fewer, more = (sum(sign * (b - a) > 0 for a, b in both) for sign in (-1, 1))
        left_out = f"; {len(pairs) - len(both)} pairs lack a front" if len(both) < len(pairs) else ""
        detail = (
            f"{means[1]:.1f} points a front with DDP against {means[0]:.1f} with DEO; "
            f"fewer in {fewer} of {len(both)} pairs of cells, more in {more}{left_out}"
        )
        signs = (means[1] < means[0], 2 * fewer > len(both))
        return "holds" if all(signs) else "holds in part" if any(signs) else "does not hold", detail


class _OnPublished(_Judge):
    def __init__(self) -> None:
        super().__init__({})
        self.values = {
            (table, problem, name): value
            for table, found in published.TABLES.items()
            for problem, row in found.cells.items()
            for name, value in row.items()
        }

    def on_points(self, deo: str, ddp: str) -> tuple[Verdict, str]:
        """The thesis prints no numbers of points, but its ranges show which fronts are a single point."""
        every = [
            [published.published_range(table, problem, name) for problem in cells for name in published.ALGORITHMS]
            for table in (deo, ddp)
            for cells in [published.TABLES[table].cells]
        ]
        lead = "the thesis prints no numbers of points"
        doubts = [found[0].doubtful for found in every if found[0].doubtful]
        if doubts:
            return "cannot be judged", f"{lead}, and {doubts[0]}"
        first, second = (sum(one.is_point for one in found) for found in every)
        return "cannot be judged", (
            f"{lead}; by its ranges {second} of {len(every[1])} fronts with DDP are a single point, and {first} of "
            f"{len(every[0])} with DEO"
        )


# -- differences ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Ours − published over one row or column."""

    name: str
    """Problem or algorithm."""
    mean: float | None
    """Over the cells with a value; None if there is none."""
    cells: int
    without_value: int

    @property
    def is_far(self) -> bool:
        return self.mean is not None and abs(self.mean) > FAR


@dataclass(frozen=True)
class Differences:
    """Differences between ours and the published values."""

    rows: list[Difference]
    columns: list[Difference]
    largest: list[Pooled]
    """Cells farthest from what was published, the farthest first."""

    def sentences(self) -> list[str]:
        found = [
            f"Mean difference by {what}: {', '.join(_shown(one) for one in group)}."
            for what, group in (("problem", self.rows), ("algorithm", self.columns))
            if group
        ]
        far = [f"{TITLES.get(one.name, one.name)} ({one.mean:+.3f})" for one in self.rows + self.columns if one.is_far]
        found.append(f"More than {FAR} off on average: {', '.join(far) or 'no problem and no algorithm'}.")
        if self.largest:
            cells = [f"{cell.problem} {TITLES[cell.algorithm]} ({cell.difference:+.3f})" for cell in self.largest]
            found.append(f"Farthest cells: {', '.join(cells)}.")
        return found


def differences(cells: Sequence[Pooled]) -> Differences:
    """Mean differences of each row and column, in their order in `cells`, and the largest single ones."""
    known = [cell for cell in cells if cell.difference is not None]
    return Differences(
        rows=_means(cells, lambda cell: cell.problem),
        columns=_means(cells, lambda cell: cell.algorithm),
        largest=sorted(known, key=_distance, reverse=True)[:LARGEST],
    )


def _means(cells: Sequence[Pooled], name_of: Callable[[Pooled], str]) -> list[Difference]:
    found = []
    for name in dict.fromkeys(name_of(cell) for cell in cells):
        group = [cell.difference for cell in cells if name_of(cell) == name]
        known = [value for value in group if value is not None]
        found.append(Difference(name, fmean(known) if known else None, len(group), len(group) - len(known)))
    return found


def _distance(cell: Pooled) -> float:
    return abs(cell.difference or 0.0)


def _shown(one: Difference) -> str:
    name = TITLES.get(one.name, one.name)
    if one.mean is None:
        return f"{name} none"
    return f"{name} {one.mean:+.3f}" + (f" ({one.without_value} without value)" if one.without_value else "")
