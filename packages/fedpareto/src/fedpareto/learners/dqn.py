"""DQN (Mnih et al. 2015) for n clients at once, as stable-baselines3 has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from fedpareto.config.bounds import Count, Positive, PositiveShare, Share, Whole
from fedpareto.contract.policies import ValuePolicy
from fedpareto.learners.off_policy import Agent, OffPolicy
from fedpareto.learners.optimisers import FusedAdam


@dataclass(frozen=True)
class DQN(OffPolicy):
    """Q-learning with a value network, a replay buffer and a target network that is updated now and then."""

    target_update_interval: Count = 1_000
    """Steps between two updates of the target network."""
    tau: PositiveShare = 1.0
    """Share of the way by which the target network then moves towards the other; 1: all the way."""
    exploration_steps: Whole = 10_000
    """Steps over which the share of random actions falls from its first to its last value."""
    exploration_initial: Share = 1.0
    """The share of random actions at the beginning."""
    exploration_final: Share = 0.05
    """The share of random actions at the end."""
    exploration_schedule: Literal["once", "restarts"] = "once"
    """"once": over a client's first `exploration_steps` steps. "restarts": as stable-baselines3 does if `learn` is
    called again in every round: in round r over the first r · `exploration_steps` steps, all rounds counted.
    """
    max_grad_norm: Positive = 10.0
    """Gradients are clipped to this norm."""
    tables: Literal["auto", "never"] = "auto"
    """Tables of all values where there are few observations (deep-sea treasure), computed once instead of row by row:
    the same up to rounding, and on a CPU several times faster. "auto": on a CPU."""


class DQNAgent(Agent):
    """y = r + γ·max_a' Q⁻(s', a'), and a Huber loss on Q(s, a) − y."""

    learner: DQN
    policy: ValuePolicy

    def draw(self, steps: int) -> None:
        self.chances = self.uniform("exploration", (steps, 2))
        self.optimiser = FusedAdam(self.model, self.gradient, self.learner.lr, self.first, self.second, self.moves)
        table = self.environment.every_observation()
        self.table: Tensor | None = None
        if table is not None and self.learner.tables == "auto" and self.device.type == "cpu":
            self.table = table.to(self.model.dtype).expand(self.n, -1, -1)
            self._best_value = self._value_of(self.table)

    def explore(self, seen: Tensor) -> Tensor:
        """ε-greedy actions, with ε = 1 before learning starts."""
        chance = self.chances.index_select(1, self.step_number).squeeze(1)
        count = self.environment.actions.count
        at_random = (chance[:, 1] * count).long()
        return torch.where(chance[:, 0] < self._share(), at_random, self._greedy(seen))

    def _share(self) -> Tensor:
        """ε, `[n]`."""
        learner = self.learner
        span: int | Tensor = max(learner.exploration_steps, 1)
        if learner.exploration_schedule == "restarts":
            # The share of a step was computed after the one before, so a round begins with the last round's. What is
            # meant in round r are `steps` after the r − 1 rounds that were played, each a whole number of turns.
            played = learner.turns * learner.train_freq
            rounds_before = ((self.count + played - 1) // played).clamp(min=1) - 1
            span = span * (rounds_before * played + learner.steps) / learner.steps
        fallen = (self.count / span).clamp(max=1)
        share = learner.exploration_initial + (learner.exploration_final - learner.exploration_initial) * fallen
        return torch.where(self.count < learner.learning_starts, torch.ones_like(share), share)

    def _greedy(self, seen: Tensor) -> Tensor:
        if self.table is not None:
            return self._best_action.gather(1, self.environment.number(seen).unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            return self.policy.act(self.leaves, seen.to(self.model.dtype).unsqueeze(1)).squeeze(1)

    def before_playing(self) -> None:
        """With a table, find the best action for every observation."""
        if self.table is not None:
            with torch.no_grad():
                self._best_action = self.policy.act(self.leaves, self.table)

    def after_playing(self, before: np.ndarray) -> None:
        interval = self.learner.target_update_interval
        due = self.counts // interval > before // interval
        if not due.any():
            return
        who = self.clients.tensor(np.flatnonzero(due))
        # Acting changes no network, so doing this after the turn's last step is the same as after the step itself.
        self.target.index_copy_(0, who, torch.lerp(self.target[who], self.model[who], self.learner.tau))
        if self.table is not None:
            self._best_value = self._value_of(self.table)

    @torch.no_grad()
    def _value_of(self, seen: Tensor) -> Tensor:
        """max_a Q⁻(s, a), `[n, b]`."""
        return self.policy.network(self.followed, seen).amax(-1)

    def update(self, who: np.ndarray | None) -> None:
        seen, after, reward, action, ended = self.sample(who)
        with torch.no_grad():
            goal = reward + (1 - ended) * self.learner.gamma * self._later(after)
        values = self._values(seen, action.squeeze(-1).long())
        loss = smooth_l1_loss(values, goal, reduction="none").mean(-1).sum()
        parts = torch.autograd.grad(loss, list(self.leaves.values()))
        with torch.no_grad():
            torch.cat([part.flatten(1) for part in parts], dim=1, out=self.gradient)
            if self.pull is not None:
                self.gradient += self.pull(self.model)
            length = self.gradient.norm(dim=1, keepdim=True)
            self.gradient *= (self.learner.max_grad_norm / (length + 1e-6)).clamp(max=1)
            self.optimiser.step(who)

    def _later(self, after: Tensor) -> Tensor:
        """max_a' Q⁻(s', a'), `[n, b]`."""
        if self.table is not None:
            return self._best_value.gather(1, self.environment.number(after))
        return self._value_of(after)

    def _values(self, seen: Tensor, action: Tensor) -> Tensor:
        """Q(s, a), `[n, b]`."""
        if self.table is None:
            return self.policy.network(self.leaves, seen).gather(-1, action.unsqueeze(-1)).squeeze(-1)
        everything = self.policy.network(self.leaves, self.table)
        return everything.flatten(1).gather(1, self.environment.number(seen) * everything.shape[-1] + action)


DQN.agent = DQNAgent
