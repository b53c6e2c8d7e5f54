"""Runs of MOFL/D behind a reproduction: the front that each seed found, and how it grew from training to training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.moo.indicators import hypervolume
from fedpareto.record.store import RunFolder
from fedpareto_papers.catalogue import Options
from fedpareto_papers.figures import Series
from fedpareto_papers.study import Cell, Run

SAME_POINT = 1e-3
"""A solution that is nearer to a point of the known front in every objective is that point (rounded in float32)."""
QUICK_SEEDS, QUICK_ITERATIONS, QUICK_SAMPLES, QUICK_ROUNDS, QUICK_STEPS = 1, 2, 2, 2, 96
"""About a minute: enough to see that everything works."""


def sized(options: Options) -> Options:
    """The user's seeds (None: each run's own number), or a quick version's."""
    options.must_name_parts()
    return options.sized({"seeds": None}, {"seeds": QUICK_SEEDS})


def words(options: Options) -> list[str]:
    return [] if options.seeds is None else [f"at most {options.seeds} seed{'s' * (options.seeds > 1)} each"]


def plan(options: Options) -> dict[str, Any]:
    return {"seeds": options.seeds, "quick": options.quick, "settings": list(options.settings)}


@dataclass(frozen=True)
class Search:
    """A run of MOFL/D, with all its seeds."""

    name: str
    """Also its folder, such as thesis-3/dst/3-10k-F."""
    problem: str
    clients: int
    steps: int
    """Steps of a client in one round of a training."""
    training_rounds: int
    iterations: int
    samples: int
    seeds: Sequence[int]
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    learner: Mapping[str, Any] = field(default_factory=dict)


def cell_of(options: Options, search: Search) -> Cell:
    """A search as one run."""
    quick, seeds = options.quick, list(search.seeds)[: options.seeds]
    training_rounds = QUICK_ROUNDS if quick else search.training_rounds
    samples = min(search.samples, QUICK_SAMPLES) if quick else search.samples
    rounds = (min(search.iterations, QUICK_ITERATIONS) if quick else search.iterations) * training_rounds
    draft = {
        "algorithm": {
            "name": "mofld",
            "samples": samples,
            "training_rounds": training_rounds,
            "evaluation": "server",
            **search.algorithm,
        },
        "problem": {"name": search.problem, **({"episodes": 1} if quick else {})},
        "clients": search.clients,
        "rounds": rounds,
        "seeds": seeds,
        # The clients' own choices from the front are not needed here.
        "evaluate_every": rounds,
        # Runs are side by side, one to a core, and each is one stack.
        "engine": {"name": "local", "threads": 1, "chunk": search.clients * samples * len(seeds)},
        "learner": {
            "steps": QUICK_STEPS if quick else search.steps,
            **search.learner,
            **({"learning_starts": QUICK_STEPS // 2} if quick else {}),
        },
    }
    return Cell(search.name, draft, read)


# -- results -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """The fronts of one seed, one for each iteration that is over."""

    trainings: list[int]
    """Numbers of trainings that were done by then."""
    fronts: list[np.ndarray]
    """Undiscounted returns, `[k, m]`."""

    @property
    def front(self) -> np.ndarray:
        return self.fronts[-1]

    def hypervolumes(self, reference: Sequence[float]) -> list[float]:
        return [hypervolume(front, reference, maximise=True) for front in self.fronts]

    def trainings_until_complete(self, known_front: np.ndarray) -> int | None:
        """The number after which every point of the known front was found; None if it never was."""
        for trainings, front in zip(self.trainings, self.fronts, strict=True):
            if points_found(front, known_front) == len(known_front):
                return trainings
        return None


@dataclass(frozen=True)
class Fronts:
    """The result of a search."""

    growths: list[Growth]
    """One for each seed."""
    known_front: np.ndarray | None
    steps: int
    """Steps of all clients in one training, as it was run."""


def read(run: Run) -> Fronts:
    settings = run.spec.to_mapping()
    steps = run.spec.clients * settings["learner"]["steps"] * settings["algorithm"]["training_rounds"]
    return Fronts(growths(run.folder, run.spec.seeds), run.spec.problem.known_front(), steps)


def points_found(front: np.ndarray, known_front: np.ndarray) -> int:
    """Count the points of the known front that are in a front."""
    gaps = np.abs(known_front[:, None] - front[None]).max(axis=2)
    return int((gaps <= SAME_POINT).any(axis=1).sum())


def growths(folder: Path, seeds: Sequence[int]) -> list[Growth]:
    """Read the fronts of each seed from the rows of a run."""
    found: dict[int, dict[int, np.ndarray]] = {seed: {} for seed in seeds}
    for line in RunFolder(folder).read_lines("metrics.jsonl"):
        if line["front"]:
            found[line["seed"]].setdefault(line["trainings"], np.array(line["front"]))
    for seed, fronts in found.items():
        if not fronts:
            raise UserError(f"{folder}: seed {seed} found nothing, its training diverged; a smaller lr may help")
    return [Growth(list(fronts), list(fronts.values())) for fronts in found.values()]


def mean_over_trainings(curves: Sequence[tuple[Sequence[int], Sequence[float]]]) -> tuple[list[int], np.ndarray]:
    """The trainings at which any curve has a value, and the curves there, `[seeds, k]`.

    A curve keeps its value until its next one, also after its end: a search that ends early keeps its front. What comes
    before the first value of some curve is left out.
    """
    begin = max(trainings[0] for trainings, _ in curves)
    places = sorted({place for trainings, _ in curves for place in trainings if place >= begin})
    return places, np.array(
        [
            [values[int(np.searchsorted(trainings, place, side="right")) - 1] for place in places]
            for trainings, values in curves
        ]
    )


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}"


def lines(found: Mapping[str, Fronts], reference: Sequence[float]) -> Iterator[Series]:
    """Draw hypervolumes over trainings, a line for each search."""
    for name, one in found.items():
        curves = [(growth.trainings, growth.hypervolumes(reference)) for growth in one.growths]
        yield Series.over_seeds(name, *mean_over_trainings(curves))
