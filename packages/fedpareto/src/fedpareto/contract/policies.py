"""An agent's model: a value network, or an actor with its critic. A policy turns parameters into actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fedpareto.networks.mlp import MLP
from fedpareto.tensors.layout import Hidden, Layout


class Policy(ABC):
    """The shape of an agent's model, over a stack of n clients."""

    @property
    @abstractmethod
    def networks(self) -> Mapping[str, MLP]:
        """Networks in order, by the prefix of their names in the layout."""

    @abstractmethod
    def act(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        """The best known action for each of the observations `[n, b, o]`: whole numbers `[n, b]` or `[n, b, a]`.

        Vectors are between −1 and 1, whatever the bounds of the environment.
        """

    @cached_property
    def layout(self) -> Layout:
        """All networks, one after the other."""
        shapes: dict[str, tuple[int, ...]] = {}
        hidden: list[Hidden] = []
        for prefix, network in self.networks.items():
            inner = network.layout
            hidden += [layer.under(prefix) for layer in inner.hidden or ()]
            shapes |= {prefix + name: shape for name, shape in zip(inner.names, inner.shapes, strict=True)}
        return Layout.of(shapes, hidden=hidden)

    def initial(self, seed: int) -> Tensor:
        """The networks as PyTorch initialises them, `[d]`."""
        parts = [network.initial(seed, f"initial model {prefix}".strip()) for prefix, network in self.networks.items()]
        return torch.cat(parts)

    @staticmethod
    def part(parameters: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """The parameters of one network, by the names that it knows."""
        return {name[len(prefix) :]: tensor for name, tensor in parameters.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class ValuePolicy(Policy):
    """Q(s, ·) for every action; the policy is greedy."""

    network: MLP

    @property
    def networks(self) -> Mapping[str, MLP]:
        """One, without a prefix."""
        return {"": self.network}

    def act(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        return self.network(parameters, observation).argmax(-1)


@dataclass(frozen=True)
class ActorCritic(Policy):
    """An actor that chooses actions, and a critic that estimates their values."""

    actor: MLP
    critic: MLP

    @property
    def networks(self) -> Mapping[str, MLP]:
        return {"actor.": self.actor, "critic.": self.critic}

    def act(self, parameters: Mapping[str, Tensor], observation: Tensor) -> Tensor:
        return self.actor(self.part(parameters, "actor."), observation).tanh()

    def worth(self, parameters: Mapping[str, Tensor], observation: Tensor, action: Tensor) -> Tensor:
        """Q(s, a), `[n, b]`."""
        return self.critic(self.part(parameters, "critic."), torch.cat([observation, action], dim=-1)).squeeze(-1)
