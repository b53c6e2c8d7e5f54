"""The environments of this library for others: one client's copy by gymnasium's interface, with vector rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedpareto.config.errors import UserError
from fedpareto.contract.environment import Session
from fedpareto.contract.reinforcement import ReinforcementProblem
from fedpareto.tensors import rng


def as_gymnasium(problem: ReinforcementProblem, client: int = 0) -> Any:
    """A `gymnasium.Env` whose rewards are vectors and that has a `reward_space`, as mo-gymnasium wants it.

    It is the environment of one client: in link scheduling, that of one satellite. Needs the extra `morl`.
    """
    try:
        import gymnasium
        from gymnasium.spaces import Box, Discrete
    except ImportError:
        raise UserError(
            "gymnasium's interface needs gymnasium, which is not installed: pip install 'fedpareto[morl]'"
        ) from None
    environment, kind = problem.environment, problem.environment.actions

    class Alone(gymnasium.Env):
        """A session of one client, which a reset begins anew."""

        metadata = {"render_modes": []}  # noqa: RUF012 (as gymnasium has it)
        observation_space = Box(-np.inf, np.inf, (environment.observation_size,), np.float32)
        action_space = Discrete(kind.count) if kind.discrete else Box(np.array(kind.low), np.array(kind.high))
        reward_space = Box(-np.inf, np.inf, (environment.objectives,), np.float32)
        reward_dim = environment.objectives
        session: Session

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
            super().reset(seed=seed)
            addresses = rng.Addresses.at(seed or 0, np.array([client]), round=0)
            self.session = environment.open(environment.begin(addresses, torch.device("cpu")), addresses)
            return self.session.observation[0].numpy().copy(), {}

        def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
            seen, reward, terminated, truncated = self.session.step(torch.as_tensor(np.array([action])))
            return seen[0].numpy(), reward[0].numpy(), bool(terminated), bool(truncated), {}

    return Alone()
