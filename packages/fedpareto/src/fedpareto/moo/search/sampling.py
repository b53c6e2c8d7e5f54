"""Weights that do not depend on earlier results: evenly spread, or random."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from fedpareto.moo._points import Array
from fedpareto.moo.preferences import dirichlet, equidistant
from fedpareto.moo.search.history import History, Streams


@dataclass(frozen=True)
class Lattice:
    """Weights evenly spread over the simplex, known from the start."""

    count: int
    """Weights in an iteration."""
    iterations: int
    """Number of iterations after which the whole lattice is trained."""

    def propose(self, history: History, iteration: int, streams: Streams) -> Array:
        """Every k-th row, so that each iteration covers the whole front."""
        return _lattice(self.count * self.iterations, history.objectives)[iteration :: self.iterations]


@dataclass(frozen=True)
class RandomWeights:
    """Weights drawn uniformly from the simplex."""

    count: int
    """Weights in an iteration."""

    def propose(self, history: History, iteration: int, streams: Streams) -> Array:
        return dirichlet(self.count, history.objectives, streams(iteration))


@lru_cache(maxsize=8)
def _lattice(points: int, objectives: int) -> Array:
    return equidistant(points, objectives)
