"""Our own comparison: which search for weights finds deep-sea treasure's front, and with how many trainings.

Not in the thesis, which has Pareto simulated annealing only. Trainings are shorter than there: 20,000 steps of a client
instead of 100,000, in rounds of 2,000. Those with "-full" in their name have the thesis's 100,000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.moo.indicators import hypervolume
from fedpareto_papers.catalogue import Options, Outcome, known
from fedpareto_papers.figures import save_series
from fedpareto_papers.study import Cell, Found, Study, save_json, table
from fedpareto_papers.thesis.mofld import runs
from fedpareto_papers.thesis.mofld.published import ENVIRONMENTS, TABLES
from fedpareto_papers.thesis.mofld.runs import Fronts, Search, points_found, spread

CLIENTS, SEEDS = 3, (0, 1, 2)
STEPS, TRAINING_ROUNDS, FULL_ROUNDS = 2_000, 10, 50
"""Short rounds: of clients that train alone for 10,000 steps the average was mostly a submarine that is stuck."""
EXPLORATION_SHARE = 5
"""Exploration takes a fifth of a training, as in table A.1."""
FEDPREF = {"inner": "fedpref", "threshold": 5.0}
"""With ε of table A.5."""
CONFIRMED = {"generator": "ols", "confirmations": 2}
REFERENCE = ENVIRONMENTS["dst"].reference
BEST_PUBLISHED = max(TABLES["hypervolume"].values(), key=lambda row: row["dst"].mean)["dst"].mean


@dataclass(frozen=True)
class Variant:
    """A search method, and its budget."""

    iterations: int
    samples: int
    algorithm: Mapping[str, Any]
    training_rounds: int = TRAINING_ROUNDS


VARIANTS: Mapping[str, Variant] = {
    "annealing": Variant(20, 5, {"generator": "annealing"}),
    "annealing-warm": Variant(20, 5, {"generator": "annealing", "warm_start": True}),
    "gaussian-annealing": Variant(20, 5, {"generator": "gaussian-annealing"}),
    "gaussian-annealing-warm": Variant(20, 5, {"generator": "gaussian-annealing", "warm_start": True}),
    "random-100": Variant(1, 100, {"generator": "random"}),
    "lattice-100": Variant(1, 100, {"generator": "lattice"}),
    "lattice-20": Variant(1, 20, {"generator": "lattice"}),
    "ols": Variant(15, 2, {"generator": "ols"}),
    "ols-confirmed": Variant(15, 2, CONFIRMED),
    "fedpref-lattice-20": Variant(1, 20, {"generator": "lattice", **FEDPREF}),
    "fedpref-ols": Variant(15, 2, {"generator": "ols", **FEDPREF}),
    "lattice-20-full": Variant(1, 20, {"generator": "lattice"}, FULL_ROUNDS),
    "ols-full": Variant(15, 2, {"generator": "ols"}, FULL_ROUNDS),
    "ols-confirmed-full": Variant(15, 2, CONFIRMED, FULL_ROUNDS),
    "fedpref-lattice-20-full": Variant(1, 20, {"generator": "lattice", **FEDPREF}, FULL_ROUNDS),
    "fedpref-ols-full": Variant(15, 2, {"generator": "ols", **FEDPREF}, FULL_ROUNDS),
}


def prepare(name: str, options: Options) -> Searches:
    options.refuse(name, "rounds", "problems", "preferences")
    chosen = known("search for weights", options.algorithms, VARIANTS)
    seeds = SEEDS if options.seeds is None else tuple(range(options.seeds))
    options = runs.sized(options).sized({"clients": CLIENTS}, {})
    return Searches(name, options, [one for one in VARIANTS if one in (chosen or VARIANTS)], seeds)


@dataclass(frozen=True)
class Searches(Study[Fronts]):
    """The comparison, ready to run."""

    variants: list[str]
    seeds: tuple[int, ...]

    def size(self) -> list[str]:
        searches = f"{len(self.variants)} of {len(VARIANTS)} searches"
        return [searches, f"{self.options.clients} clients", *runs.words(self.options)]

    def cells(self) -> list[Cell]:
        return [runs.cell_of(self.options, self.search(name)) for name in self.variants]

    def search(self, name: str) -> Search:
        variant = VARIANTS[name]
        return Search(
            name=f"{self.name}/{name}",
            problem=ENVIRONMENTS["dst"].problem,
            clients=self.options.clients or CLIENTS,
            steps=STEPS,
            training_rounds=variant.training_rounds,
            iterations=variant.iterations,
            samples=variant.samples,
            seeds=self.seeds,
            algorithm=variant.algorithm,
            learner={"exploration_steps": STEPS * variant.training_rounds // EXPLORATION_SHARE},
        )

    def outcome(self, found: Sequence[Found[Fronts]], folder: Path) -> Outcome:
        fronts = {name: one.result for name, one in zip(self.variants, found, strict=True)}
        rows = [row_of(name, one) for name, one in fronts.items()]
        record = {
            "name": self.name,
            "plan": runs.plan(self.options) | {"clients": self.options.clients},
            "seconds": {one.name: one.seconds for one in found},
            "rows": [asdict(row) for row in rows],
        }
        panels = {"DST": list(runs.lines(fronts, REFERENCE))}
        files = save_json(folder, self.name, record)
        files += save_series(folder, self.name, panels, "federated trainings", "hypervolume")
        return Outcome(record, [self.table(rows), *self.remarks(rows)], files)

    def table(self, rows: Sequence[Row]) -> Any:
        headings = ("hypervolume", "points found", "trainings", "million steps", "whole front after")
        lines = [
            (
                row.search,
                spread(row.hypervolume),
                f"{np.mean(row.points):.1f} of {row.known}",
                f"{np.mean(row.trainings):.0f}",
                f"{np.mean(row.steps) / 1e6:.3g}",
                complete(row.complete_after),
            )
            for row in rows
        ]
        return table(self.headline, ["search"], headings, lines)

    def remarks(self, rows: Sequence[Row]) -> Iterator[str]:
        yield (
            f"Hypervolume from {REFERENCE}: the whole front has {rows[0].ceiling:.1f}, the thesis's best configuration "
            f"{BEST_PUBLISHED}, with 100,000 steps of a client in a training where we have {STEPS * TRAINING_ROUNDS:,} "
            "(-full: as many). ± is the deviation over seeds (population); steps are those of all clients."
        )
        yield "Trainings until the whole front was known are counted by whole iterations."
        if self.options.quick:
            yield "This was --quick: too little to find a front."


@dataclass(frozen=True)
class Row:
    """The result of a search; a number for each seed."""

    search: str
    hypervolume: list[float]
    points: list[int]
    """Points of the known front that were found."""
    known: int
    """Points that there are."""
    trainings: list[int]
    steps: list[int]
    """Steps of all clients together."""
    complete_after: list[int | None]
    """Trainings, counted by whole iterations, after which the whole front was known; None if it never was."""
    ceiling: float
    """Hypervolume of the known front."""


def row_of(name: str, found: Fronts) -> Row:
    known_front = found.known_front
    assert known_front is not None, "deep-sea treasure's front is known"
    ends = [growth.trainings[-1] for growth in found.growths]
    return Row(
        search=name,
        hypervolume=[growth.hypervolumes(REFERENCE)[-1] for growth in found.growths],
        points=[points_found(growth.front, known_front) for growth in found.growths],
        known=len(known_front),
        trainings=ends,
        steps=[trainings * found.steps for trainings in ends],
        complete_after=[growth.trainings_until_complete(known_front) for growth in found.growths],
        ceiling=hypervolume(known_front, REFERENCE, maximise=True),
    )


def complete(after: Sequence[int | None]) -> str:
    """Say after how many trainings the whole front was known, and in how many seeds if not in all."""
    ends = [trainings for trainings in after if trainings is not None]
    if not ends:
        return "never"
    seeds = "" if len(ends) == len(after) else f" ({len(ends)} of {len(after)} seeds)"
    return f"{np.mean(ends):.0f}{seeds}"
