"""Past trainings that a search for weights knows, and the interface of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo._points import Array

Streams = Callable[[int], np.random.Generator]
"""The random stream of an iteration, from its beginning."""


@dataclass(frozen=True)
class History:
    """The weights that were trained for, and the results, in the order in which they were proposed."""

    weights: Array
    """`[t, m]`, rows on the simplex."""
    values: Array
    """The objectives `[t, m]` of the trained models, all to be maximised; NaN where a training failed."""

    @property
    def objectives(self) -> int:
        return int(self.weights.shape[1])

    @property
    def known(self) -> Array:
        """The objectives of all successful trainings, `[k, m]`."""
        return self.values[is_known(self.values)]

    def until(self, end: int) -> History:
        return History(self.weights[:end], self.values[:end])


class Search(Protocol):
    """Proposes weights, one iteration after the other."""

    def propose(self, history: History, iteration: int, streams: Streams) -> Array:
        """The weights `[k, m]` to train for in an iteration (from 0 on); none if the search is over."""


def is_known(values: Array) -> NDArray[np.bool_]:
    """Mask `[k]` of the rows of `values` `[k, m]` that hold numbers."""
    return np.asarray(np.isfinite(values).all(axis=1))


def ranges(values: Array) -> Array:
    """Largest minus smallest value `[m]` of each objective over the known rows; 1 where there is no difference."""
    known = values[is_known(values)]
    width = np.ptp(known, axis=0) if len(known) else np.zeros(values.shape[1])
    return np.where(width > 0, width, 1.0)
