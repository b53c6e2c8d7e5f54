"""Linear layers over a stack of clients: batched products, with a gradient of their own."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

F = TypeVar("F", bound=Callable[..., Any])
FEW_OUTPUTS = 4
"""Up to this many, a product is done output by output; beyond, a batched product is faster."""
HAS_MKL: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]


def inspected(function: F) -> F:
    """Keeps its signature: autograd looks it up in every call, which takes as long as a small product."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


def stacked_linear(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
    """x·W + b, then ReLU if asked: `[n, b, in]`, `[n, in, out]`, `[n, out]` to `[n, b, out]`."""
    lowered = as_autocast_wants(inputs, weight, bias)
    result: Tensor = _StackedLinear.apply(*lowered, relu)  # type: ignore[no-untyped-call]
    return result


class _StackedLinear(torch.autograd.Function):
    """One node for product, bias and ReLU."""

    generate_vmap_rule = True

    @staticmethod
    @inspected
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        output = torch.baddbmm(bias.unsqueeze(-2), inputs, weight)
        return output.relu_() if relu else output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, bool], output: Tensor) -> None:
        ctx.relu = inputs[3]
        ctx.save_for_backward(inputs[0], inputs[1], *([output] if ctx.relu else []))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        inputs, weight, *output = ctx.saved_tensors
        if ctx.relu:
            gradient = torch.ops.aten.threshold_backward(gradient, output[0], 0)
        of_inputs, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            torch.bmm(gradient, to_the_right(weight.mT)) if of_inputs else None,
            _of_weight(inputs, gradient, weight) if of_weight else None,
            gradient.sum(-2) if of_bias else None,
            None,
        )


def to_the_right(factor: Tensor) -> Tensor:
    """For a product on a CPU without MKL, a transposed view is copied first.

    OpenBLAS on ARM has no kernel for it among small batched matrices; the product would cost 3.5 times as much.
    """
    swift = factor.stride(-1) == 1 or factor.is_cuda or HAS_MKL
    return factor if swift else factor.contiguous()


def relu_backward_(gradient: Tensor, output: Tensor) -> Tensor:
    """A gradient behind a ReLU, given the ReLU's output, becomes the one before it."""
    # In two thirds of the time that threshold_backward takes on a CPU.
    passed: Tensor = torch.ops.aten.hardtanh_backward.grad_input(gradient, output, 0, math.inf, grad_input=gradient)
    return passed


def _of_weight(inputs: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient of `weight`, laid out in memory as that is: torch's own linear layers hold theirs transposed."""
    if weight.stride(-2) == 1:
        return torch.bmm(gradient.mT, inputs).mT
    return torch.bmm(inputs.mT, gradient)


def linear_of_each(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Wᵀ·x + b for k models of each client: `[n, k, in, b]`, `[n, k, in, out]`, `[n, k, out]` to `[n, k, out, b]`.

    `inputs` may also be the same for the k models, `[n, 1, in, b]`: then they are one product. A product of tiny
    matrices for each of n·k models costs many times its arithmetic in calls, so these are done output by output.
    """
    n, k, fan_in, fan_out = weight.shape
    if inputs.shape[1] == 1:
        rows = weight.mT.reshape(n, k * fan_out, fan_in)
        return torch.baddbmm(bias.reshape(n, k * fan_out, 1), rows, inputs[:, 0]).view(n, k, fan_out, -1)
    if fan_out <= FEW_OUTPUTS:
        outputs = [(inputs * weight[..., j, None]).sum(2) for j in range(fan_out)]
        return torch.stack(outputs, dim=2) + bias.unsqueeze(-1)
    return weight.mT @ inputs + bias.unsqueeze(-1)


def as_autocast_wants(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors in the lower precision that was set, if any: torch does not see through operations of our own."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)
