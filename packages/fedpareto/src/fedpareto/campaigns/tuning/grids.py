"""Published grids as ready-made search spaces: tables A.3, A.4 and A.10 of the thesis, table V of FedMGDA+.

Local iterations are `learner.steps`, in reinforcement learning steps in the environment of a round. A grid is that of
the spec's algorithm, and in reinforcement learning of its problem. "Finetuning rounds: 0, 1" is the algorithm without
and with `+ft`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract.registry import parted
from fedpareto.spec.draft import Draft

Grid = dict[str, list[Any]]

_STEPS = {
    "mo-lunar-lander": [2_000, 5_000, 10_000],
    "minecart-deterministic": [2_000, 5_000, 10_000],
    "deep-sea-treasure": [500, 1_000, 1_500],
    "mo-lunar-lander-continuous": [5_000, 10_000, 15_000],
    "mo-halfcheetah": [25_000, 37_500, 50_000],
}
_THRESHOLDS = {
    "mo-lunar-lander": [2.5, 5.0, 7.5],
    "minecart-deterministic": [2.0, 3.0, 5.0],
    "deep-sea-treasure": [2.5, 5.0, 7.5],
    "mo-lunar-lander-continuous": [10.0, 15.0, 20.0],
    "mo-halfcheetah": [20.0, 30.0, 40.0],
}
_VOTERS = {"mo-halfcheetah": [3, 5, 8]}
_DQN = ("mo-lunar-lander", "minecart-deterministic", "deep-sea-treasure")
_DDPG = ("mo-lunar-lander-continuous", "mo-halfcheetah")


def _reinforcement(problem: str) -> Mapping[str, Grid]:
    """Tables A.3 and A.4, by algorithm."""
    steps: Grid = {"learner.steps": _STEPS[problem]}
    clusters: Grid = {"algorithm.threshold": _THRESHOLDS[problem], "algorithm.patience": [1, 2]}
    return {
        "fedavg": steps,
        "fedprox": steps | {"algorithm.mu": [0.01, 0.1, 1.0]},
        "cfl": steps | clusters,
        "mat-fl": steps | {"algorithm.voters": _VOTERS.get(problem, [5, 8, 10])},
        "fedpref": steps | clusters | {"algorithm.similarity_bound": [-1.0, 0.0]},
    }


def _fairness() -> Mapping[str, Grid]:
    """Table A.10, by algorithm; its thresholds are percentages (`threshold_in: percent`)."""
    rates: Grid = {"learner.lr": [5e-4, 1e-3, 1e-2]}
    both: Grid = rates | {"learner.steps": [10, 25, 50]}
    clusters: Grid = {
        "algorithm.threshold": [1.0, 2.5, 5.0, 7.5],
        "algorithm.threshold_in": ["percent"],
        "algorithm.patience": [1, 2],
    }
    return {
        "local": rates,
        "fedprox": _tuned("fedprox") | both | {"algorithm.mu": [0.0, 0.01, 0.1]},
        "cfl": _tuned("cfl") | both | clusters,
        "fedcmoo": _tuned("fedcmoo") | both | {"algorithm.server_lr": [1.0, 1.5, 2.0, 2.5]},
        "fedpref": _tuned("fedpref") | both | clusters,
    }


def _tuned(name: str) -> Grid:
    return {"algorithm": [name, f"{name}+ft"]}


def _table_v() -> Mapping[str, Grid]:
    """Table V of FedMGDA+, by algorithm. A decay of 0, none at all, is 1 here: η ends where it began."""
    decays: Grid = {"algorithm.decay": [1.0, 1 / 40, 1 / 30, 1 / 20, 1 / 10, 1 / 3, 1 / 2]}
    steps: Grid = {"algorithm.server_lr": [0.5, 1.0, 1.5, 2.0]}
    prox = [1.0, 1 / 40, 1 / 30, 1 / 20, 1 / 10, 1 / 5, 1 / 3, 1 / 2]
    return {
        "afl": {"algorithm.weight_lr": [0.01, 0.1, 0.2, 0.5], "learner.lr": [0.01, 0.1]},
        "q-fedavg": {
            "algorithm.q": [0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0],
            "algorithm.lipschitz": [0.1, 1.0, 10.0],
        },
        "fedmgda-plus": steps | decays,
        "fedavg-n": steps | decays,
        "fedprox": {"algorithm.mu": [0.001, 0.01, 0.1, 0.5, 1.0, 10.0]},
        "mgda-prox": steps | {"algorithm.mu": [0.1], "algorithm.decay": prox},
    }


GRIDS: Mapping[str, Callable[[], Mapping[str, Grid]]] = {"A.10": _fairness, "V": _table_v}
BY_PROBLEM: Mapping[str, tuple[str, ...]] = {"A.3": _DQN, "A.4": _DDPG}


def of(name: str, base: Draft) -> Grid:
    """The grid of a table for the algorithm, and the problem, that a draft names."""
    if name not in (*GRIDS, *BY_PROBLEM):
        raise UnknownName("grid", name, [*GRIDS, *BY_PROBLEM])
    spec = base.finish()
    if name in BY_PROBLEM:
        if spec.problem.name not in BY_PROBLEM[name]:
            raise UserError(
                f"--grid {name} is for {', '.join(BY_PROBLEM[name])}; the problem here is {spec.problem.name}"
            )
        tables = _reinforcement(spec.problem.name)
    else:
        tables = GRIDS[name]()
    algorithm, variant = parted(spec.algorithm.name)
    if algorithm not in tables:
        raise UserError(f"--grid {name} has the algorithms {', '.join(tables)}; the algorithm here is {algorithm}")
    grid = dict(tables[algorithm])
    # Who names another variant than the tables have tunes that one.
    return grid | {"algorithm": [spec.algorithm.name]} if variant not in ("", "+ft") else grid
