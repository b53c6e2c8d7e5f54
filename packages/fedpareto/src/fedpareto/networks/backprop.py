"""An MLP's forward and backward pass over a stack of flat models, written out; on a CPU, into memory that is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from fedpareto.networks.linear import relu_backward_, to_the_right
from fedpareto.networks.mlp import MLP
from fedpareto.tensors.connections import Connections
from fedpareto.tensors.workspace import Workspace


@dataclass
class _Layer:
    """A layer of all clients: what it computes with, and where to; None: in new memory."""

    weight: Tensor
    """`[n, in, out]`."""
    bias: Tensor
    """`[n, 1, out]`."""
    of_weight: Tensor
    of_bias: Tensor
    output: Tensor | None = None
    """`[n, b, out]`."""
    product: Tensor | None = None
    """The gradient of the weight, before it goes where the caller wants it."""
    of_input: Tensor | None = None
    """The gradient of what it got, `[n, b, in]`."""

    def forward(self, inputs: Tensor) -> Tensor:
        if self.output is None:
            return torch.baddbmm(self.bias, inputs, self.weight)
        return torch.bmm(inputs, self.weight, out=self.output).add_(self.bias)

    def backward(self, inputs: Tensor, gradient: Tensor) -> None:
        """Writes the gradients of weight and bias, given that of the output."""
        if gradient.is_cuda and gradient.dtype == self.of_weight.dtype:
            torch.bmm(inputs.mT, gradient, out=self.of_weight)
        elif gradient.shape[-1] == 1:  # A column is a third of the speed of a row.
            self.of_weight.copy_(_product(gradient.mT, inputs, None if self.product is None else self.product.mT).mT)
        else:  # A CPU's libraries write into a part of a tensor slowly.
            self.of_weight.copy_(_product(inputs.mT, gradient, self.product))
        torch.sum(gradient, dim=1, keepdim=True, dtype=self.of_bias.dtype, out=self.of_bias)

    def to_inputs(self, gradient: Tensor) -> Tensor:
        if self.of_input is not None and gradient.shape[-1] == 1:
            return torch.mul(gradient, self.weight.mT, out=self.of_input)
        return _product(gradient, to_the_right(self.weight.mT), self.of_input)


@dataclass
class _Sparse:
    """A weight of all clients with some connections only: products are those of the whole weight, 0 where none is."""

    connections: Connections
    model: Tensor
    """Values of the weight that there are, `[n, k]`."""
    gradient: Tensor
    """Gradient of these values, `[n, k]`."""
    whole: Tensor
    """`[n, in, out]`."""
    of_whole: Tensor

    @classmethod
    def of(cls, connections: Connections, model: Tensor, gradient: Tensor) -> _Sparse:
        """Memory of its own: what is 0 must stay so."""
        whole = model.new_zeros(len(model), *connections.shape)
        return cls(connections, model, gradient, whole, torch.empty_like(whole))

    def fill(self) -> None:
        self.whole.flatten(1).index_copy_(1, self._places, self.model)

    def keep(self) -> None:
        self.gradient.copy_(self.of_whole.flatten(1).index_select(1, self._places))

    @property
    def _places(self) -> Tensor:
        return self.connections.places(self.model.device)


class Backprop:
    """Both passes of n models `[n, d]`; the gradient is written where the caller wants it, `[n, d]`."""

    def __init__(self, network: MLP, model: Tensor, gradient: Tensor, workspace: Workspace) -> None:
        self.network, self.model, self.gradient, self.workspace = network, model, gradient, workspace
        self.batch = 0
        self.layers: list[_Layer] = []
        self.inputs: list[Tensor] = []
        """Inputs of each layer, from the last forward pass."""
        self.parts, self.of_parts = (network.layout.unflatten(flat.detach()) for flat in (model, gradient))
        self.sparse = [self._sparse(one) for one in network.layout.connections]

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs `[n, b, out]` for inputs `[n, b, in]`; on a CPU, until the next call."""
        if inputs.shape[1] != self.batch:
            self.batch = inputs.shape[1]
            self.layers = list(self._layers())
        self.inputs = []
        for weight in self.sparse:
            weight.fill()
        for number, layer in enumerate(self.layers):
            self.inputs.append(inputs)
            inputs = layer.forward(inputs)
            if self.network.has_relu(number):
                inputs.relu_()
        return inputs

    def backward(self, gradient: Tensor) -> None:
        """Writes the gradient of the models, given that of the last forward pass's outputs `[n, b, out]`."""
        for number in reversed(range(len(self.layers))):
            layer, inputs = self.layers[number], self.inputs[number]
            layer.backward(inputs, gradient)
            if number:
                gradient = layer.to_inputs(gradient)
                if self.network.has_relu(number - 1):
                    relu_backward_(gradient, inputs)
        for weight in self.sparse:
            weight.keep()

    def _sparse(self, connections: Connections) -> _Sparse:
        """From here on the layers see whole weights, and write whole gradients."""
        name = connections.name
        found = _Sparse.of(connections, self.parts[name], self.of_parts[name])
        self.parts[name], self.of_parts[name] = found.whole, found.of_whole
        return found

    def _layers(self) -> Iterator[_Layer]:
        parts, of_parts, n = self.parts, self.of_parts, len(self.model)
        # A GPU's allocator keeps memory at hand. Autocast decides on the type of what is new, not of what is given.
        kept = self.model.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        for i, (fan_in, fan_out) in enumerate(pairwise(self.network.widths)):
            weight, bias = parts[f"{i}.weight"], parts[f"{i}.bias"].unsqueeze(1)
            layer = _Layer(weight, bias, of_parts[f"{i}.weight"], of_parts[f"{i}.bias"].unsqueeze(1))
            if kept:
                layer.output = self._space(f"output {i}", n, self.batch, fan_out)
                layer.product = self._space(f"product {i}", n, fan_in, fan_out)
                layer.of_input = self._space(f"of input {i}", n, self.batch, fan_in) if i else None
            yield layer

    def _space(self, name: str, *shape: int) -> Tensor:
        return self.workspace.take(name, shape, self.model.dtype)


def _product(left: Tensor, right: Tensor, to: Tensor | None) -> Tensor:
    return torch.bmm(left, right) if to is None else torch.bmm(left, right, out=to)
