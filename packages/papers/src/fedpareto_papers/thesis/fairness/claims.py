"""What section 5.3 of the thesis concludes from its tables, checked on ours, and where the two differ.

A claim is checked on the values that there are; missing ones are named, and never count for or against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from fedpareto_papers.claims import Claim, Part, Verdict, judged
from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness.published import TITLES

if TYPE_CHECKING:
    from fedpareto_papers.thesis.fairness.tables import Cell

Key = tuple[str, str]
"""Problem and algorithm."""
Values = Mapping[str, Mapping[Key, float]]
"""Hypervolumes by table and cell, without the cells that have none."""
FEDERATED = tuple(name for name in published.ALGORITHMS if name != "local")
PERSONALISED = ("cfl", "fedpref")
ADULT = ("adult-gender-deo", "adult-race-deo")
FAR = 0.05
"""A mean difference beyond this is pointed out."""
LARGEST = 5
"""Single cells that are named."""


def verdicts(cells_by_table: Mapping[str, Sequence[Cell]]) -> list[Claim]:
    """Every claim, checked on our cells of the tables (such as thesis-5.2) that there are."""
    values = {table: _values(cells) for table, cells in cells_by_table.items()}
    counts = {table: _front_sizes(cells) for table, cells in cells_by_table.items()}
    return [*_on_hypervolumes(values), *_on_front_sizes(lambda deo, ddp: _fewer_points(deo, ddp, counts))]


def holds_as_published() -> list[Claim]:
    """The same claims in the same order, checked on the thesis's own numbers."""
    values = {
        table: {(problem, name): value for problem, row in found.cells.items() for name, value in row.items()}
        for table, found in published.TABLES.items()
    }
    return [*_on_hypervolumes(values), *_on_front_sizes(_single_points)]


def _values(cells: Iterable[Cell]) -> dict[Key, float]:
    return {(cell.problem, cell.algorithm): cell.ours for cell in cells if cell.ours is not None}


def _front_sizes(cells: Iterable[Cell]) -> dict[Key, int]:
    return {(cell.problem, cell.algorithm): len(cell.front) for cell in cells if cell.front}


# -- claims about hypervolumes -------------------------------------------------------------------------------------


def _on_hypervolumes(values: Values) -> list[Claim]:
    return [
        Claim(
            "federation-pays",
            "In each row of table 5.2 the best federated algorithm beats no communication.",
            "5.3.1",
            *_best_federated_beats_local(values.get("thesis-5.2", {})),
        ),
        Claim(
            "fedprox-behind-personalised",
            "With heterogeneous preferences and DEO on Adult, FedProx falls behind CFL and FedPref (table 5.4).",
            "5.3.2",
            *_fedprox_behind(PERSONALISED, values.get("thesis-5.4", {})),
        ),
        Claim(
            "fedprox-behind-local",
            "There it falls behind even no communication (table 5.4).",
            "5.3.2",
            *_fedprox_behind(("local",), values.get("thesis-5.4", {})),
        ),
    ]


def _best_federated_beats_local(values: Mapping[Key, float]) -> tuple[Verdict, str]:
    if not values:
        return "cannot be judged", "needs cells of thesis-5.2 with a value"
    problems = list(published.TABLES["thesis-5.2"].cells)
    verdict, detail = judged("rows", [_row_of_table_5_2(problem, values) for problem in problems])
    pairs = [(problem, name) for problem in problems for name in FEDERATED if (problem, name) in values]
    won = [values[pair] > values[pair[0], "local"] for pair in pairs if (pair[0], "local") in values]
    # The thesis says more, "in almost all cases, all federated algorithms", which has no clear threshold.
    return verdict, detail + (f"; of all federated cells, {sum(won)} of {len(won)} beat it" if won else "")


def _row_of_table_5_2(problem: str, values: Mapping[Key, float]) -> Part:
    local = values.get((problem, "local"))
    federated = {name: values[problem, name] for name in FEDERATED if (problem, name) in values}
    missing = [name for name in published.ALGORITHMS if (problem, name) not in values]
    best = max(federated, key=federated.__getitem__, default="")
    # A missing algorithm might have been the best.
    if local is None or not best or (missing and federated[best] <= local):
        return Part(problem, None, _no_value(missing))
    return Part(problem, federated[best] > local, _against(best, federated[best], "local", local))


def _fedprox_behind(others: Sequence[str], values: Mapping[Key, float]) -> tuple[Verdict, str]:
    if not values:
        return "cannot be judged", "needs cells of thesis-5.4 with a value"
    return judged("comparisons", [_pair_of_table_5_4(row, other, values) for row in ADULT for other in others])


