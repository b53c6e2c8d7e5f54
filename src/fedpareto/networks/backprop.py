"""An MLP's forward and backward pass over a stack of flat models, written out."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from fedpareto.networks.linear import to_the_right
from fedpareto.networks.mlp import MLP


class Backprop:
    """Both passes of n models `[n, d]`; the gradient is written where the caller wants it, `[n, d]`."""

    def __init__(self, network: MLP, model: Tensor, gradient: Tensor) -> None:
        self.network = network
        self.layers = _views(network, model)
        self.of_layers = _views(network, gradient)
        self.inputs: list[Tensor] = []
        """Of each layer, from the last forward pass."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs `[n, b, out]` for inputs `[n, b, in]`."""
        self.inputs = []
        for number, (weight, bias) in enumerate(self.layers):
            self.inputs.append(inputs)
            inputs = torch.baddbmm(bias.unsqueeze(1), inputs, weight)
            if self.network.has_relu(number):
                inputs.relu_()
        return inputs

    def backward(self, gradient: Tensor) -> None:
        """Writes the gradient of the models, given that of the last forward pass's outputs `[n, b, out]`."""
        for number in reversed(range(len(self.layers))):
            (weight, _), inputs = self.layers[number], self.inputs[number]
            of_weight, of_bias = self.of_layers[number]
            if gradient.is_cuda and gradient.dtype == of_weight.dtype:
                torch.bmm(inputs.mT, gradient, out=of_weight)
            else:  # A CPU's libraries write into a part of a tensor slowly.
                of_weight.copy_(torch.bmm(inputs.mT, gradient))
            torch.sum(gradient, dim=1, dtype=of_bias.dtype, out=of_bias)
            if number:
                gradient = torch.bmm(gradient, to_the_right(weight.mT))
                if self.network.has_relu(number - 1):
                    torch.ops.aten.threshold_backward.grad_input(gradient, inputs, 0, grad_input=gradient)


def _views(network: MLP, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Weight `[n, in, out]` and bias `[n, out]` of each layer."""
    parts = network.layout.unflatten(flat.detach())
    return [(parts[f"{i}.weight"], parts[f"{i}.bias"]) for i, _ in enumerate(pairwise(network.widths))]
