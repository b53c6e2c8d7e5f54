"""Runs of MOFL/D behind a reproduction: the front that each seed found, and how it grew from training to training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs, Pieces, announced
from fedpareto.config.errors import UserError
from fedpareto.moo.indicators import hypervolume
from fedpareto.record.store import RunFolder
from fedpareto.runs.progress import Pulse
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_papers.catalogue import Options, Say

SAME_POINT = 1e-3
"""A solution that is nearer to a point of the known front in every objective is that point (rounded in float32)."""
QUICK_SEEDS, QUICK_ITERATIONS, QUICK_SAMPLES, QUICK_ROUNDS, QUICK_STEPS = 1, 2, 2, 2, 96
"""About a minute: enough to see that everything works."""


@dataclass(frozen=True)
class Plan:
    """How large a reproduction is."""

    seeds: int | None = None
    """None: each run's own number."""
    quick: bool = False
    settings: tuple[str, ...] = ()
    """Parameters of every run that the user set, such as engine.device=cuda."""

    @classmethod
    def make(cls, options: Options) -> Plan:
        """What the user asked for."""
        options.must_name_parts()
        return cls(options.seeds or (QUICK_SEEDS if options.quick else None), options.quick, options.settings)

    @property
    def size(self) -> str:
        """In words."""
        seeds = "" if self.seeds is None else f", at most {self.seeds} seed{'s' * (self.seeds > 1)} each"
        return seeds + "".join(f", {text}" for text in self.settings)


@dataclass(frozen=True)
class Search:
    """A run of MOFL/D, with all its seeds."""

    name: str
    """Also its folder, such as thesis-3/dst/3-10k-F."""
    problem: str
    clients: int
    steps: int
    """Of a client in one round of a training."""
    training_rounds: int
    iterations: int
    samples: int
    seeds: Sequence[int]
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    learner: Mapping[str, Any] = field(default_factory=dict)

    def under(self, plan: Plan) -> Search:
        """As the plan has it."""
        chosen = replace(self, seeds=tuple(self.seeds)[: plan.seeds])
        if not plan.quick:
            return chosen
        return replace(
            chosen,
            steps=QUICK_STEPS,
            training_rounds=QUICK_ROUNDS,
            iterations=min(self.iterations, QUICK_ITERATIONS),
            samples=min(self.samples, QUICK_SAMPLES),
            learner={**self.learner, "learning_starts": QUICK_STEPS // 2},
        )


def spec_of(plan: Plan, search: Search) -> Spec:
    """A search as one run."""
    search = search.under(plan)
    rounds = search.iterations * search.training_rounds
    draft = Draft(
        {
            "algorithm": {
                "name": "mofld",
                "samples": search.samples,
                "training_rounds": search.training_rounds,
                "evaluation": "server",
                **search.algorithm,
            },
            "problem": {"name": search.problem, **({"episodes": 1} if plan.quick else {})},
            "clients": search.clients,
            "rounds": rounds,
            "seeds": list(search.seeds),
            # The clients' own choices from the front are not needed here.
            "evaluate_every": rounds,
            # Runs are side by side, one to a core, and each is one stack.
            "engine": {"name": "local", "threads": 1, "chunk": search.clients * search.samples * len(search.seeds)},
            "learner": {"steps": search.steps, **search.learner},
        }
    )
    return draft.with_settings(plan.settings).finish()


# -- results -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    """The fronts of one seed, one for each iteration that is over."""

    trainings: list[int]
    """How many were done by then."""
    fronts: list[np.ndarray]
    """Undiscounted returns, `[k, m]`."""

    @property
    def front(self) -> np.ndarray:
        """The final front."""
        return self.fronts[-1]

    def hypervolumes(self, reference: Sequence[float]) -> list[float]:
        """Of the fronts."""
        return [hypervolume(front, reference, maximise=True) for front in self.fronts]

    def trainings_until_complete(self, known_front: np.ndarray) -> int | None:
        """After which every point of the known front was found; None if it never was."""
        for trainings, front in zip(self.trainings, self.fronts, strict=True):
            if points_found(front, known_front) == len(known_front):
                return trainings
        return None


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    search: Search
    folder: Path
    growths: list[Growth]
    """One for each seed."""
    known_front: np.ndarray | None
    steps: int
    """Of all clients in one training, as it was run."""
    seconds: float
    is_new: bool
    """False if all of it was done already."""

    @property
    def name(self) -> str:
        """Of the search."""
        return self.search.name


def points_found(front: np.ndarray, known_front: np.ndarray) -> int:
    """How many points of the known front are in a front."""
    gaps = np.abs(known_front[:, None] - front[None]).max(axis=2)
    return int((gaps <= SAME_POINT).any(axis=1).sum())


def growths(folder: Path, seeds: Sequence[int]) -> list[Growth]:
    """Read from the rows of a run."""
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


# -- running -------------------------------------------------------------------------------------------------------


def find(plan: Plan, out: Path, search: Search, stop: Callable[[], bool]) -> Found:
    """Runs a search, or what is missing of it."""
    spec, folder = spec_of(plan, search), out / search.name
    shown = Pulse(spec, folder)
    shown.name = search.name
    is_new = ensure(folder, spec, stop, shown=shown)
    run = RunFolder(folder)
    # Learner state is most of it, up to gigabytes; a finished run is never resumed.
    run.checkpoint_file.unlink(missing_ok=True)
    settings = spec.to_mapping()
    return Found(
        search=search,
        folder=folder,
        growths=growths(folder, spec.seeds),
        known_front=spec.problem.known_front(),
        steps=spec.clients * settings["learner"]["steps"] * settings["algorithm"]["training_rounds"],
        seconds=(run.read_json("status.json") or {}).get("seconds", 0.0),
        is_new=is_new,
    )


def find_all(
    plan: Plan, searches: Sequence[Search], out: Path, say: Say, stop: Callable[[], bool], jobs: Jobs
) -> list[Found]:
    """All searches in the order given; a message for each as it is done."""
    found = announced(Pieces(partial(find, plan), searches, out, name_of), jobs, say, stop)
    return [replace(one, folder=out / one.name) for one in found]  # Wherever it was found.


def name_of(search: Search) -> str:
    """Of its folder."""
    return search.name


def spread(values: Sequence[float]) -> str:
    """Mean and population deviation."""
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}"


def lines(
    found: Sequence[tuple[str, Found]], reference: Sequence[float]
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """For a figure, of each named search: hypervolumes over trainings `[k, 2]`, mean of its seeds, and deviations."""
    for name, one in found:
        places, values = mean_over_trainings(
            [(growth.trainings, growth.hypervolumes(reference)) for growth in one.growths]
        )
        yield name, np.array([places, values.mean(axis=0)]).T, values.std(axis=0)
