"""Sparse networks: of the connections between two layers only those of a random graph are there.

After Mocanu et al. ("Scalable training of artificial neural networks with adaptive sparse connectivity inspired by
network science", 2018) and Zhu and Jin ("Multi-objective evolutionary federated learning", 2020): between n_in and
n_out units each connection exists with the probability ε (n_in + n_out) / (n_in · n_out), an Erdős–Rényi graph. Which
ones do is decided once. What is not there is in no flat model either: it is neither trained nor sent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedpareto.config.bounds import Bounded, NotNegative
from fedpareto.tensors import rng


@dataclass(frozen=True)
class Sparsity(Bounded):
    """Sparsity of a network, whatever its layers are."""

    epsilon: NotNegative = 0.0
    """ε; 0: all connections are there, as they are with a large one."""
    seed: int = 0

    def probability(self, one_side: int, other: int) -> float:
        """Probability of a connection between two layers of so many units."""
        return min(1.0, self.epsilon * (one_side + other) / (one_side * other)) if self.epsilon else 1.0


@dataclass(frozen=True)
class Connections:
    """Connections of one weight: a value, from which follows which ones there are."""

    name: str
    """Name of the weight's tensor."""
    shape: tuple[int, ...]
    """Shape of the whole weight: its units on both sides, in either order, and in a convolution its kernel, which is
    one connection."""
    probability: float
    seed: int
    _places: dict[torch.device, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    def places(self, device: torch.device) -> Tensor:
        """Places of connections in the flattened weight, in ascending order, `[k]`."""
        # Kept on each device: a CUDA graph cannot hold a copy from the host.
        if device not in self._places:
            self._places[device] = self._drawn_places().to(device)
        return self._places[device]

    def _drawn_places(self) -> Tensor:
        """With the same seed, those of a smaller ε are among those of a larger one."""
        stream = rng.Addresses.of([rng.Address(self.seed)])
        drawn = stream.uniform(f"connections {self.name}", math.prod(self.shape[:2]), dtype=torch.float64)[0]
        kernel = math.prod(self.shape[2:])
        found = (drawn < self.probability).nonzero() * kernel + torch.arange(kernel)
        return found.flatten()

    @property
    def count(self) -> int:
        return len(self.places(torch.device("cpu")))

    def filled(self, values: Tensor) -> Tensor:
        """Whole weight `[..., *shape]` of the values that there are, `[..., k]`: 0 where there is no connection."""
        whole = values.new_zeros(*values.shape[:-1], math.prod(self.shape))
        whole = whole.index_copy(-1, self.places(values.device), values)
        return whole.reshape(*values.shape[:-1], *self.shape)

    def kept(self, whole: Tensor) -> Tensor:
        """Values that there are, `[..., k]`, of a whole weight that is flat, `[..., prod(shape)]`."""
        return whole.index_select(-1, self.places(whole.device))


def filled(tensors: Mapping[str, Tensor], connections: tuple[Connections, ...]) -> Mapping[str, Tensor]:
    if not connections:
        return tensors
    whole = {one.name: one.filled(tensors[one.name]) for one in connections if one.name in tensors}
    return {**tensors, **whole}
