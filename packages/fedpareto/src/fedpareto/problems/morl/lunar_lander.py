"""The lunar landers of mo-gymnasium: land between two flags, smoothly, with little fuel of either engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedpareto.contract.environment import Actions
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Objective
from fedpareto.learners.ddpg import DDPG
from fedpareto.learners.dqn import DQN
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.gym_problem import GymProblem

ENGINES = Actions(count=4)
"""No engine, left, main, right."""
THROTTLES = Actions(low=(-1.0, -1.0), high=(1.0, 1.0))
"""Throttles of the main engine and of the side engines."""


@dataclass(frozen=True)
class LunarLander(GymProblem):
    """Four objectives and four actions; what the thesis calls MO-LL."""

    name: ClassVar[str] = "mo-lunar-lander"

    discount: float = 0.99

    @cached_property
    def environment(self) -> GymEnvironment:
        return GymEnvironment("mo-lunar-lander-v3", observation_size=8, actions=ENGINES, objectives=4, horizon=1_000)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The reference point is the one that fits the thesis's tables 4.3 ff. in magnitude."""
        return (
            Objective("landing", maximise=True, reference=-101.0),
            Objective("shaping", maximise=True, reference=-1001.0),
            Objective("main engine", maximise=True, reference=-101.0),
            Objective("side engines", maximise=True, reference=-101.0),
        )

    def learner(self) -> Learner:
        """Table A.6 of the thesis; 150,000 steps in all, of which exploration takes 12 %."""
        return DQN(
            steps=5_000,
            lr=0.00063,
            batch_size=64,
            buffer_size=50_000,
            learning_starts=0,
            gamma=self.discount,
            target_update_interval=250,
            train_freq=4,
            gradient_steps=-1,
            exploration_steps=18_000,
            exploration_final=0.1,
        )


@dataclass(frozen=True)
class ContinuousLunarLander(GymProblem):
    """Lunar lander with throttles instead of switches; MO-LLcont. of the thesis."""

    name: ClassVar[str] = "mo-lunar-lander-continuous"

    hidden: tuple[int, ...] = (400, 300)

    @cached_property
    def environment(self) -> GymEnvironment:
        id = "mo-lunar-lander-continuous-v3"
        return GymEnvironment(id, observation_size=8, actions=THROTTLES, objectives=4, horizon=1_000)

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return LunarLander().objectives

    def learner(self) -> Learner:
        """Table A.7 of the thesis."""
        return DDPG(steps=5_000, lr=0.001, buffer_size=200_000, learning_starts=10_000, gamma=self.discount)
