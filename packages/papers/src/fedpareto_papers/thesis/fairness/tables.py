"""A cell of a fairness table: some runs, one front, one hypervolume beside the published one.

Every run is an ordinary run folder, so a stopped reproduction can be resumed: finished runs are read, others continued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs, Pieces, side_by_side
from fedpareto.config.errors import UnknownName
from fedpareto.contract.registry import FINE_TUNED
from fedpareto.moo.dominance import front
from fedpareto.moo.filters import is_converged
from fedpareto.moo.indicators import hypervolume
from fedpareto.record import reading
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness.published import PublishedTable

QUICK_ROUNDS = 3
QUICK_RUNS = 3
"""A table in about a minute: enough to see that everything works, not to compare with what was published."""
FAIRNESS = (False, True)
"""Which of (accuracy, 1 − |gap|) is fairness."""
REFERENCE = (0.0, 0.0)
"""Not given; with it, the ranges of table A.14 give table 5.3's hypervolumes."""


@dataclass(frozen=True)
class Plan:
    """Which table, which cells of it, and how large."""

    table: str
    rounds: int = published.ROUNDS
    clients: int = published.CLIENTS
    runs: int = published.RUNS
    """Runs whose solutions make one front."""
    repetitions: int = 1
    """Fronts of a cell, for the deviation."""
    quick: bool = False
    problems: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Parameters of every run that the user set, such as engine.device=cuda."""

    @classmethod
    def make(
        cls,
        table: str,
        *,
        quick: bool = False,
        rounds: int | None = None,
        clients: int | None = None,
        repetitions: int = 1,
        problems: Sequence[str] = (),
        algorithms: Sequence[str] = (),
        settings: Sequence[str] = (),
    ) -> Plan:
        """The thesis's values, or a quick version's, where nothing else is set."""
        found = published.TABLES[table]
        return cls(
            table=table,
            rounds=rounds or (QUICK_ROUNDS if quick else published.ROUNDS),
            clients=clients or found.clients,
            runs=QUICK_RUNS if quick else published.RUNS,
            repetitions=repetitions,
            quick=quick,
            problems=tuple(_chosen_problems(problems, list(found.cells))),
            algorithms=tuple(_chosen_algorithms(algorithms)),
            settings=tuple(settings),
        )

    @property
    def published(self) -> PublishedTable:
        """What the thesis prints."""
        return published.TABLES[self.table]

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Problem and algorithm of each cell, row by row."""
        return [(problem, algorithm) for problem in self.problems for algorithm in self.algorithms]


@dataclass(frozen=True)
class Cell:
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
    """Of the first repetition: (accuracy, 1 − |gap|)."""


@dataclass(frozen=True)
class Summary:
    """All cells in a few numbers; differences are over the cells that have a value, None if none has."""

    cells: int
    without_value: int
    """Cells in which nothing converged."""
    mean_difference: float | None
    """Signed: ours − published."""
    mean_difference_with_zeros: float
    """The same over all cells, a cell without a value counting as 0: the volume of an empty front."""
    mean_absolute_difference: float | None
    largest_difference: float | None
    """The one that is farthest from 0, with its sign."""
    at_least_published: int
    """Cells in which ours is at least the published value, to the three digits that were printed."""


OnCell = Callable[[int, Cell, bool, float], None]
"""Called after each cell with its number from 1, the cell, whether anything was trained, and the seconds so far."""


def reproduce(
    plan: Plan,
    out: Path,
    on_cell: OnCell = lambda number, cell, trained, seconds: None,
    stop: Callable[[], bool] = lambda: False,
    jobs: Jobs = 1,
) -> list[Cell]:
    """All cells of a plan; runs are kept in OUT/TABLE/PROBLEM/ALGORITHM/…, and finished ones are reused."""
    start, cells = time.monotonic(), {}
    pieces = Pieces(partial(_reproduce_cell, plan), plan.cells, out, partial(_own, plan))
    for number, (cell, trained) in side_by_side(pieces, jobs, stop):
        cells[number] = cell
        on_cell(len(cells), cell, trained, time.monotonic() - start)
    return [cells[number] for number in sorted(cells)]


def _own(plan: Plan, names: tuple[str, str]) -> str:
    """The folder of a cell."""
    return "/".join([plan.table, *names])


