"""Common base of problems on mo-gymnasium's environments."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

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
