"""Our own comparison: which search for weights finds deep-sea treasure's front, and with how many trainings.

Not in the thesis, which has Pareto simulated annealing only. Trainings are shorter than there: 20,000 steps of a client
instead of 100,000, in rounds of 2,000. Those with "-full" in their name have the thesis's 100,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs
from fedpareto.config.files import write_atomically
from fedpareto.moo.indicators import hypervolume
from fedpareto_papers.catalogue import CATALOGUE, Options, Outcome, Say, json_text, known
from fedpareto_papers.thesis.mofld.published import ENVIRONMENTS, TABLES
from fedpareto_papers.thesis.mofld.runs import Found, Plan, Search, find_all, lines, points_found, spread

if TYPE_CHECKING:
    from rich.table import Table

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


def prepare(name: str, options: Options) -> Study:
    """The comparison, with what the user chose."""
    options.refuse(name, "rounds", "problems", "preferences")
    chosen = known("search for weights", options.algorithms, VARIANTS)
    return Study(
        name,
        Plan.make(options),
        [one for one in VARIANTS if one in (chosen or VARIANTS)],
        options.clients or CLIENTS,
        options.jobs,
        SEEDS if options.seeds is None else tuple(range(options.seeds)),
    )


@dataclass(frozen=True)
class Study:
    """The comparison, ready to run."""

    name: str
    plan: Plan
    variants: list[str]
    clients: int
    jobs: Jobs
    seeds: tuple[int, ...]

    @property
    def headline(self) -> str:
        """What it is and how large."""
        quick = "QUICK VERSION of " if self.plan.quick else ""
        size = f"{len(self.variants)} of {len(VARIANTS)} searches, {self.clients} clients{self.plan.size}"
        return f"{quick}{self.name} ({CATALOGUE[self.name].about}): {size}"

    def search(self, name: str) -> Search:
        """One of the variants."""
        variant = VARIANTS[name]
        return Search(
            name=f"{self.name}/{name}",
            problem=ENVIRONMENTS["dst"].problem,
            clients=self.clients,
            steps=STEPS,
            training_rounds=variant.training_rounds,
            iterations=variant.iterations,
            samples=variant.samples,
            seeds=self.seeds,
            algorithm=variant.algorithm,
            learner={"exploration_steps": STEPS * variant.training_rounds // EXPLORATION_SHARE},
        )

    def run(self, folder: Path, say: Say, stop: Callable[[], bool]) -> Outcome:
        """The runs, a table of them and a figure of hypervolumes over trainings."""
        searches = [self.search(name) for name in self.variants]
        found = dict(zip(self.variants, find_all(self.plan, searches, folder, say, stop, self.jobs), strict=True))
        rows = [row_of(name, one) for name, one in found.items()]
        record = {
            "name": self.name,
            "plan": asdict(self.plan) | {"settings": list(self.plan.settings), "clients": self.clients},
            "seconds": {one.search.name: one.seconds for one in found.values()},
            "rows": [asdict(row) for row in rows],
        }
        files = [folder / f"{self.name}.json", *draw(self.name, found, folder)]
        write_atomically(files[0], json_text(record))
        return Outcome(record, [table(self, rows), *remarks(self, rows)], files)


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
    """Of all clients together."""
    complete_after: list[int | None]
    """Trainings, counted by whole iterations, after which the whole front was known; None if it never was."""
    ceiling: float
    """Hypervolume of the known front."""


def row_of(name: str, found: Found) -> Row:
    """A row of the table."""
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


# -- what is shown -------------------------------------------------------------------------------------------------


def table(study: Study, rows: Sequence[Row]) -> Table:
    """Means over the seeds."""
    from rich.table import Table

    shown = Table("search", title=study.headline)
    for column in ("hypervolume", "points found", "trainings", "million steps", "whole front after"):
        shown.add_column(column, justify="right")
    for row in rows:
        shown.add_row(
            row.search,
            spread(row.hypervolume),
            f"{np.mean(row.points):.1f} of {row.known}",
            f"{np.mean(row.trainings):.0f}",
            f"{np.mean(row.steps) / 1e6:.3g}",
            complete(row.complete_after),
        )
    return shown


def complete(after: Sequence[int | None]) -> str:
    """After how many trainings the whole front was known, and in how many seeds if not in all."""
    ends = [trainings for trainings in after if trainings is not None]
    if not ends:
        return "never"
    seeds = "" if len(ends) == len(after) else f" ({len(ends)} of {len(after)} seeds)"
    return f"{np.mean(ends):.0f}{seeds}"


def remarks(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    """How to read the table."""
    yield (
        f"Hypervolume from {REFERENCE}: the whole front has {rows[0].ceiling:.1f}, the thesis's best configuration "
        f"{BEST_PUBLISHED}, with 100,000 steps of a client in a training where we have {STEPS * TRAINING_ROUNDS:,} "
        "(-full: as many). ± is the deviation over seeds (population); steps are those of all clients."
    )
    yield "Trainings until the whole front was known are counted by whole iterations."
    if study.plan.quick:
        yield "This was --quick: too little to find a front."


def draw(name: str, found: Mapping[str, Found], folder: Path) -> list[Path]:
    """Hypervolumes over trainings, mean and deviation over seeds, as .png and .pdf."""
    from fedpareto_papers.figures.series_panels import Series, render, series_panels

    drawn = [Series(title, points, "line", width) for title, points, width in lines(list(found.items()), REFERENCE)]
    figure = series_panels({"DST": drawn}, "federated trainings", "hypervolume")
    files = [folder / f"{name}.{ending}" for ending in ("png", "pdf")]
    for path in files:
        write_atomically(path, render(figure, path.suffix[1:]))
    return files
