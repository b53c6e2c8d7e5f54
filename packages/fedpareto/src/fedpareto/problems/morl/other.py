"""Any environment of mo-gymnasium, by its id."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedpareto.config.bounds import Finite, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.environment import Actions
from fedpareto.contract.problem import Objective
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.gym_problem import GymProblem

MOUNTAIN_CAR = GymEnvironment(
    "mo-mountaincar-v0", observation_size=2, actions=Actions(count=3), objectives=3, horizon=200, lowest=(-1.0,) * 3
)
"""Known here, so that the problem can be listed where the library is not installed."""


@dataclass(frozen=True)
class OtherEnvironment(GymProblem):
    """An environment with vector observations and a reward for each of several objectives, all maximised."""

    name: ClassVar[str] = "mo-gymnasium"

    id: str = MOUNTAIN_CAR.id
    """Id in mo-gymnasium; `my_package:my-environment-v0` imports my_package, which registers it, first."""
    horizon: Whole = 0
    """Steps after which an episode is truncated; 0: as the environment declares."""
    reference_point: tuple[Finite, ...] = ()
    """Reference point of the hypervolume, a return for each objective; empty: 1 below the smallest possible return."""

    @property
    def title(self) -> str:
        return self.id

    @cached_property
    def environment(self) -> GymEnvironment:
        if (self.id, self.horizon) == (MOUNTAIN_CAR.id, 0):
            return MOUNTAIN_CAR
        return GymEnvironment.of(self.id, self.horizon)

    @cached_property
    def objectives(self) -> tuple[Objective, ...]:
        """Numbered, as environments do not name theirs."""
        environment = self.environment
        reference = self.reference_point or tuple(low * environment.horizon - 1 for low in environment.lowest)
        if len(reference) != environment.objectives:
            raise UserError(
                f"reference_point has {len(reference)} numbers, but {self.id} has {environment.objectives} objectives"
            )
        unknown = [number for number, value in enumerate(reference, 1) if not math.isfinite(value)]
        if unknown:
            raise UserError(
                f"{self.id} does not declare the smallest reward of a step in objective {unknown[0]}; say from which "
                f"returns on the hypervolume counts, as in reference_point: {[-100] * len(reference)}"
            )
        return tuple(
            Objective(f"objective {number}", maximise=True, reference=value)
            for number, value in enumerate(reference, 1)
        )
