"""Reinforcement learning problems: an environment, and a policy whose objectives are the returns of its episodes."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.environment import Environment
from fedpareto.contract.outputs import VALUE, Output
from fedpareto.contract.policies import Policy, ValuePolicy
from fedpareto.contract.problem import Judge, Problem
from fedpareto.contract.solutions import roles
from fedpareto.contract.stack import Stack
from fedpareto.inputs.table import InputSchema, numbers
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.replay import Replayed
from fedpareto.tensors.rows import Splits

LOOK_UP = 20
"""Steps between two checks whether every episode is over."""


class ReinforcementProblem(Problem):
    """A problem of reinforcement learning, whose clients report vector returns: the mean over episodes of the rewards'
    sum.
    """

    rebuilt_by_name: ClassVar[bool] = True
    episodes: int
    """Number of episodes over which a policy is evaluated."""
    discount: float
    """γ of the discounted return."""

    @property
    @abstractmethod
    def environment(self) -> Environment:
        """The environment."""

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy."""

    @property
    def layout(self) -> Layout:
        """The shared parameters: the policy's networks, without their target copies."""
        return self.policy.layout

    def initial(self, seed: int) -> Tensor:
        return self.policy.initial(seed)

    def parts(self, splits: Splits) -> list[str]:
        """Both returns; solutions are compared by the second."""
        return ["discounted", "return"]

    def input_schema(self, clients: int, seed: int) -> InputSchema:
        """The numbers of an observation."""
        return numbers(f"observation {place}" for place in range(self.environment.observation_size))

    def outputs(self) -> tuple[Output, ...]:
        """The action to take, by its number; of a vector, each of its numbers."""
        actions = self.environment.actions
        if actions.discrete:
            return (Output("action", tuple(map(str, range(actions.count))), VALUE),)
        return tuple(Output(f"action {place}", ()) for place in range(actions.size))

    def answers(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Values of the actions, or the vector between the environment's bounds."""
        if isinstance(self.policy, ValuePolicy):
            return self.policy.network(parameters, inputs).unsqueeze(2)
        return self.environment.scaled(self.policy.act(parameters, inputs)).unsqueeze(-1)

    def score(self, clients: Stack, model: Tensor) -> Tensor:
        """The discounted and the undiscounted return `[n, 2, m]` of the policy without exploration.

        The episodes follow from the clients' own random streams.
        """
        return self._returns(model, clients.addresses)

    def judge(self, clients: int, seed: int) -> Judge:
        """A server can evaluate too: the same episodes for every model."""
        used = roles(self.parts({}))
        return lambda models: self._returns(models, _same(seed, models))[:, used]

    def _returns(self, models: Tensor, addresses: rng.Addresses) -> Tensor:
        """The mean over the episodes at each model's address, `[n, 2, m]`."""
        count = 1 if self.environment.deterministic else self.episodes
        number = torch.arange(count, device=addresses.lane.device).repeat(len(addresses))
        many = addresses.repeated(count)
        # No client uses lanes below zero: models are not evaluated on episodes of training.
        episodes = many.with_lane(-1 - many.lane * self.episodes - number)
        parameters = self.layout.unflatten(models)

        def act(seen: Tensor) -> Tensor:
            return self.policy.act(parameters, seen.view(len(models), count, -1).to(models.dtype)).flatten(0, 1)

        with torch.no_grad():
            returns = self._play(act, episodes, models.device)
        return returns.view(len(models), count, *returns.shape[1:]).mean(1).to(models.dtype)

    def by_chance(self, addresses: rng.Addresses) -> np.ndarray:
        """The returns of uniformly random actions, mean over `episodes` of each client's, `[n, m]`."""
        count, actions = self.episodes, self.environment.actions
        number = torch.arange(count, device=addresses.lane.device).repeat(len(addresses))
        episodes = addresses.repeated(count).with_lane(-1 - number)
        width = actions.size + actions.size % 2  # A stream is read from even places on.
        taken = itertools.count()

        def act(seen: Tensor) -> Tensor:
            drawn = episodes.uniform("random policy", width, next(taken) * width)
            if actions.discrete:
                return (drawn[:, 0] * actions.count).long().clamp_max(actions.count - 1)
            return 2 * drawn[:, : actions.size] - 1

        returns = self._play(act, episodes, torch.device("cpu"))[:, -1]
        return returns.view(len(addresses), count, -1).double().mean(1).numpy()

    def _play(self, act: Callable[[Tensor], Tensor], addresses: rng.Addresses, device: torch.device) -> Tensor:
        """One episode at each address, `[k, 2, m]`; `act` says what is done after each of the observations `[k, o]`."""
        environment = self.environment
        session = environment.open(environment.begin(addresses, device), addresses)
        returns = torch.zeros(len(addresses), 2, environment.objectives, device=device)
        alive = torch.ones(len(addresses), 1, 1, device=device)
        weight = torch.ones(2, 1, device=device)
        fading = torch.tensor([[self.discount], [1.0]], device=device)

        def step() -> None:
            _, reward, terminated, truncated = session.step(environment.scaled(act(session.observation)))
            returns.add_(alive * weight * reward.unsqueeze(1))
            weight.mul_(fading)
            alive.mul_(~(terminated | truncated).view(-1, 1, 1))

        once = Replayed(step, device if session.capturable else None)
        try:
            for number in range(environment.horizon):
                once()
                if number % LOOK_UP == 0:
                    over = alive.flatten() == 0
                    if over.all():
                        break
                    session.rest(over)
        finally:
            once.release()
            session.close()
        return returns


def _same(seed: int, models: Tensor) -> rng.Addresses:
    """The server's address once for each model."""
    return rng.Addresses.of([rng.Address(seed)], models.device).repeated(len(models))
