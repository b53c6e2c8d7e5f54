"""Multilayer perceptrons over a stack of clients: the small networks of this field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from fedpareto.config.bounds import Bounded, Count
from fedpareto.networks.linear import linear_of_each, stacked_linear
from fedpareto.tensors import rng
from fedpareto.tensors.connections import Sparsity
from fedpareto.tensors.layout import Hidden, Layout


@dataclass(frozen=True)
class MLP(Bounded):
    """Linear layers with ReLU between them, as batched matrix products (vmap over the same is 1.5 times slower)."""

    inputs: int
    hidden: tuple[Count, ...]
    outputs: int
    linear: int = 1
    """Layers at the end that have no ReLU after them."""
    sparsity: Sparsity = Sparsity()
    """Connections between layers."""

    @property
    def widths(self) -> tuple[int, ...]:
        return self.inputs, *self.hidden, self.outputs

    @cached_property
    def layout(self) -> Layout:
        """Layer i is "i.weight" `[in, out]`, or a list of what there is of it, and "i.bias" `[out]`."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (fan_in, fan_out) in enumerate(pairwise(self.widths)):
            shapes |= {f"{i}.weight": (fan_in, fan_out), f"{i}.bias": (fan_out,)}
        hidden = [Hidden.between(units, [f"{i}"], [f"{i + 1}"]) for i, units in enumerate(self.hidden)]
        return Layout.of(shapes, hidden=hidden).sparse(self.sparsity)

    def has_relu(self, layer: int) -> bool:
        """True if a ReLU follows that layer, counted from 0."""
        return layer <= len(self.hidden) - self.linear

    def initial(self, seed: int, purpose: str = "initial model") -> Tensor:
        """PyTorch's own initialisation of linear layers: uniform within 1/√fan-in."""
        stream = rng.torch_generator(rng.Address(seed), purpose)
        parts = []
        for i, fan_in in enumerate((self.inputs, *self.hidden)):
            bound = 1 / math.sqrt(fan_in)
            for size in (fan_in * self.widths[i + 1], self.widths[i + 1]):
                parts.append(torch.empty(size).uniform_(-bound, bound, generator=stream))
        return self.layout.begun(torch.cat(parts))

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs `[n, b, outputs]` for inputs `[n, b, inputs]`; of some layers only, if `parameters` holds no more."""
        parameters = self.layout.filled(parameters)
        for i in range(len(self.hidden) + 1):
            if f"{i}.weight" in parameters:
                weight, bias = parameters[f"{i}.weight"], parameters[f"{i}.bias"]
                inputs = stacked_linear(inputs, weight, bias, relu=self.has_relu(i))
        return inputs

    def each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs `[n, k, b, outputs]` of k models for each client, which share their first layers, `[n, ...]`.

        The others, `own`, are `[n, k, ...]`; what is shared is computed once.
        """
        # Rows come last from here on: the many small products of `own` run along them.
        values, own = self(shared, inputs).mT.unsqueeze(1), self.layout.filled(own)
        for i in range(len(self.hidden) + 1):
            if f"{i}.weight" in own:
                values = linear_of_each(values, own[f"{i}.weight"], own[f"{i}.bias"])
                values = values.relu_() if self.has_relu(i) else values
        return values.mT