def _pair_of_table_5_4(problem: str, other: str, values: Mapping[Key, float]) -> Part:
    fedprox, theirs = values.get((problem, "fedprox")), values.get((problem, other))
    if fedprox is None or theirs is None:
        return Part(problem, None, _no_value([name for name in ("fedprox", other) if (problem, name) not in values]))
    return Part(problem, fedprox < theirs, _against("fedprox", fedprox, other, theirs))


def _against(name: str, value: float, other: str, its_value: float) -> str:
    return f"{TITLES[name]} {value:.3f} against {TITLES[other]} {its_value:.3f}"


def _no_value(names: Iterable[str]) -> str:
    return f"no value for {', '.join(TITLES[name] for name in names)}"


# -- the claim about numbers of points -----------------------------------------------------------------------------


def _on_front_sizes(judge: Callable[[str, str], tuple[Verdict, str]]) -> list[Claim]:
    return [
        Claim(
            f"ddp-has-fewer-points-{preferences}",
            f"Fronts with DDP hold fewer points than fronts with DEO, {preferences} preferences "
            f"(tables {deo.removeprefix('thesis-')} and {ddp.removeprefix('thesis-')}).",
            "5.3.2",
            *judge(deo, ddp),
        )
        for preferences, deo, ddp in (
            ("homogeneous", "thesis-5.2", "thesis-5.3"),
            ("heterogeneous", "thesis-5.4", "thesis-5.5"),
        )
    ]


def _fewer_points(deo: str, ddp: str, counts: Mapping[str, Mapping[Key, int]]) -> tuple[Verdict, str]:
    """Holds if there are fewer both on average and in most pairs of cells that differ in nothing but the gap."""
    pairs = []
    for problem in published.TABLES[deo].cells:
        other = problem.removesuffix("deo") + "ddp"
        for name in published.ALGORITHMS:
            pairs.append((counts.get(deo, {}).get((problem, name)), counts.get(ddp, {}).get((other, name))))
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


def _single_points(deo: str, ddp: str) -> tuple[Verdict, str]:
    """The thesis prints no numbers of points, but its ranges show which fronts are a single point."""
    ranges = {
        table: [
            published.published_range(table, problem, name)
            for problem in published.TABLES[table].cells
            for name in published.ALGORITHMS
        ]
        for table in (deo, ddp)
    }
    for found in ranges.values():
        if found[0].doubtful:
            return "cannot be judged", f"the thesis prints no numbers of points, and {found[0].doubtful}"
    first, second = (sum(range_.is_point for range_ in ranges[table]) for table in (deo, ddp))
    return (
        "cannot be judged",
        f"the thesis prints no numbers of points; by its ranges {second} of {len(ranges[ddp])} fronts with DDP are a "
        f"single point, and {first} of {len(ranges[deo])} with DEO",
    )


# -- differences ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Ours − published over one row or column."""

    name: str
    """Of the problem or the algorithm."""
    mean: float | None
    """Over the cells with a value; None if there is none."""
    cells: int
    without_value: int

    @property
    def is_far(self) -> bool:
        """Whether it is off by more than FAR."""
        return self.mean is not None and abs(self.mean) > FAR


@dataclass(frozen=True)
class Differences:
    """Where ours and the published values differ, and by how much."""

    rows: list[Difference]
    columns: list[Difference]
    largest: list[Cell]
    """Cells farthest from what was published, the farthest first."""

    def sentences(self) -> list[str]:
        """For a reader."""
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


def differences(cells: Sequence[Cell]) -> Differences:
    """Mean differences of each row and column, in their order in `cells`, and the largest single ones."""
    known = [cell for cell in cells if cell.difference is not None]
    return Differences(
        rows=_means(cells, lambda cell: cell.problem),
        columns=_means(cells, lambda cell: cell.algorithm),
        largest=sorted(known, key=_distance, reverse=True)[:LARGEST],
    )


def _means(cells: Sequence[Cell], name_of: Callable[[Cell], str]) -> list[Difference]:
    found = []
    for name in dict.fromkeys(name_of(cell) for cell in cells):
        group = [cell.difference for cell in cells if name_of(cell) == name]
        known = [value for value in group if value is not None]
        found.append(Difference(name, fmean(known) if known else None, len(group), len(group) - len(known)))
    return found


def _distance(cell: Cell) -> float:
    return abs(cell.difference or 0.0)


def _shown(one: Difference) -> str:
    name = TITLES.get(one.name, one.name)
    if one.mean is None:
        return f"{name} none"
    return f"{name} {one.mean:+.3f}" + (f" ({one.without_value} without value)" if one.without_value else "")
