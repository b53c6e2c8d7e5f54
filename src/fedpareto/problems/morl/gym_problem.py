"""What problems on mo-gymnasium's environments have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from fedpareto.core.problem import Splits
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.problems.morl.problem import MORLProblem


@dataclass(frozen=True)
class GymProblem(MORLProblem):
    """An environment that worker processes play; it needs the extra `morl`."""

    @property
    @abstractmethod
    def environment(self) -> GymEnvironment:
        """See ReinforcementProblem."""

    def data(self, clients: int, seed: int) -> Splits:
        """None; but whoever is about to play hears now, and not from each client, if that is impossible here."""
        self.environment.check()
        return {}
