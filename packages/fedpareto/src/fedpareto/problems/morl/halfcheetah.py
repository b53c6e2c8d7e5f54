"""The half-cheetah of mo-gymnasium: run fast, with little effort."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedpareto.contract.environment import Actions
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Objective
from fedpareto.learners.ddpg import DDPG
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.gym_problem import GymProblem

JOINTS = Actions(low=(-1.0,) * 6, high=(1.0,) * 6)
"""Torques at both legs' thighs, shins and feet."""


@dataclass(frozen=True)
class HalfCheetah(GymProblem):
    """Two objectives, speed and effort; MO-HC of the thesis. Version 4, as there: version 5 has another effort."""

    name: ClassVar[str] = "mo-halfcheetah"

    hidden: tuple[int, ...] = (400, 300)
    episodes: int = 5

    @cached_property
    def environment(self) -> GymEnvironment:
        return GymEnvironment("mo-halfcheetah-v4", observation_size=17, actions=JOINTS, objectives=2, horizon=1_000)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The thesis does not give its reference point.

        Ours: 5 m backwards in an episode (lying still gives 0), and a little more than the effort of all joints
        at their strongest, 0.6 a step.
        """
        return Objective("speed", maximise=True, reference=-100.0), Objective("effort", maximise=True, reference=-601.0)

    def learner(self) -> Learner:
        """Table A.7 of the thesis, and the rounds of table A.5."""
        return DDPG(steps=25_000, lr=0.001, buffer_size=200_000, gamma=self.discount)

    def default_clients(self) -> int:
        return 10
