"""Early stopping: a seed stops once its models have not improved on validation rows for some rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.contract.algorithm import State
from fedpareto.contract.client_state import Kept
from fedpareto.contract.problem import Problem
from fedpareto.moo.indicators import hypervolume

VALIDATION = "validation"
"""The split that decides: neither the training nor the test split."""


def score(points: np.ndarray, problem: Problem) -> float:
    """The score of the clients' models `[n, m]`, higher is better: the hypervolume, of a single objective the mean."""
    known = points[np.isfinite(points).all(axis=1)]
    if len(problem.objectives) > 1:
        return hypervolume(known, problem.reference, maximise=problem.maximise) if len(known) else 0.0
    if not len(known):
        return -math.inf
    return float(known.mean()) * (1 if problem.maximise[0] else -1)


@dataclass
class Watch:
    """One seed's best round so far, with all state of its models, and whether the seed continues."""

    after: int
    """Rounds without improvement after which it stops."""
    margin: float
    """Smallest improvement that counts."""
    state: State
    private: Kept = field(default_factory=Kept)
    best: float = -math.inf
    stopped: bool = False

    def look(self, found: float, state: State, private: Kept, run: int) -> None:
        """Records the models after `state.round` rounds, with what the clients of this run keep."""
        if found > self.best + self.margin:
            self.best, self.state = found, state
            self.private = private.of_run(run)
        elif state.round - self.state.round >= self.after:
            self.stopped = True

    def to_plain(self) -> dict[str, Any]:
        """Return its values that are not tensors."""
        return {"best": None if self.best == -math.inf else self.best, "stopped": self.stopped}

    def restored(self, plain: Mapping[str, Any], state: State, private: Kept) -> Watch:
        """Restore what `to_plain` wrote."""
        best = -math.inf if plain["best"] is None else plain["best"]
        return Watch(self.after, self.margin, state, private, best, plain["stopped"])
