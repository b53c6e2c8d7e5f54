"""An MLP on a CPU that goes down plain gradients: a layer's step is part of the product that its gradient would be.

Nothing but the outputs of layers is kept, and each tensor of all clients lies in one piece of memory, into which a
CPU's libraries write products of a whole stack at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedpareto.networks.linear import relu_backward_
from fedpareto.networks.mlp import MLP
from fedpareto.tensors.workspace import Workspace


@dataclass
class _Layer:
    """A layer of all clients, and memory for what it computes."""

    weight: Tensor
    """`[n, in, out]`; where there is no bias, its last input is always 1."""
    bias: Tensor | None
    """`[n, 1, out]`."""
    output: Tensor
    """`[n, b, out]`."""
    of_input: Tensor
    """The gradient of what it got, `[n, b, in]`."""
    turned: Tensor
    """The weight, `[n, out, in]`: a product with a transposed view takes longer than the copy."""
    ones: Tensor
    """`[n, 1, b]`."""

    def forward(self, inputs: Tensor) -> Tensor:
        torch.bmm(inputs, self.weight, out=self.output)
        return self.output if self.bias is None else self.output.add_(self.bias)

    def to_inputs(self, gradient: Tensor) -> Tensor:
        if gradient.shape[-1] == 1:
            return torch.mul(gradient, self.weight.mT, out=self.of_input)
        np.copyto(self.turned.numpy(), self.weight.mT.numpy())  # In half the time of torch's copy.
        return torch.bmm(gradient, self.turned, out=self.of_input)

    def descend(self, inputs: Tensor, gradient: Tensor, kept: float, lr: float) -> None:
        if gradient.shape[-1] == 1:  # A column is a third of the speed of a row.
            self.weight.mT.baddbmm_(gradient.mT, inputs, beta=kept, alpha=-lr)
        else:
            self.weight.baddbmm_(inputs.mT, gradient, beta=kept, alpha=-lr)
        if self.bias is not None:
            self.bias.baddbmm_(self.ones, gradient, beta=kept, alpha=-lr)


class Descending:
    """n models `[n, d]`, of which a step down is w ← kept·w − lr·gradient."""

    def __init__(self, network: MLP, model: Tensor, workspace: Workspace, kept: float, lr: float) -> None:
        self.network, self.n, self.workspace, self.kept, self.lr = network, len(model), workspace, kept, lr
        (inputs, first), *others = pairwise(network.widths)
        # The bias of the first layer is one more row of its weight: it follows in a flat model.
        self.sizes = [(inputs + 1) * first, *(size for a, b in others for size in (a * b, b))]
        self.packed = self._pack(model)
        """All models, tensor by tensor, `[n · d]`."""
        self.added: Tensor | None = None
        self.batch = 0
        self.layers: list[_Layer] = []
        self.inputs: list[Tensor] = []
        """Inputs of each layer, from the last forward pass."""

    def add_in_steps(self, added: Tensor) -> None:
        """From now on every step adds this to the models, `[n, d]`."""
        self.added = self._pack(added)

    @property
    def models(self) -> Tensor:
        """As they are now, `[n, d]`."""
        return torch.cat([part.view(self.n, -1) for part in self._parts()], dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs `[n, b, out]` for inputs `[n, b, in]`, until the next call."""
        if inputs.shape[1] != self.batch:
            self.batch = inputs.shape[1]
            self.layers = list(self._layers())
            self.and_one = self._space("inputs and 1", self.batch, inputs.shape[2] + 1).fill_(1)
        self.and_one[..., :-1].copy_(inputs)
        values, self.inputs = self.and_one, []
        for number, layer in enumerate(self.layers):
            self.inputs.append(values)
            values = layer.forward(values)
            if self.network.has_relu(number):
                values.relu_()
        return values

    def descend(self, gradient: Tensor) -> None:
        """A step of all models, given the gradient of the last forward pass's outputs `[n, b, out]`."""
        for number in reversed(range(len(self.layers))):
            layer, inputs, of_output = self.layers[number], self.inputs[number], gradient
            if number:
                gradient = layer.to_inputs(of_output)
                if self.network.has_relu(number - 1):
                    relu_backward_(gradient, inputs)
            layer.descend(inputs, of_output, self.kept, self.lr)
        if self.added is not None:
            self.packed.add_(self.added)

    def _pack(self, flat: Tensor) -> Tensor:
        """Tensors of models `[n, d]` one after the other, each of all models."""
        return torch.cat([part.reshape(-1) for part in flat.split_with_sizes(self.sizes, dim=1)])

    def _parts(self) -> tuple[Tensor, ...]:
        return self.packed.split_with_sizes([self.n * size for size in self.sizes])

    def _layers(self) -> Iterator[_Layer]:
        joined, *others = self._parts()
        weights, biases = [joined, *others[::2]], [None, *others[1::2]]
        ones = self.packed.new_ones(self.n, 1, self.batch)
        for i, (weight, bias, out) in enumerate(zip(weights, biases, self.network.widths[1:], strict=True)):
            whole = weight.view(self.n, -1, out)
            fan_in = whole.shape[1]
            yield _Layer(
                whole,
                None if bias is None else bias.view(self.n, 1, out),
                self._space(f"output {i}", self.batch, out),
                self._space(f"of input {i}", self.batch, fan_in if i else 0),
                self._space(f"turned {i}", out, fan_in if i else 0),
                ones,
            )

    def _space(self, name: str, *shape: int) -> Tensor:
        return self.workspace.take(name, (self.n, *shape), self.packed.dtype)


