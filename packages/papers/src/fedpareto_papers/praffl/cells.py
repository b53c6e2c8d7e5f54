"""Cells of PraFFL's table and figures, and what their runs came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.moo.indicators import hypervolume
from fedpareto_papers.praffl import published

EQUATION_3, FROM_ALL = 1, 2
"""Columns of a point: ΔDP as the paper defines it, and as its published code measures it."""


@dataclass(frozen=True)
class Cell:
    """One algorithm on one data set."""

    data: str
    label: str
    algorithm: str
    own: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters that differ from the algorithm's own."""
    problem: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the problem that differ from published.DATA."""


@dataclass(frozen=True)
class Found:
    """The result of the runs of a cell."""

    cell: Cell
    points: list[list[np.ndarray]]
    """For each seed, the points `[k, 3]` before the first round and after each."""
    seconds: float
    trained: bool
    """False if all of it was done already."""

    def volumes(self, measure: int = EQUATION_3, when: int = -1) -> list[float]:
        """The hypervolume of each seed after a round."""
        return [volume(history[when], measure) for history in self.points]

    def best_volumes(self, measure: int = EQUATION_3) -> list[float]:
        """The best over rounds, of each seed: "the mean and variance of the best results" (section 6.2)."""
        return [max(volume(found, measure) for found in history[1:]) for history in self.points]

    def best(self, column: int) -> np.ndarray:
        """The points `[seeds, 3]` with the smallest error (0) or gap (1)."""
        return np.stack([history[-1][history[-1][:, column].argmin()] for history in self.points])


def volume(points: np.ndarray, measure: int) -> float:
    """Of (error rate, gap), from published.REFERENCE on."""
    return hypervolume(points[:, [0, measure]], published.REFERENCE, maximise=False)
