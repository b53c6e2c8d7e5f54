"""DDPG (Lillicrap et al. 2016) for n clients at once, as stable-baselines3 has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from fedpareto.config.bounds import NotNegative, PositiveShare
from fedpareto.contract.policies import ActorCritic
from fedpareto.learners.off_policy import Agent, OffPolicy
from fedpareto.learners.optimisers import FusedAdam


@dataclass(frozen=True)
class DDPG(OffPolicy):
    """An actor that maximises the values of its critic, a replay buffer and slowly updated target networks.

    Defaults are those of the thesis's table A.7 and, where it names none, of stable-baselines3 at that time.
    """

    steps: int = 5_000
    batch_size: int = 100
    buffer_size: int = 200_000
    learning_starts: int = 100
    gamma: float = 0.98
    train_freq: int = 1
    tau: PositiveShare = 0.005
    """Share of the way by which the target networks move towards the others after every update."""
    noise_std: NotNegative = 0.1
    """Standard deviation of the Gaussian noise on actions, whose bounds count as −1 and 1."""


class DDPGAgent(Agent):
    """y = r + γ·Q⁻(s', π⁻(s')), a squared loss on Q(s, a) − y, and −Q(s, π(s)) as the actor's loss."""

    learner: DDPG
    policy: ActorCritic

    def draw(self, steps: int) -> None:
        shape = (steps, self.environment.actions.size)
        self.at_random = 2 * self.uniform("exploration", shape) - 1
        self.noise = self.learner.noise_std * self.normal("noise", shape)
        self.fixed = self.problem.layout.unflatten(self.model)
        """The networks as `leaves` has them, but without gradients."""
        actor = self.policy.actor.layout.size
        self._places = {"actor.": slice(0, actor), "critic.": slice(actor, None)}
        self._optimisers = {
            prefix: FusedAdam(
                self.model[:, place],
                self.gradient[:, place],
                self.learner.lr,
                self.first[:, place],
                self.second[:, place],
                # Both networks move in every update, so it is enough to keep one of their counts.
                self.moves if prefix == "critic." else self.moves.clone(),
            )
            for prefix, place in self._places.items()
        }

    def explore(self, seen: Tensor) -> Tensor:
        at_random, noise = (
            drawn.index_select(1, self.step_number).squeeze(1) for drawn in (self.at_random, self.noise)
        )
        with torch.no_grad():
            best = self.policy.act(self.fixed, seen.to(self.model.dtype).unsqueeze(1)).squeeze(1)
        is_new = (self.count < self.learner.learning_starts).unsqueeze(1)
        return (torch.where(is_new, at_random, best.float()) + noise).clamp(-1, 1)

    def update(self, who: np.ndarray | None) -> None:
        seen, after, reward, action, ended = self.sample(who)
        policy = self.policy
        with torch.no_grad():
            later = policy.worth(self.followed, after, policy.act(self.followed, after))
            goal = reward + (1 - ended) * self.learner.gamma * later
        error = mse_loss(policy.worth(self.leaves, seen, action), goal, reduction="none")
        self._descend("critic.", error.mean(-1).sum(), who)
        worth = policy.worth(self.fixed, seen, policy.act(self.leaves, seen))
        self._descend("actor.", -worth.mean(-1).sum(), who)
        self._follow(who)

    def _descend(self, prefix: str, loss: Tensor, who: np.ndarray | None) -> None:
        place = self._places[prefix]
        parts = torch.autograd.grad(loss, [leaf for name, leaf in self.leaves.items() if name.startswith(prefix)])
        with torch.no_grad():
            self.gradient[:, place] = torch.cat([part.flatten(1) for part in parts], dim=1)
            if self.pull is not None:
                self.gradient[:, place] += self.pull(self.model)[:, place]
            self._optimisers[prefix].step(who)

    def _follow(self, who: np.ndarray | None) -> None:
        if who is None:
            self.target.lerp_(self.model, self.learner.tau)
        else:
            rows = self.clients.tensor(who)
            self.target.index_copy_(0, rows, torch.lerp(self.target[rows], self.model[rows], self.learner.tau))


DDPG.agent = DDPGAgent