class CompiledDescending:
    """`Descending` by compiled loops; models are changed where they are."""

    def __init__(self, network: MLP, model: Tensor, workspace: Workspace, kept: float, lr: float) -> None:
        from fedpareto.networks import kernels

        self.kernels, self.workspace = kernels, workspace
        self.models = model.contiguous()
        """As they are now, `[n, d]`."""
        self.widths = network.widths
        relus = np.array([network.has_relu(layer) for layer in range(len(self.widths) - 1)])
        self.network = self.models.numpy(), np.array(self.widths), relus
        self.dtype = self.network[0].dtype
        self.kept, self.lr = self.dtype.type(kept), self.dtype.type(lr)
        self.added = self.network[0][:0]
        self.batch = 0

    def add_in_steps(self, added: Tensor) -> None:
        """From now on every step adds this to the models, `[n, d]`."""
        self.added = added.contiguous().numpy()

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs `[n, b, out]` for inputs `[n, b, in]`, until the next call."""
        if inputs.shape[1] != self.batch:
            self._make_room(inputs.shape[1])
        self.inputs = self._flat(inputs)
        self.kernels.forward(*self.network, self.inputs, self.hidden, self.outputs)
        return self.tensor

    def descend(self, gradient: Tensor) -> None:
        """A step of all models, given the gradient of the last forward pass's outputs `[n, b, out]`."""
        values = self.inputs, self.hidden, self._flat(gradient)
        self.kernels.descend(*self.network, *values, self.spaces, self.ones, self.kept, self.lr, self.added)

    def _make_room(self, batch: int) -> None:
        n, (*widths, last) = len(self.models), self.widths
        largest = max(batch * max(widths), *(a * b for a, b in pairwise(self.widths)))
        self.batch, self.tensor = batch, self._space("outputs", n, batch, last)
        self.outputs, self.ones = self.tensor.numpy().reshape(n, -1), np.ones(batch, dtype=self.dtype)
        self.hidden = self._space("hidden", n, batch * sum(widths[1:])).numpy()
        self.spaces = self._space("of one client", 3, largest).numpy()

    def _flat(self, values: Tensor) -> np.ndarray:
        return np.ascontiguousarray(values.numpy(), dtype=self.dtype).reshape(len(values), -1)

    def _space(self, name: str, *shape: int) -> Tensor:
        return self.workspace.take(name, shape, self.models.dtype)
