"""Tables of hypervolumes in chapter 5 of the thesis, run again: each cell is one front of several runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from fedpareto.config.errors import UnknownName
from fedpareto.config.files import write_atomically
from fedpareto.contract.registry import FINE_TUNED
from fedpareto.moo.dominance import front
from fedpareto.moo.filters import is_converged
from fedpareto.moo.indicators import hypervolume
from fedpareto_papers.catalogue import Options, Outcome, known, read_json
from fedpareto_papers.claims import At, Claim, Judge, Part, Statement, Verdict, judged
from fedpareto_papers.figures import Curve, save
from fedpareto_papers.study import Cell, Found, Run, Study, claims_json, csv_text, judgeable, save_json, table
from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness.published import TITLES, PublishedTable, published_range, split_name

QUICK_ROUNDS, QUICK_RUNS = 3, 3
"""A table in about a minute: enough to see that everything works, not to compare with what was published."""
FAIRNESS = (False, True)
"""The objectives of (accuracy, 1 − |gap|) that are fairness."""
REFERENCE = (0.0, 0.0)
"""Not given; with it, the ranges of table A.14 give table 5.3's hypervolumes."""
COLUMNS = ("problem", "algorithm", "accuracy", "fairness")
"""Columns of the CSV file; fairness is 1 − |gap|."""


def prepare(name: str, options: Options) -> ThesisTable:
    options.refuse(name, "preferences")
    options.must_name_parts()
    usual = {"rounds": published.ROUNDS, "clients": published.TABLES[name].clients, "seeds": 1}
    every = list(published.TABLES[name].cells)
    chosen = known("algorithm of the thesis's tables", options.algorithms, published.ALGORITHMS)
    return ThesisTable(
        name,
        options.sized(usual, {"rounds": QUICK_ROUNDS}),
        _problems(options.problems, every),
        [algorithm for algorithm in published.ALGORITHMS if not chosen or algorithm in chosen],
    )


def _problems(names: Sequence[str], every: list[str]) -> list[str]:
    """Find problems of a table, in its order; adult-gender means those with any gap."""
    wanted: set[str] = set()
    for name in names:
        found = [problem for problem in every if name in (problem, split_name(problem)[0])]
        if not found:
            raise UnknownName("problem of this table", name, every)
        wanted.update(found)
    return [problem for problem in every if not names or problem in wanted]


@dataclass(frozen=True)
class Pooled:
    """One cell, ours beside the published one."""

    problem: str
    algorithm: str
    ours: float | None
    """Hypervolume, mean over the repetitions that have a front; None if none has, because nothing converged."""
    deviation: float | None
    """Over these repetitions (population); None if there are fewer than two."""
    published: float
    difference: float | None
    """Ours − published."""
    empty: int
    """Repetitions without a front: the filter for non-converged solutions left nothing."""
    left_out: int
    """Solutions of all repetitions that the filter removed."""
    front: list[list[float]] = field(repr=False)
    """Front of the first repetition: (accuracy, 1 − |gap|)."""


@dataclass(frozen=True)
class Summary:
    """All cells in a few numbers; differences are over the cells that have a value, None if none has."""

    cells: int
    without_value: int
    """Cells in which nothing converged."""
    mean_difference: float | None
    """Signed: ours − published."""
    mean_difference_with_zeros: float
    """The signed mean over all cells, a cell without a value counting as 0: the volume of an empty front."""
    mean_absolute_difference: float | None
    largest_difference: float | None
    """The one that is farthest from 0, with its sign."""
    at_least_published: int
    """Cells in which ours is at least the published value, to the three digits that were printed."""