def _reproduce_cell(plan: Plan, out: Path, names: tuple[str, str], stop: Callable[[], bool]) -> tuple[Cell, bool]:
    """One cell, and whether anything had to be trained for it."""
    problem, algorithm = names
    trained, fronts = False, []
    for repetition in range(plan.repetitions):
        folder = out / _own(plan, names) / f"repetition-{repetition}"
        trained |= ensure(folder, spec_of(plan, problem, algorithm, repetition), stop)
        fronts.append(pooled(points(folder), plan.published.heterogeneous))
    return cell_of(problem, algorithm, fronts, plan.published.cells[problem][algorithm]), trained


# -- the runs of a cell --------------------------------------------------------------------------------------------


def spec_of(plan: Plan, problem: str, algorithm: str, repetition: int) -> Spec:
    """The runs of one front as one call with as many seeds, so that they train in one stack.

    A seed has its own partition of the data and its own preferences: random ones, or one point of the sweep for all
    clients.
    """
    chosen = published.selected(problem, algorithm)
    data, gap = published.split_name(problem)
    name, attribute = published.DATA[data]
    draft = Draft(
        {
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
            "clients": plan.clients,
            "rounds": plan.rounds,
            "evaluate_every": plan.rounds,
            "seeds": list(range(repetition * plan.runs, (repetition + 1) * plan.runs)),
            "preferences": "dirichlet" if plan.published.heterogeneous else "sweep",
            # Cells run side by side, one to a core.
            "engine": {"name": "local", "threads": 1},
            "learner": {
                "lr": chosen.lr,
                "steps": chosen.steps,
                "batch_size": published.BATCH_SIZE,
                "optimiser": published.OPTIMISER,
            },
        }
    )
    return draft.with_settings(plan.settings).finish()


def points(folder: Path) -> list[np.ndarray]:
    """The final points on test data, `[n, 2]` for each seed of a finished run."""
    return [found[np.isfinite(found).all(axis=1)] for found in reading.load(folder).points()]


# -- from runs to a cell -------------------------------------------------------------------------------------------


def pooled(sets: Sequence[np.ndarray], heterogeneous: bool) -> np.ndarray:
    """The points `[k, 2]` of one cell's runs: every client's (heterogeneous), or the clients' mean of each run."""
    return np.concatenate(sets) if heterogeneous else np.stack([found.mean(axis=0) for found in sets])


def cell_of(problem: str, algorithm: str, fronts: Sequence[np.ndarray], value: float) -> Cell:
    """A cell from the points of each repetition, and what was published."""
    kept = [found[is_converged(found, FAIRNESS, published.EPSILON)] for found in fronts]
    # The volume of no points would be 0, which says nothing about the quality of solutions, and distorts every mean.
    volumes = [hypervolume(found, REFERENCE, maximise=True) for found in kept if len(found)]
    ours = float(np.mean(volumes)) if volumes else None
    return Cell(
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


def summary(cells: Sequence[Cell]) -> Summary:
    """Over all cells."""
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


def as_json(plan: Plan, cells: Sequence[Cell]) -> dict[str, Any]:
    """What --json writes: the plan, one record a cell, and the summary."""
    return {
        "table": plan.table,
        "about": plan.published.about,
        **_size(plan),
        "cells": [asdict(cell) for cell in cells],
        "summary": asdict(summary(cells)),
    }


def is_like(record: Mapping[str, Any], plan: Plan) -> bool:
    """Whether a record's cells can be compared with a plan's: the same rounds, runs, repetitions and settings."""
    return all(record.get(key) == value for key, value in _size(plan).items())


def _size(plan: Plan) -> dict[str, Any]:
    return {
        "quick": plan.quick,
        "rounds": plan.rounds,
        "clients": plan.clients,
        "runs": plan.runs,
        "seeds": plan.repetitions,
        "settings": list(plan.settings),
    }


# -- names ---------------------------------------------------------------------------------------------------------


def _chosen_problems(names: Sequence[str], known: list[str]) -> list[str]:
    """Problems of a table, in its order; adult-gender means those with any gap."""
    wanted: set[str] = set()
    for name in names:
        found = [problem for problem in known if name in (problem, published.split_name(problem)[0])]
        if not found:
            raise UnknownName("problem of this table", name, known)
        wanted.update(found)
    return [problem for problem in known if not names or problem in wanted]


def _chosen_algorithms(names: Sequence[str]) -> list[str]:
    for name in names:
        if name not in published.ALGORITHMS:
            raise UnknownName("algorithm of the thesis's tables", name, published.ALGORITHMS)
    return [algorithm for algorithm in published.ALGORITHMS if not names or algorithm in names]
