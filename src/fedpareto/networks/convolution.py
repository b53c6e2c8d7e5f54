"""Convolutions over a stack of clients: one product of all clients' patches, with a gradient of its own."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedpareto.networks.linear import as_autocast_wants, inspected
from fedpareto.networks.training import Current

TILE, TILES = 64, 256
"""A GPU computes a product in tiles of about this side, and needs about this many at once to be busy."""


def stacked_conv2d(
    inputs: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int] = (1, 1), padding: tuple[int, int] = (0, 0)
) -> Tensor:
    """A convolution: inputs `[n, b, c, h, w]`, weight `[n, o, c, k, l]`, bias `[n, o]`.

    One product of all clients' patches.
    """
    values: Tensor
    if any(padding):
        inputs = F.pad(inputs, (padding[1], padding[1], padding[0], padding[0]))
    lowered = as_autocast_wants(inputs, weight, bias)
    values, _ = _StackedConvolution.apply(*lowered, stride)  # type: ignore[no-untyped-call]
    return values


def is_stacked(layer: nn.Conv2d) -> bool:
    """Whether stacked_conv2d does the same as torch's layer."""
    steps = (layer.dilation, layer.groups, layer.padding_mode)
    is_own = type(layer).forward is not nn.Conv2d.forward
    return steps == ((1, 1), 1, "zeros") and not isinstance(layer.padding, str) and not is_own


def conv2d(layer: Any, name: str, current: Current, images: Tensor) -> Tensor:
    """torch's nn.Conv2d: by patches on a GPU, and client by client on a CPU, where libraries do them best so.

    vmap would make one convolution in groups of it, which took 1.7 times as long in a ResNet-18 on a CPU.
    """
    del name
    tensors = (images, layer.weight) if layer.bias is None else (images, layer.weight, layer.bias)

    def kernel(images: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if images.is_cuda and is_stacked(layer) and len(images) > 1:
            added = weight.new_zeros(weight.shape[:2]) if bias is None else bias
            return stacked_conv2d(images, weight, added, layer.stride, layer.padding)
        each = zip(*(tensor.unbind() for tensor in (images, weight)), strict=True)
        biases = [None] * len(images) if bias is None else bias.unbind()
        return torch.stack([layer._conv_forward(*one, own) for one, own in zip(each, biases, strict=True)])

    result: Tensor = current.now.call(kernel, *tensors)
    return result


class _StackedConvolution(torch.autograd.Function):
    """By patches, in channels-last memory: grouped convolutions of libraries leave a GPU mostly idle.

    The bias is one more entry of the kernel, which every patch multiplies by 1; so it is as precise as products are.
    """

    @staticmethod
    @inspected
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """See stacked_conv2d; also the patches, which the gradient needs."""
        rows, (n, out, channels, height, width) = inputs.shape[1], weight.shape
        pixels = inputs.permute(0, 1, 3, 4, 2)
        windows = pixels.unfold(2, height, stride[0]).unfold(3, width, stride[1])  # [n, b, y, x, c, k, l]
        size, entries = windows.shape[2:4], height * width * channels
        kernel = _kernel(weight, bias)
        patches = inputs.new_empty(n, rows, *size, kernel.shape[1])
        shown = patches[..., :entries].view(n, rows, *size, height, width, channels)
        shown.copy_(windows.permute(0, 1, 2, 3, 5, 6, 4))
        patches[..., entries:] = F.pad(inputs.new_ones(1), (0, kernel.shape[1] - entries - 1))
        patches = patches.flatten(1, 3)
        values = torch.bmm(patches, kernel)
        return values.view(n, rows, *size, out).permute(0, 1, 4, 2, 3), patches

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        """Keeps what the gradient needs."""
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # Of the patches: zeros, as many as they are.
        ctx.save_for_backward(inputs[1], output[1])
        ctx.shape, ctx.stride = inputs[0].shape, inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        """The gradients of inputs (if needed), weight and bias."""
        weight, patches = ctx.saved_tensors
        n, out, channels, height, width = weight.shape
        of_values = gradient.permute(0, 1, 3, 4, 2).reshape(n, -1, out)
        of_kernel, entries = _summed_product(patches, of_values, gradient.shape[1]), height * width * channels
        of_weight = of_kernel[:, :entries].view(n, height, width, channels, out).permute(0, 4, 3, 1, 2)
        of_inputs = None
        if ctx.needs_input_grad[0]:
            of_patches = torch.bmm(of_values, _entries(weight).mT)
            of_inputs = _overlaid(of_patches, ctx.shape, (height, width), tuple(gradient.shape[3:]), ctx.stride)
        return of_inputs, of_weight, of_kernel[:, entries], None


def _entries(weight: Tensor) -> Tensor:
    """A weight `[n, o, c, k, l]` as patches see it, `[n, k · l · c, o]`."""
    return weight.permute(0, 3, 4, 2, 1).flatten(1, 3)


def _kernel(weight: Tensor, bias: Tensor) -> Tensor:
    """What patches are multiplied by, `[n, k · l · c + 1 + padding, o]`: a weight and below it the bias.

    Their length is filled up to a multiple of 8: on rows of another length, a GPU's tensor cores are idle (with
    bfloat16 and 75 entries the gradient took 13 times as long).
    """
    entries = torch.cat([_entries(weight), bias.unsqueeze(1)], dim=1)
    return F.pad(entries, (0, 0, 0, -entries.shape[1] % 8))


def _summed_product(left: Tensor, right: Tensor, rows: int) -> Tensor:
    """leftᵀ·right of each client, `[n, r, e]` and `[n, r, o]` to `[n, e, o]`.

    A few small results of long sums leave a GPU idle (7 times slower with 20 clients), so each is done in pieces: the
    fewest that keep it busy and divide the client's `rows`, of which r is a multiple.
    """
    n, _, entries = left.shape
    out = right.shape[2]
    tiles = n * math.ceil(entries / TILE) * math.ceil(out / TILE)
    pieces = next((count for count in range(1, rows + 1) if rows % count == 0 and count * tiles >= TILES), max(rows, 1))
    products = torch.bmm(left.reshape(n * pieces, -1, entries).mT, right.reshape(n * pieces, -1, out))
    return products.view(n, pieces, entries, out).sum(1)


def _overlaid(
    patches: Tensor, shape: torch.Size, kernel: tuple[int, int], size: tuple[int, ...], stride: tuple[int, int]
) -> Tensor:
    """Images of `shape` `[n, b, c, h, w]` as the sums of their patches `[n, b · y · x, k · l · c]`."""
    n, rows, channels, height, width = shape
    tall, wide = size
    parts = patches.view(n, rows, tall, wide, *kernel, channels)
    images = patches.new_zeros(n, rows, height, width, channels)
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            lines, columns = slice(y, y + tall * stride[0], stride[0]), slice(x, x + wide * stride[1], stride[1])
            images[:, :, lines, columns] += parts[:, :, :, :, y, x]
    return images.permute(0, 1, 4, 2, 3)
