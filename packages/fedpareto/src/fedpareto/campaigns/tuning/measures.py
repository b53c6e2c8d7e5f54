"""The measures of a candidate: any result of a run, on validation rows and never on test rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract.problem import Problem
from fedpareto.moo.indicators import hypervolume, own_utilities
from fedpareto.spec.spec import Spec

OVER_CLIENTS: Mapping[str, Callable[[np.ndarray], float]] = {
    "": lambda values: float(values.mean()),
    "worst ": lambda values: float(values.min()),
    "deviation of ": lambda values: float(values.std()),
}
"""Statistic over the clients' values, turned so that larger is better, by the words before an objective's name."""
UTILITY = "utility"
WORST_CLIENT = "worst client"


@dataclass(frozen=True)
class Measured:
    """The results of a run, by seed."""

    points: Sequence[np.ndarray]
    """The clients' objectives on validation rows, `[n, m]`; of a problem without such rows, where it says they may be
    compared: see contract.solutions.chosen_on.
    """
    preferences: Sequence[np.ndarray | None]
    """`[n, m]`; None where they are private."""
    bytes: float
    """Bytes of all messages, mean over seeds."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Values by name that not every run has: epsilon, seconds, joules."""


@dataclass(frozen=True)
class Measure:
    """One number of a run."""

    name: str
    maximise: bool
    of: Callable[[Measured], float]


def known(spec: Spec) -> dict[str, Measure]:
    """Everything by which a run of this spec can be judged, by name."""
    problem = spec.problem
    volume = partial(hypervolume, reference=problem.reference, maximise=problem.maximise)
    found = [
        Measure(
            words + one.name, one.maximise and words != "deviation of ", _over_clients(place, one.maximise, words, made)
        )
        for place, one in enumerate(problem.objectives)
        for words, made in OVER_CLIENTS.items()
    ]
    found += [
        Measure(UTILITY, True, _utility(problem, np.mean)),
        Measure(WORST_CLIENT, True, _utility(problem, np.min)),
        Measure("deviation over clients", False, _utility(problem, np.std)),
        Measure("hypervolume", True, lambda run: _mean(run.points, volume)),
        Measure("bytes", False, lambda run: run.bytes),
        Measure("parameters", False, lambda run: float(problem.layout.size)),
    ]
    if spec.privacy.kind != "none":
        found.append(Measure("epsilon", False, _other("epsilon")))
    if spec.simulates:
        found += [Measure(name, False, _other(name)) for name in ("seconds", "joules")]
    return {one.name: one for one in found}


def named(spec: Spec, name: str, place: str) -> Measure:
    """Return the measure of this name; the beginning of an objective's name will do where it is the only one."""
    every = known(spec)
    if name in every:
        return every[name]
    if name == "epsilon":
        raise UserError(f"{place}: there is no epsilon without privacy; set privacy, such as privacy: local")
    if name in ("seconds", "joules"):
        raise UserError(f"{place}: there are no simulated {name} without devices; set devices, such as devices: tiers")
    longer = [one for one in every if one.startswith(f"{name}:")]
    if len(longer) == 1:
        return every[longer[0]]
    raise UserError(f"{place}: {UnknownName('objective', name, every)}")


def _other(name: str) -> Callable[[Measured], float]:
    return lambda run: run.others[name]


def _over_clients(
    place: int, maximise: bool, words: str, made: Callable[[np.ndarray], float]
) -> Callable[[Measured], float]:
    sign = 1.0 if maximise else -1.0
    back = 1.0 if words.startswith("deviation") else sign

    def of(run: Measured) -> float:
        return back * _mean(run.points, lambda points: made(sign * points[:, place]))

    return of


def _utility(problem: Problem, made: Callable[[np.ndarray], np.floating]) -> Callable[[Measured], float]:
    """Measure the utility of clients' own models under their own preferences."""

    def of(run: Measured) -> float:
        found = []
        for points, wanted in zip(run.points, run.preferences, strict=True):
            if wanted is None:
                raise UserError("preferences are private here, so that nobody knows what models are worth to clients")
            found.append(float(made(own_utilities(points, wanted, problem.maximise))))
        return float(np.mean(found))

    return of


def _mean(seeds: Sequence[np.ndarray], made: Callable[[np.ndarray], float]) -> float:
    return float(np.mean([made(points) for points in seeds]))