@dataclass(frozen=True)
class ThesisTable(Study[list[np.ndarray]]):
    """A table, ready to run. The user's seeds are repetitions: fronts of a cell, for the deviation."""

    problems: list[str]
    algorithms: list[str]

    @property
    def published(self) -> PublishedTable:
        return published.TABLES[self.name]

    @property
    def repetitions(self) -> int:
        return self.options.seeds or 1

    @property
    def runs(self) -> int:
        """Runs whose solutions make one front."""
        return QUICK_RUNS if self.options.quick else published.RUNS

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Problem and algorithm of each cell, row by row."""
        return [(problem, algorithm) for problem in self.problems for algorithm in self.algorithms]

    def size(self) -> list[str]:
        seeds = [f"{self.repetitions} repetitions"] if self.repetitions > 1 else []
        return [f"{self.options.clients} clients", f"{self.options.rounds} rounds", f"{self.runs} runs a cell", *seeds]

    def cells(self) -> list[Cell]:
        return [self.cell(*key, repetition) for key in self.keys for repetition in range(self.repetitions)]

    def cell(self, problem: str, algorithm: str, repetition: int) -> Cell:
        """The runs of one front as one call with as many seeds, so that they train in one stack.

        A seed has its own partition of the data and its own preferences: random ones, or one point of the sweep for
        all clients.
        """
        chosen = published.selected(problem, algorithm)
        data, gap = published.split_name(problem)
        name, attribute = published.DATA[data]
        draft = {
            "algorithm": {"name": algorithm + (FINE_TUNED if chosen.fine_tuned else ""), **(chosen.own or {})},
            "problem": {
                "name": name,
                "sensitive": [attribute],
                "goals": ["accuracy", published.GOALS[gap]],
                "partition": published.PARTITION,
                "split": list(published.SPLIT),
                "test": published.TEST,
                "normalise": published.NORMALISE,
                # With 50 clients one may lack a group. Fairness 0 there never helps a front.
                "unmeasured": "worst",
            },
            "clients": self.options.clients,
            "rounds": self.options.rounds,
            "evaluate_every": self.options.rounds,
            "seeds": list(range(repetition * self.runs, (repetition + 1) * self.runs)),
            "preferences": "dirichlet" if self.published.heterogeneous else "sweep",
            # Cells run side by side, one to a core.
            "engine": {"name": "local", "threads": 1},
            "learner": {
                "lr": chosen.lr,
                "steps": chosen.steps,
                "batch_size": published.BATCH_SIZE,
                "optimiser": published.OPTIMISER,
            },
        }
        folder = f"{self.name}/{problem}/{algorithm}/repetition-{repetition}"
        which = f", repetition {repetition + 1}" if self.repetitions > 1 else ""
        told = partial(tell, self.published.heterogeneous, self.published.cells[problem][algorithm])
        return Cell(folder, draft, read, called=f"{problem}, {algorithm}{which}", tell=told)

    def pooled(self, found: Sequence[Found[list[np.ndarray]]]) -> list[Pooled]:
        """The cells of the table from the runs of all repetitions."""
        several = self.repetitions
        fronts = [pooled(one.result, self.published.heterogeneous) for one in found]
        return [
            cell_of(problem, name, fronts[i * several : (i + 1) * several], self.published.cells[problem][name])
            for i, (problem, name) in enumerate(self.keys)
        ]

    def outcome(self, found: Sequence[Found[list[np.ndarray]]], folder: Path) -> Outcome:
        cells = self.pooled(found)
        record = self.as_json(cells)
        save_json(folder, self.name, record)  # Claims compare tables: each leaves its cells here for the others.
        files = save_fronts(self.name, cells, folder)
        judged = [] if self.options.quick else self.judged(folder)
        shown = [self.table(cells), *self.remarks(cells), *map(str, judged)]
        return Outcome(record | claims_json(judged), shown, files)

    def as_json(self, cells: Sequence[Pooled]) -> dict[str, Any]:
        return {
            "table": self.name,
            "about": self.published.about,
            **self.sizes(),
            "cells": [asdict(cell) for cell in cells],
            "summary": asdict(summary(cells)),
        }

    def sizes(self) -> dict[str, Any]:
        return {
            "quick": self.options.quick,
            "rounds": self.options.rounds,
            "clients": self.options.clients,
            "runs": self.runs,
            "seeds": self.repetitions,
            "settings": list(self.options.settings),
        }

    def judged(self, folder: Path) -> list[Claim]:
        """The claims that can be checked on this table, with others of the same size that are in the folder."""
        records = {name: read_json(folder / f"{name}.json") for name in published.TABLES}
        return judgeable(
            verdicts(
                {
                    name: [Pooled(**cell) for cell in record["cells"]]
                    for name, record in records.items()
                    if record is not None and self.is_like(record)
                }
            )
        )

    def is_like(self, record: Mapping[str, Any]) -> bool:
        """Check that a record's cells can be compared: the same rounds, runs, repetitions and settings."""
        return all(record.get(key) == value for key, value in self.sizes().items())

    def table(self, cells: Sequence[Pooled]) -> Any:
        """Ours, published and difference, a row a problem."""
        by_name = {(cell.problem, cell.algorithm): cell for cell in cells}
        lines = [(problem, *(_shown(by_name[problem, name]) for name in self.algorithms)) for problem in self.problems]
        names = [TITLES[name] for name in self.algorithms]
        return table(self.headline, ("problem", *names), (), lines, caption="ours / published (difference)")

    def remarks(self, cells: Sequence[Pooled]) -> Iterator[Any]:
        """Say the table in a few sentences, and show the ranges of the fronts, and where the two differ."""
        found = summary(cells)
        yield (
            f"{found.cells} cells: mean difference {_number(found.mean_difference, '+')} "
            f"(absolute {_number(found.mean_absolute_difference)}), largest {_number(found.largest_difference, '+')}; "
            f"ours is at least the published value in {found.at_least_published}"
        )
        if found.without_value:
            yield (
                f"{found.without_value} cells have no value, because no solution converged; no mean counts them (as 0 "
                f"they would make the mean difference {found.mean_difference_with_zeros:+.3f})"
            )
        empty = sum(cell.empty for cell in cells if cell.ours is not None)
        if empty:
            yield f"{empty} repetitions of other cells had no front and count in no mean"
        if self.options.quick:
            yield "This was --quick: too few rounds and runs to be compared with what was published."
            return
        yield from differences(cells).sentences()
        yield self.ranges(cells)

    def ranges(self, cells: Sequence[Pooled]) -> Any:
        """The ranges of each front, ours and the published one (the appendix's tables of ranges)."""
        doubts: dict[str, None] = {}
        lines = []
        for cell in cells:
            ours = published.own_range(cell.front)
            theirs = published_range(self.name, cell.problem, cell.algorithm)
            doubts |= {theirs.doubtful: None} if theirs.doubtful else {}
            star = "*" if theirs.doubtful else ""
            lines.append(
                (
                    cell.problem,
                    TITLES[cell.algorithm],
                    str(len(cell.front)),
                    _span(ours.accuracy) if ours else "none",
                    _span(theirs.accuracy) + star,
                    _span(ours.fairness) if ours else "none",
                    _span(theirs.fairness) + star,
                )
            )
        headings = ("problem", "algorithm", "points", "accuracy", "published", "fairness", "published")
        note = "; ".join(f"* doubtful: {doubt}" for doubt in doubts)
        return table("Ranges of the fronts (first repetition)", headings, (), lines, caption=note or None)


