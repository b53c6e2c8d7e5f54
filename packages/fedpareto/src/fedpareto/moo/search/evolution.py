"""NSGA-II over weights: Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", 2002, by pymoo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.moo._points import Array
from fedpareto.moo.search.history import History, Streams, is_known, ranges


@dataclass(frozen=True)
class Evolution:
    """A population of weights; the objectives of what is trained for them are their fitness."""

    count: int
    """Size of the population, and of its offspring in an iteration."""

    def propose(self, history: History, iteration: int, streams: Streams) -> Array:
        """The offspring of the population, whose evolution is replayed from the beginning."""
        algorithm = _nsga2(self.count, history.objectives, int(streams(0).integers(2**31)))
        offspring, done = algorithm.ask(), 0
        for _ in range(iteration):
            values = history.values[done : done + len(offspring)]
            offspring.set("F", _losses(values, history.until(done + len(offspring))))
            algorithm.tell(infills=offspring)
            offspring, done = algorithm.ask(), done + len(offspring)
        return _on_simplex(offspring.get("X"))


def _nsga2(population: int, objectives: int, seed: int) -> Any:
    """pymoo's algorithm without a termination criterion, on one number between 0 and 1 for each weight."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.problem import Problem
        from pymoo.core.termination import NoTermination
    except ImportError:
        raise UserError("nsga2 needs the package pymoo: pip install 'fedpareto[search]'") from None
    problem = Problem(n_var=objectives, n_obj=objectives, xl=0.0, xu=1.0)
    algorithm = NSGA2(pop_size=population)
    return algorithm.setup(problem, termination=NoTermination(), seed=seed, verbose=False)


def _losses(values: Array, past: History) -> Array:
    """Losses to be minimised; a failed training is worse than all others so far."""
    worst = past.known.min(axis=0) - ranges(past.values) if len(past.known) else np.zeros(past.objectives)
    return -np.where(is_known(values)[:, None], values, worst)


def _on_simplex(genes: Array) -> Array:
    total = genes.sum(axis=1, keepdims=True)
    return np.where(total > 0, genes / np.where(total > 0, total, 1.0), 1 / genes.shape[1])
