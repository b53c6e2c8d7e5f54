"""Common base of the problems of reinforcement learning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from fedpareto.config.bounds import Bounded, Count, PositiveShare
from fedpareto.config.errors import UserError
from fedpareto.contract.learner import Learner
from fedpareto.contract.policies import ActorCritic, Policy, ValuePolicy
from fedpareto.contract.reinforcement import ReinforcementProblem
from fedpareto.learners.ddpg import DDPG
from fedpareto.learners.dqn import DQN
from fedpareto.networks.mlp import MLP


@dataclass(frozen=True)
class MORLProblem(ReinforcementProblem, Bounded):
    """An environment whose vector reward each client weights by its own preference."""

    hidden: tuple[Count, ...] = (256, 256)
    """Widths of the networks' hidden layers."""
    method: Literal["auto", "dqn", "ddpg"] = "auto"
    """Learning method of clients: DQN for discrete actions, DDPG for continuous ones."""
    episodes: Count = 10
    """Number of episodes over which a policy is evaluated; 1 if deterministic."""
    discount: PositiveShare = 0.98
    """Discount factor γ, of the return and of the learner."""

    @property
    def is_discrete(self) -> bool:
        """True if clients learn by DQN; a method that does not fit the environment is refused."""
        discrete = self.environment.actions.discrete
        fitting = "dqn" if discrete else "ddpg"
        if self.method not in ("auto", fitting):
            kind = "a few actions to choose from" if discrete else "actions that are vectors of numbers"
            raise UserError(f"method is {self.method}, but {self.title} has {kind}; use method: {fitting}")
        return discrete

    @property
    def title(self) -> str:
        return self.name

    @cached_property
    def policy(self) -> Policy:
        environment = self.environment
        seen, count = environment.observation_size, environment.actions.count
        if self.is_discrete:
            return ValuePolicy(MLP(seen, self.hidden, count))
        size = environment.actions.size
        return ActorCritic(MLP(seen, self.hidden, size), MLP(seen + size, self.hidden, 1))

    def learner(self) -> Learner:
        return DQN(gamma=self.discount) if self.is_discrete else DDPG(gamma=self.discount)

    def default_clients(self) -> int:
        return 20
