"""The trainings behind chapter 4 of L. M. Hartmann's thesis, and their clients' results.

A training is one algorithm in one environment under one distribution of preferences, its seeds in one stack, kept in an
ordinary run folder that tables and figures share. An algorithm and its +FT variant share their training: fine-tuning
replaces the last aggregation, so that its result is what the clients of the last round have before that aggregation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.campaigns.parallel import Jobs, Pieces, announced
from fedpareto.config.errors import UserError
from fedpareto.contract.registry import FINE_TUNED
from fedpareto.moo.dominance import front
from fedpareto.moo.indicators import all_indicators
from fedpareto.record import reading
from fedpareto.record.store import RunFolder
from fedpareto.runs.progress import Pulse
from fedpareto.runs.runner import ensure
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_papers.catalogue import Options, Say, known
from fedpareto_papers.measured import Entry, Measured
from fedpareto_papers.thesis.morl import published

QUICK_SEEDS, QUICK_CLIENTS, QUICK_ROUNDS, QUICK_STEPS = 2, 5, 3, 96
QUICK_LEARNER, QUICK_PROBLEM = {"learning_starts": 48}, {"episodes": 1}
"""About a minute: enough to see that everything works."""
NOT_TUNED = ("local", "mat-fl")
"""Without a +FT variant in the thesis."""
MOST_EVALUATIONS = 6
"""Of the models that clients have after their training, in a run: episodes are not free."""


@dataclass(frozen=True)
class Plan:
    """How large a reproduction is."""

    seeds: int = published.SEEDS
    clients: int | None = None
    """None: as many as in the thesis."""
    quick: bool = False
    settings: tuple[str, ...] = ()
    """Parameters of every run that the user set, such as engine.device=cuda."""

    @classmethod
    def make(cls, options: Options) -> Plan:
        """The thesis's values, or a quick version's, where the user sets nothing else."""
        options.must_name_parts()
        return cls(
            seeds=options.seeds or (QUICK_SEEDS if options.quick else published.SEEDS),
            clients=options.clients or (QUICK_CLIENTS if options.quick else None),
            quick=options.quick,
            settings=options.settings,
        )

    @property
    def size(self) -> str:
        """In words."""
        clients = "" if self.clients is None else f", {self.clients} clients"
        return f"{self.seeds} seed{'s' * (self.seeds > 1)}{clients}" + "".join(f", {text}" for text in self.settings)


@dataclass(frozen=True)
class Training:
    """One algorithm in one environment under one distribution of preferences."""

    environment: str
    preferences: str
    """A distribution's name, or groups:5,5,5,5."""
    algorithm: str
    own: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters that differ from table A.5's."""

    @property
    def label(self) -> str:
        """The algorithm, with what is special about it."""
        return ",".join([self.algorithm, *(f"{name}={value}" for name, value in self.own.items())])

    @property
    def name(self) -> str:
        """Also its folder, such as dst/dirichlet/fedavg."""
        return f"{self.environment}/{self.preferences.replace(':', '-').replace(',', '-')}/{self.label}"


@dataclass(frozen=True)
class Found:
    """The result of a training, for each seed."""

    training: Training
    folder: Path
    preferences: list[np.ndarray]
    """Of the clients, `[n, m]`."""
    sent: list[np.ndarray]
    """Their returns `[n, m]` with the models that the last aggregation gave them."""
    trained: list[np.ndarray]
    """Their returns `[n, m]` with the models that they had before it: the result of +FT."""
    reference: list[float]
    known_front: np.ndarray | None
    discount: float | None
    seconds: float
    is_new: bool
    """False if all of it was done already."""

    @property
    def name(self) -> str:
        """Of the training."""
        return self.training.name

    def points(self, fine_tuned: bool) -> list[np.ndarray]:
        """With or without +FT."""
        return self.trained if fine_tuned else self.sent


# -- running -------------------------------------------------------------------------------------------------------


