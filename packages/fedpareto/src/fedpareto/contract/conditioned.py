"""Models for any preference: the first layers are fixed, a hypernetwork makes the last ones from a preference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fedpareto.networks.mlp import MLP
from fedpareto.tensors.layout import Layout


@dataclass(frozen=True)
class Conditioned:
    """A model that is put together from its body ω, `[body.size]`, and a head that follows from a preference."""

    body: Layout
    head: Layout
    objectives: int
    """Length m of a preference."""
    hidden: tuple[int, ...]
    """Widths of the hypernetwork's hidden layers."""
    margin: float
    """Distance that a tolerance keeps from 0."""

    @cached_property
    def hypernetwork(self) -> MLP:
        """β: from tolerances to the parameters of the head.

        Its last hidden layer has no ReLU, as in PraFFL's published code: a few units that all end below 0 would give
        the same head for every preference.
        """
        return MLP(inputs=self.objectives, hidden=self.hidden, outputs=self.head.size, linear=2)

    def heads(self, hypernetwork: Mapping[str, Tensor], tolerances: Tensor) -> dict[str, Tensor]:
        """φ = β(λ): for n hypernetworks and k tolerances each, `[n, k, m]`, heads of `[n, k, ...]`."""
        return self.head.unflatten(self.hypernetwork(hypernetwork, tolerances))

    def models(self, body: Tensor, hypernetwork: Tensor, preferences: Tensor) -> Tensor:
        """Whole models `[n, k, d]` of n clients, from `[n, c]`, `[n, h]` and k preferences each, `[n, k, m]`."""
        parameters = self.hypernetwork.layout.unflatten(hypernetwork)
        heads = self.hypernetwork(parameters, tolerances(preferences, self.margin))
        return torch.cat([body.unsqueeze(1).expand(-1, heads.shape[1], -1), heads], dim=-1)

    @cached_property
    def dense(self) -> Conditioned:
        """Composition of models with all connections of their network."""
        return replace(self, body=self.body.dense, head=self.head.dense)

    def to_dense(self, hypernetwork: Tensor) -> Tensor:
        """A hypernetwork of `dense`, `[h']`, that makes the same heads, with 0 where there is no connection."""
        parts = self.hypernetwork.layout.unflatten(hypernetwork)
        last = {f"{len(self.hidden)}.{kind}" for kind in ("weight", "bias")}
        whole = {name: self.head.to_dense(part) if name in last else part for name, part in parts.items()}
        return self.dense.hypernetwork.layout.flatten(whole)


def tolerances(preferences: Tensor, margin: float) -> Tensor:
    """PraFFL's λ of preferences `[..., m]`, on the simplex.

    A preference w is importance: the larger w_i, the smaller L_i should be. Eq. 6 divides L_i by λ_i, so that a large
    λ_i tolerates a large L_i: λ_i ∝ 1/w_i, with w kept away from 0. For two objectives λ is w with its entries swapped.
    """
    inverse = 1 / inside(preferences, margin)
    return inverse / inverse.sum(-1, keepdim=True)


def inside(points: Tensor, margin: float) -> Tensor:
    """Points of the simplex moved towards its centre, so that each coordinate is at least `margin`."""
    return points * (1 - points.shape[-1] * margin) + margin