def tell(heterogeneous: bool, value: float, sets: Sequence[np.ndarray]) -> str:
    found = cell_of("", "", [pooled(sets, heterogeneous)], value)
    return f"ours {_number(found.ours)}, published {value:.3f}"


def _shown(cell: Pooled) -> str:
    if cell.ours is None:
        return f"none / {cell.published:.3f}"
    spread = "" if cell.deviation is None else f" ± {cell.deviation:.3f}"
    return f"{cell.ours:.3f}{spread} / {cell.published:.3f} ({_number(cell.difference, '+')})"


def _span(range_: tuple[float, float]) -> str:
    return f"{range_[0]:.3f}–{range_[1]:.3f}"


def _number(value: float | None, sign: str = "") -> str:
    return "none" if value is None else format(value, f"{sign}.3f")


# -- from runs to a cell -------------------------------------------------------------------------------------------


def read(run: Run) -> list[np.ndarray]:
    """Read the final points on test data, `[n, 2]` for each seed."""
    return [found[np.isfinite(found).all(axis=1)] for found in run.record.points()]


def pooled(sets: Sequence[np.ndarray], heterogeneous: bool) -> np.ndarray:
    """The points `[k, 2]` of one cell's runs: every client's (heterogeneous), or the clients' mean of each run."""
    return np.concatenate(sets) if heterogeneous else np.stack([found.mean(axis=0) for found in sets])


