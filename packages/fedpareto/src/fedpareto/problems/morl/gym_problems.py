"""Problems on mo-gymnasium's environments: lunar landers, the half-cheetah, and any other one by its id."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from fedpareto.config.bounds import Finite, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.environment import Actions
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Objective
from fedpareto.learners.ddpg import DDPG
from fedpareto.learners.dqn import DQN
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.problem import MORLProblem
from fedpareto.tensors.rows import Splits


@dataclass(frozen=True)
class GymProblem(MORLProblem):
    """An environment that worker processes run; it needs the extra `morl`."""

    @property
    @abstractmethod
    def environment(self) -> GymEnvironment:
        """The environment that worker processes run."""

    def data(self, clients: int, seed: int) -> Splits:
        """None; but an environment that cannot run here is reported now, once, and not by each client."""
        self.environment.check()
        return {}


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
