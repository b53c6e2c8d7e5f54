"""The trainings behind chapter 4 of L. M. Hartmann's thesis, and their clients' results.

A training is one algorithm in one environment under one distribution of preferences, its seeds in one stack, kept in an
ordinary run folder that tables and figures share. An algorithm and its +FT variant share their training: fine-tuning
replaces the last aggregation, so that its result is what the clients of the last round have before that aggregation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.contract.registry import FINE_TUNED
from fedpareto.moo.dominance import front
from fedpareto.moo.indicators import all_indicators
from fedpareto.spec.spec import Spec
from fedpareto_papers.catalogue import Options, known
from fedpareto_papers.study import Cell, Entry, Row, Run, by_metric
from fedpareto_papers.thesis.morl import published

QUICK_SEEDS, QUICK_CLIENTS, QUICK_ROUNDS, QUICK_STEPS = 2, 5, 3, 96
QUICK_LEARNER, QUICK_PROBLEM = {"learning_starts": 48}, {"episodes": 1}
"""About a minute: enough to see that everything works."""
NOT_TUNED = ("local", "mat-fl")
"""Without a +FT variant in the thesis."""
MOST_EVALUATIONS = 6
"""Evaluations of the models that clients have after their training, in a run: episodes are not free."""


def sized(options: Options) -> Options:
    """The thesis's seeds and clients (None: each environment's), or a quick version's, where the user sets none."""
    options.must_name_parts()
    return options.sized({"seeds": published.SEEDS, "clients": None}, {"seeds": QUICK_SEEDS, "clients": QUICK_CLIENTS})


def words(options: Options) -> str:
    seeds = f"{options.seeds} seed{'s' * (options.seeds != 1)}"
    return seeds + ("" if options.clients is None else f", {options.clients} clients")


def plan(options: Options) -> dict[str, Any]:
    """The size as JSON values: only records of one size are compared."""
    return {
        "seeds": options.seeds,
        "clients": options.clients,
        "quick": options.quick,
        "settings": list(options.settings),
    }


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
class Returns:
    """Clients' results of a training, for each seed."""

    preferences: list[np.ndarray]
    """Preferences of the clients, `[n, m]`."""
    sent: list[np.ndarray]
    """Returns `[n, m]` of the models that the last aggregation gave clients."""
    trained: list[np.ndarray]
    """Returns `[n, m]` of the models that they had before it: the result of +FT."""
    reference: list[float]
    known_front: np.ndarray | None
    discount: float | None

    def points(self, fine_tuned: bool) -> list[np.ndarray]:
        """The returns with or without +FT."""
        return self.trained if fine_tuned else self.sent


# -- running -------------------------------------------------------------------------------------------------------


def cell_of(options: Options, training: Training) -> Cell:
    """A training as one run with all its seeds."""
    environment = published.ENVIRONMENTS[training.environment]
    chosen = published.selected(training.environment, training.algorithm)
    steps, rounds = chosen.steps, environment.steps // chosen.steps
    if options.quick:
        steps, rounds = QUICK_STEPS, QUICK_ROUNDS
    clients = _grouped(training.preferences) or options.clients or environment.clients
    seeds = options.seeds or published.SEEDS
    draft = {
        "algorithm": {"name": training.algorithm, **chosen.own, **training.own},
        "problem": {"name": environment.problem, **(QUICK_PROBLEM if options.quick else {})},
        "clients": clients,
        "rounds": rounds,
        "seeds": list(range(seeds)),
        "preferences": training.preferences,
        "evaluate_every": rounds - 1 if options.quick else evaluate_every(rounds),
        # Trainings run side by side, one to a core, and each as one stack.
        "engine": {"name": "local", "threads": 1, "chunk": clients * seeds},
        "learner": {
            "steps": steps,
            # A client without a server receives no target network.
            "target": "kept" if training.algorithm == "local" else "received",
            **(QUICK_LEARNER if options.quick else {}),
        },
    }
    return Cell(f"thesis-4/{training.name}", draft, read, called=training.name)


def _grouped(preferences: str) -> int:
    """Count the clients in groups:5,5,5,5; 0 without groups."""
    _, colon, sizes = preferences.partition("groups:")
    return sum(int(size) for size in sizes.split(",")) if colon else 0


