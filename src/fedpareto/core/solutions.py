"""What comes out of a run: solutions with their objective values. Metrics, reports and pages read nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedpareto.core.problem import Objective
from fedpareto.moo import dominance, indicators


@dataclass(frozen=True)
class SolutionSet:
    """One solution per client. Row i of everything belongs to the client `clients[i]`."""

    objectives: tuple[Objective, ...]
    clients: tuple[int, ...]
    preferences: np.ndarray | None
    """`[n, m]`; None if the clients keep theirs to themselves."""
    values: Mapping[str, np.ndarray]
    """The objectives on each part of the data, `{split: [n, m]}`."""
    known_front: np.ndarray | None = None

    @property
    def held_out(self) -> str:
        """The part of the data on which solutions are compared."""
        return "test" if "test" in self.values else list(self.values)[-1]

    @property
    def maximise(self) -> list[bool]:
        """The direction of each objective."""
        return [objective.maximise for objective in self.objectives]

    @property
    def reference(self) -> list[float]:
        """The reference point of the hypervolume."""
        return [objective.reference for objective in self.objectives]

    @property
    def points(self) -> np.ndarray:
        """The solutions' objectives on held-out data, `[n, m]`."""
        return np.asarray(self.values[self.held_out], dtype=float)

    def front(self) -> np.ndarray:
        """The non-dominated points, `[k, m]`."""
        return dominance.front(self.points, maximise=self.maximise)

    def hypervolume(self) -> float:
        """Of the points, from the objectives' reference point."""
        return indicators.hypervolume(self.points, self.reference, maximise=self.maximise)

    def indicators(self) -> dict[str, float]:
        """All indicators of the points."""
        return indicators.all_indicators(
            self.points,
            self.reference,
            maximise=self.maximise,
            known_front=self.known_front,
            preferences=self.preferences,
        )
