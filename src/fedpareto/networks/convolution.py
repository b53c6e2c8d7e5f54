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
        of_pixels = gradient.permute(0, 1, 3, 4, 2).contiguous()
        of_values, entries = of_pixels.view(n, -1, out), height * width * channels
        of_kernel = _summed_product(patches, of_values, gradient.shape[1])
        of_weight = of_kernel[:, :entries].view(n, height, width, channels, out).permute(0, 4, 3, 1, 2)
        of_inputs = None
        if ctx.needs_input_grad[0]:
            of_inputs = _of_inputs(of_pixels, weight, ctx.shape, ctx.stride)
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


def _of_inputs(of_pixels: Tensor, weight: Tensor, shape: torch.Size, stride: tuple[int, int]) -> Tensor:
    """The gradient of images of `shape` `[n, b, c, h, w]`, given that of pixels `[n, b, y, x, o]`: patches, overlaid.

    In a precision of 16 bits the lines of overlapping patches are summed by one kernel, which is faster there and
    rounds once; with 32 bits that reads too much.
    """
    n, _, channels, height, width = weight.shape
    at_once = of_pixels.element_size() == 2 and stride == (1, 1)
    if at_once:
        of_pixels = F.pad(of_pixels, (0, 0, 0, 0, height - 1, height - 1))
    patches = torch.bmm(of_pixels.flatten(1, 3), _entries(weight).mT)
    patches = patches.view(*of_pixels.shape[:4], height, width, channels)
    if at_once:
        patches = _summed_lines(patches).unsqueeze(4)
    rows, (tall, wide) = shape[1], patches.shape[2:4]
    images = patches.new_zeros(n, rows, *shape[3:], channels)
    for y in range(patches.shape[4]):
        for x in range(width):
            lines, columns = slice(y, y + tall * stride[0], stride[0]), slice(x, x + wide * stride[1], stride[1])
            images[:, :, lines, columns] += patches[:, :, :, :, y, x]
    return images.permute(0, 1, 4, 2, 3)


def _summed_lines(patches: Tensor) -> Tensor:
    """Patches `[n, b, y, x, k, l, c]`, of which the first and last k − 1 lines are 0, as lines `[n, b, h, x, l, c]`.

    Line h is the sum over k of patches that begin k lines above it; the view counts k from below, so that it goes
    forward in memory.
    """
    n, rows, tall, wide, height, width, channels = patches.shape
    steps = list(patches.stride())
    begin, steps[4] = (height - 1) * steps[4], steps[2] - steps[4]
    view = patches.as_strided((n, rows, tall - height + 1, wide, height, width, channels), steps, begin)
    return view.sum(4)