def cell_of(problem: str, algorithm: str, fronts: Sequence[np.ndarray], value: float) -> Pooled:
    kept = [found[is_converged(found, FAIRNESS, published.EPSILON)] for found in fronts]
    # The volume of no points would be 0, which says nothing about the quality of solutions, and distorts every mean.
    volumes = [hypervolume(found, REFERENCE, maximise=True) for found in kept if len(found)]
    ours = float(np.mean(volumes)) if volumes else None
    return Pooled(
        problem=problem,
        algorithm=algorithm,
        ours=ours,
        deviation=float(np.std(volumes)) if len(volumes) > 1 else None,
        published=value,
        difference=None if ours is None else ours - value,
        empty=len(fronts) - len(volumes),
        left_out=sum(len(found) for found in fronts) - sum(len(found) for found in kept),
        front=front(kept[0], maximise=True).tolist() if len(kept[0]) else [],
    )


def summary(cells: Sequence[Pooled]) -> Summary:
    differences = np.array([cell.difference for cell in cells if cell.difference is not None])
    known = bool(len(differences))
    return Summary(
        cells=len(cells),
        without_value=len(cells) - len(differences),
        mean_difference=float(differences.mean()) if known else None,
        mean_difference_with_zeros=float(np.mean([(cell.ours or 0.0) - cell.published for cell in cells])),
        mean_absolute_difference=float(np.abs(differences).mean()) if known else None,
        largest_difference=float(differences[np.abs(differences).argmax()]) if known else None,
        at_least_published=sum(cell.ours is not None and round(cell.ours, 3) >= cell.published for cell in cells),
    )


# -- fronts, drawn like the thesis's figures 5.2 and 5.3 (A.14 to A.19 in the appendix) ----------------------------


def save_fronts(name: str, cells: Sequence[Pooled], folder: Path) -> list[Path]:
    """Write TABLE-fronts.png, .pdf and .csv into a folder that is there."""
    files = [*save(folder, f"{name}-fronts", picture(name, cells)), folder / f"{name}-fronts.csv"]
    write_atomically(files[-1], as_csv(cells))
    return files


def picture(name: str, cells: Sequence[Pooled]) -> Any:
    """Draw a panel for each problem, with the front of each algorithm and the range of the published one."""
    from fedpareto_papers.figures import drawing  # matplotlib is slow to load.

    panels: dict[str, list[Curve]] = {}
    reasons: dict[str, None] = {}
    for cell in cells:
        found = published_range(name, cell.problem, cell.algorithm)
        reasons |= {found.doubtful: None} if found.doubtful else {}
        frame = None if found.doubtful else (found.accuracy, found.fairness)
        panels.setdefault(title(cell.problem), []).append(Curve(TITLES[cell.algorithm], cell.front, frame))
    return drawing.front_panels(
        panels,
        "accuracy (higher is better)",
        "fairness, 1 − |gap| (higher is better)",
        frame_label="" if reasons else "published front's range",
        note=f"Published ranges are not drawn: {'; '.join(reasons)}." if reasons else "",
    )


def as_csv(cells: Sequence[Pooled]) -> str:
    """The points of all fronts, from the least to the most accurate of each."""
    return csv_text(COLUMNS, [(one.problem, one.algorithm, *point) for one in cells for point in sorted(one.front)])


def title(problem: str) -> str:
    """law-school-race-deo is Law School, race, DEO."""
    data, gap = split_name(problem)
    name, _, attribute = data.rpartition("-")
    return f"{name.replace('-', ' ').title()}, {attribute}, {gap.upper()}"


# -- the thesis's claims, in claims.toml -------------------------------------------------------------------------------


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
            f"Mean difference by {what}: {', '.join(_in_words(one) for one in group)}."
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


def _in_words(one: Difference) -> str:
    name = TITLES.get(one.name, one.name)
    if one.mean is None:
        return f"{name} none"
    return f"{name} {one.mean:+.3f}" + (f" ({one.without_value} without value)" if one.without_value else "")