def evaluate_every(rounds: int) -> int:
    """The smallest spacing of few evaluations that has the last round among them, whose training +FT needs.

    Evaluations come before the rounds 0, k, 2k … (counted from 0), so k has to divide the last one's number.
    """
    last = max(rounds - 1, 1)
    return next(k for k in range(1, last + 1) if last % k == 0 and last // k < MOST_EVALUATIONS)


def read(run: Run) -> Returns:
    spec, part = run.spec, run.record.held_out
    lines = [{line.round: line for line in run.record.of_seed(seed)} for seed in spec.seeds]
    return Returns(
        preferences=[preferences_of(spec, seed) for seed in spec.seeds],
        sent=[of_seed[spec.rounds].sent[part] for of_seed in lines],
        trained=[of_seed[spec.rounds - 1].trained[part] for of_seed in lines],
        reference=spec.problem.reference,
        known_front=spec.problem.known_front(),
        discount=getattr(spec.problem, "discount", None),
    )


def preferences_of(spec: Spec, seed: int) -> np.ndarray:
    """The clients' preferences, `[n, m]`."""
    found = spec.preferences_of(seed)
    assert found is not None, "only a deployment keeps them secret"
    return found


# -- clients' results ----------------------------------------------------------------------------------------------


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


def front_of(found: Iterable[Returns]) -> np.ndarray:
    """The front from which IGD is measured: the known front, or that of all returns that were found."""
    sets = list(found)
    known = next((one.known_front for one in sets if one.known_front is not None), None)
    if known is not None:
        return known
    points = np.concatenate([points for one in sets for points in [*one.sent, *one.trained]])
    return front(points[np.isfinite(points).all(axis=1)], maximise=True)


def row(
    found: Returns, named: Training, known_front: np.ndarray, fine_tuned: bool, entries: Mapping[str, Entry]
) -> Row:
    """A line from a training, which is to be called `named`; `entries` is what was published for it."""
    sets = zip(found.points(fine_tuned), found.preferences, strict=True)
    label = replace(named, algorithm=named.algorithm + FINE_TUNED * fine_tuned).label
    values = [measures(points, weights, found.reference, known_front) for points, weights in sets]
    return Row(key_of(named, label), by_metric(values), entries)


def key_of(training: Training, algorithm: str) -> dict[str, str]:
    """The key of a row: `algorithm` is such as fedpref+ft, or fedpref+ft,top_ratio=0.2."""
    return {"environment": training.environment, "preferences": training.preferences, "algorithm": algorithm}


# -- upper bounds --------------------------------------------------------------------------------------------------

BEST_KNOWN, PERFECT = "best known", "perfect learners"


def ceilings(found: Returns, training: Training) -> list[Row]:
    """The best that clients with the preferences of a training could have; nothing where the front is not known.

    "best known": each has the best point of the front for its preference; no reward can exceed that of a true front.
    "perfect learners": each has the policy that maximises its discounted reward, which is what they learn (only for
    DST, where the discounted value of a point follows from the point).
    """
    if found.known_front is None:
        return []
    worth = {BEST_KNOWN: found.known_front}
    if training.environment == "dst" and found.discount is not None:
        worth[PERFECT] = discounted(found.known_front, found.discount)
    return [
        Row(key_of(training, title), by_metric([_favourites(found, weights, values) for weights in found.preferences]))
        for title, values in worth.items()
    ]


def _favourites(found: Returns, preferences: np.ndarray, worth: np.ndarray) -> dict[str, float]:
    """Compute the measures if each client takes the best point of the known front for its preference."""
    assert found.known_front is not None, "asked for where it is known"
    points = found.known_front[(preferences @ worth.T).argmax(axis=1)]
    return measures(points, preferences, found.reference, found.known_front)


def discounted(front: np.ndarray, discount: float) -> np.ndarray:
    """Discount DST's points (treasure, −n) to γⁿ⁻¹ · treasure, which comes with the last step, and −Σ_{t<n} γᵗ."""
    steps = -front[:, 1]
    time_lost = (1 - discount**steps) / (1 - discount) if discount < 1 else steps
    return np.stack([discount ** (steps - 1) * front[:, 0], -time_lost], axis=1)


# -- names ---------------------------------------------------------------------------------------------------------


def environments(given: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """Find environments by the short name or the problem's, in the order of the tables' columns."""
    short = {environment.problem: name for name, environment in published.ENVIRONMENTS.items()}
    wanted = known("environment of chapter 4", [short.get(name, name) for name in given], published.ENVIRONMENTS)
    return tuple(name for name in published.ENVIRONMENTS if name in (wanted or default))