def spec_of(plan: Plan, training: Training) -> Spec:
    """A training as one run with all its seeds."""
    environment = published.ENVIRONMENTS[training.environment]
    chosen = published.selected(training.environment, training.algorithm)
    steps, rounds = chosen.steps, environment.steps // chosen.steps
    if plan.quick:
        steps, rounds = QUICK_STEPS, QUICK_ROUNDS
    clients = _grouped(training.preferences) or plan.clients or environment.clients
    draft = Draft(
        {
            "algorithm": {"name": training.algorithm, **chosen.own, **training.own},
            "problem": {"name": environment.problem, **(QUICK_PROBLEM if plan.quick else {})},
            "clients": clients,
            "rounds": rounds,
            "seeds": list(range(plan.seeds)),
            "preferences": training.preferences,
            "evaluate_every": rounds - 1 if plan.quick else evaluate_every(rounds),
            # Trainings run side by side, one to a core, and each as one stack.
            "engine": {"name": "local", "threads": 1, "chunk": clients * plan.seeds},
            "learner": {"steps": steps, "target": _target(training), **(QUICK_LEARNER if plan.quick else {})},
        }
    )
    return draft.with_settings(plan.settings).finish()


def _target(training: Training) -> str:
    """A client without a server receives no target network."""
    return "kept" if training.algorithm == "local" else "received"


def _grouped(preferences: str) -> int:
    """How many clients there are in groups:5,5,5,5; 0 without groups."""
    _, colon, sizes = preferences.partition("groups:")
    return sum(int(size) for size in sizes.split(",")) if colon else 0


