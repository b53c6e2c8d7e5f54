"""The layers of one network, as fast as one network can be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import linear

from fedpareto.config.errors import UserError
from fedpareto.networks.mlp import MLP
from fedpareto.tensors.layout import Layout


@dataclass(frozen=True)
class Layer:
    """A linear layer of one network."""

    weight: Tensor
    """Transposed, `[out, in]`."""
    bias: Tensor
    relu: bool


@dataclass(frozen=True)
class CodedLinear:
    """A linear layer whose parameters are themselves linear in a code z `[q]`, which may differ from row to row.

    W = Σ_k z_k W_k, so x·W = Σ_k z_k (x·W_k): a product with matrices that all rows share, instead of a matrix for each
    row, which would have to be written to memory and read again.
    """

    weight: Tensor
    """All W_k, transposed and one below the other, `[q · out, in]`."""
    bias: Tensor
    """`[q, out]`."""

    @classmethod
    def of(cls, weights: Tensor, biases: Tensor) -> CodedLinear:
        """From W_k as `[q, in, out]`."""
        return cls(weights.mT.reshape(-1, weights.shape[1]).contiguous(), biases.contiguous())

    def __call__(self, inputs: Tensor, code: Tensor) -> Tensor:
        """`[b, in]` and `[b, q]` to `[b, out]`."""
        each = linear(inputs, self.weight, self.bias.view(-1)).view(-1, *self.bias.shape)
        return each.mul_(code.unsqueeze(-1)).sum(1)


def forward(layers: Sequence[Layer], inputs: Tensor) -> Tensor:
    """Outputs `[b, outputs]` of one network, or of some layers of it, for `[b, inputs]`."""
    for layer in layers:
        inputs = linear(inputs, layer.weight, layer.bias)
        inputs = inputs.relu_() if layer.relu else inputs
    return inputs


def layers_of(network: MLP, parameters: Mapping[str, Tensor]) -> list[Layer]:
    """Those layers of a network whose parameters are given.

    They compute as the stacked network does; but for one network, a product with transposed weights is faster on some
    machines.
    """
    return [
        Layer(parameters[f"{i}.weight"].t().contiguous(), parameters[f"{i}.bias"], network.has_relu(i))
        for i in range(len(network.hidden) + 1)
        if f"{i}.weight" in parameters
    ]


def network_of(layout: Layout) -> MLP:
    """The network that a layout belongs to, an MLP with one output."""
    shapes = [shape for name, shape in zip(layout.names, layout.shapes, strict=True) if name.endswith(".weight")]
    if shapes and all(len(shape) == 2 for shape in shapes):
        network = MLP(shapes[0][0], tuple(shape[1] for shape in shapes[:-1]), shapes[-1][1])
        if network.layout == layout and network.outputs == 1:
            return network
    raise UserError(
        "the model is not a multilayer perceptron with one output, and its problem does not say how it is used"
    )