def evaluate_every(rounds: int) -> int:
    """The smallest spacing of few evaluations that has the last round among them, whose training +FT needs.

    Evaluations come before the rounds 0, k, 2k … (counted from 0), so k has to divide the last one's number.
    """
    last = max(rounds - 1, 1)
    return next(k for k in range(1, last + 1) if last % k == 0 and last // k < MOST_EVALUATIONS)


def find(plan: Plan, out: Path, training: Training, stop: Callable[[], bool]) -> Found:
    """Runs a training, or what is missing of it."""
    spec, folder = spec_of(plan, training), out / own(training)
    shown = Pulse(spec, folder)
    shown.name = training.name
    is_new = ensure(folder, spec, stop, shown=shown)
    run = RunFolder(folder)
    # Learner state is most of it, up to gigabytes; a finished run is never resumed.
    run.checkpoint_file.unlink(missing_ok=True)
    loaded = reading.load(folder)
    lines = [{line.round: line for line in loaded.of_seed(seed)} for seed in spec.seeds]
    trained = [of_seed[spec.rounds - 1].trained for of_seed in lines]
    return Found(
        training=training,
        folder=folder,
        preferences=[preferences_of(spec, seed) for seed in spec.seeds],
        sent=[of_seed[spec.rounds].sent[loaded.held_out] for of_seed in lines],
        trained=[values[loaded.held_out] for values in trained],
        reference=spec.problem.reference,
        known_front=spec.problem.known_front(),
        discount=getattr(spec.problem, "discount", None),
        seconds=loaded.status.seconds,
        is_new=is_new,
    )


def preferences_of(spec: Spec, seed: int) -> np.ndarray:
    """The clients' preferences, `[n, m]`."""
    found = spec.preferences_of(seed)
    assert found is not None, "only a deployment keeps them secret"
    return found


def find_all(
    plan: Plan, trainings: Sequence[Training], out: Path, say: Say, stop: Callable[[], bool], jobs: Jobs
) -> list[Found]:
    """All trainings, each at most once, in the order given; a message for each as it is done."""
    found = announced(Pieces(partial(find, plan), trainings, out, own), jobs, say, stop)
    return [replace(one, folder=out / own(one.training)) for one in found]  # Wherever it was found.


def own(training: Training) -> str:
    """The folder of a training."""
    return f"thesis-4/{training.name}"


# -- clients' results ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row(Measured):
    """One row of a table: an algorithm with or without +FT, ours beside the published one."""

    environment: str
    preferences: str
    algorithm: str
    """Such as fedpref+ft, or fedpref+ft,top_ratio=0.2."""
    values: Mapping[str, list[float]]
    """Of each metric, one for each seed."""
    published: Mapping[str, Entry] = field(default_factory=dict)
    """Of each metric; empty where nothing was."""

    def as_json(self) -> dict[str, Any]:
        """With means and deviations."""
        named = {"environment": self.environment, "preferences": self.preferences, "algorithm": self.algorithm}
        return named | {"metrics": self.metrics_as_json(self.published)}


def measures(
    points: np.ndarray, preferences: np.ndarray, reference: Sequence[float], known_front: np.ndarray | None
) -> dict[str, float]:
    """The thesis's five figures of one seed: the reward, each client's return weighted by its own preference, mean over
    clients (table 4.1), and the metrics of the set of returns (tables 4.3 to 4.6).

    A client whose training diverged has no returns (NaN) and is left out.
    """
    good = np.isfinite(points).all(axis=1)
    points, preferences = points[good], preferences[good]
    if not len(points):
        raise UserError("training diverged: no client of a seed has finite returns; a smaller learner.lr may help")
    indicators = all_indicators(points, reference, maximise=True, known_front=known_front)
    values = {"reward": float((points * preferences).sum(axis=1).mean())} | indicators
    return {metric: values[metric] for metric in published.METRICS if metric in values}


def front_of(found: Iterable[Found]) -> np.ndarray:
    """The front from which IGD is measured: the known front, or that of all returns that were found."""
    sets = list(found)
    known = next((one.known_front for one in sets if one.known_front is not None), None)
    if known is not None:
        return known
    points = np.concatenate([points for one in sets for points in [*one.sent, *one.trained]])
    return front(points[np.isfinite(points).all(axis=1)], maximise=True)


def row(found: Found, named: Training, known_front: np.ndarray, fine_tuned: bool, entries: Mapping[str, Entry]) -> Row:
    """A line from a training, which is to be called `named`; `entries` is what was published for it."""
    sets = zip(found.points(fine_tuned), found.preferences, strict=True)
    return Row(
        named.environment,
        named.preferences,
        replace(named, algorithm=named.algorithm + FINE_TUNED * fine_tuned).label,
        _by_metric([measures(points, weights, found.reference, known_front) for points, weights in sets]),
        entries,
    )


def _by_metric(seeds: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {metric: [values[metric] for values in seeds] for metric in seeds[0]}


# -- upper bounds --------------------------------------------------------------------------------------------------

BEST_KNOWN, PERFECT = "best known", "perfect learners"


def ceilings(found: Found) -> list[Row]:
    """Where the front is known: the best that clients with the preferences of a training could have.

    "best known": each has the best point of the front for its preference; no reward can exceed that of a true front.
    "perfect learners": each has the policy that maximises its discounted reward, which is what they learn (only for
    DST, where the discounted value of a point follows from the point).
    """
    if found.known_front is None:
        return []
    worth = {BEST_KNOWN: found.known_front}
    if found.training.environment == "dst" and found.discount is not None:
        worth[PERFECT] = discounted(found.known_front, found.discount)
    return [
        Row(
            found.training.environment,
            found.training.preferences,
            title,
            _by_metric([_favourites(found, weights, values) for weights in found.preferences]),
        )
        for title, values in worth.items()
    ]


def _favourites(found: Found, preferences: np.ndarray, worth: np.ndarray) -> dict[str, float]:
    """The measures if each client takes the best point of the known front for its preference."""
    assert found.known_front is not None, "asked for where it is known"
    points = found.known_front[(preferences @ worth.T).argmax(axis=1)]
    return measures(points, preferences, found.reference, found.known_front)


def discounted(front: np.ndarray, discount: float) -> np.ndarray:
    """Of DST's points (treasure, −n): γⁿ⁻¹ times the treasure, which comes with the last step, and −Σ_{t<n} γᵗ."""
    steps = -front[:, 1]
    time_lost = (1 - discount**steps) / (1 - discount) if discount < 1 else steps
    return np.stack([discount ** (steps - 1) * front[:, 0], -time_lost], axis=1)


# -- names ---------------------------------------------------------------------------------------------------------


def environments(given: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """By the short name or the problem's, in the order of the tables' columns."""
    short = {environment.problem: name for name, environment in published.ENVIRONMENTS.items()}
    wanted = known("environment of chapter 4", [short.get(name, name) for name in given], published.ENVIRONMENTS)
    return tuple(name for name in published.ENVIRONMENTS if name in (wanted or default))
