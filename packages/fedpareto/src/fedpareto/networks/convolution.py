"""Convolutions and max pooling over a stack of clients, each with a gradient of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedpareto.networks.linear import as_autocast_wants, inspected
from fedpareto.tensors.training import Current

PIECES = [(16, torch.complex128), (8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8)]
"""Bytes, and the type of number that has as many."""


def in_pieces(tensor: Tensor) -> Tensor:
    """The bytes of `[..., c]` as `[..., p]`, in the largest pieces of which c numbers consist; copied if not dense.

    A GPU takes as long to copy 2 bytes to another place as 16.
    """
    # Of a tensor with a size of 1 any stride may be said, so its bytes are seen as a line first.
    line = tensor.reshape(-1)
    of_all, begin = (count * tensor.element_size() for count in (tensor.shape[-1], line.storage_offset()))
    size, piece = next((size, kind) for size, kind in PIECES if of_all % size == begin % size == 0)
    return line.view(piece).view(*tensor.shape[:-1], of_all // size)


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
    """True if stacked_conv2d does the same as torch's layer."""
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
    """Convolution by patches, in channels-last memory: grouped convolutions of libraries leave a GPU mostly idle.

    The bias is one more entry of the kernel, which every patch multiplies by 1; so it is as precise as products are.
    """

    @staticmethod
    @inspected
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor, stride: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """Values of stacked_conv2d; also the patches, which the gradient needs."""
        pixels = inputs.permute(0, 1, 3, 4, 2)
        kernel = _kernel(weight, bias)
        patches = _patches(_filled(pixels, -1), weight.shape[3:], stride, kernel.shape[1])
        values = torch.bmm(patches.flatten(1, 3), kernel).view(*patches.shape[:4], len(bias[0]))
        return values.permute(0, 1, 4, 2, 3), patches.flatten(1, 3)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # Of the patches: zeros, as many as they are.
        ctx.save_for_backward(inputs[1], output[1])
        ctx.shape, ctx.stride = inputs[0].shape, inputs[3]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        weight, patches = ctx.saved_tensors
        n, out, channels, height, width = weight.shape
        of_pixels = gradient.permute(0, 1, 3, 4, 2).contiguous()
        of_kernel = _summed_product(patches, of_pixels.view(n, -1, out), gradient.shape[1])
        entries = height * width * (channels + _missing(channels, weight))
        of_weight = of_kernel[:, :entries].view(n, height, width, -1, out)[..., :channels, :].permute(0, 4, 3, 1, 2)
        of_inputs = None
        if ctx.needs_input_grad[0]:
            of_inputs = _of_inputs(of_pixels, weight, ctx.shape, ctx.stride)
        return of_inputs, of_weight, of_kernel[:, entries], None


def _entries(weight: Tensor) -> Tensor:
    """A weight `[n, o, c, k, l]` as patches see it, `[n, k · l · c, o]`."""
    return weight.permute(0, 3, 4, 2, 1).flatten(1, 3)


def _filled(tensor: Tensor, channels: int) -> Tensor:
    """Pad with as many channels of 0 in dimension `channels` as `_missing` says."""
    missing = _missing(tensor.shape[channels], tensor)
    after = tensor.dim() - 1 - channels % tensor.dim()
    return F.pad(tensor, (0, 0) * after + (0, missing)) if missing else tensor


def _missing(channels: int, like: Tensor) -> int:
    """Number of channels that, added, make a pixel of 16-bit numbers pieces of 8 bytes; none where that is more than a
    third again.

    With 32 bits the longer products cost more than the faster copy brings.
    """
    missing = -channels % 4
    return missing if like.element_size() == 2 and 3 * missing <= channels else 0


def _kernel(weight: Tensor, bias: Tensor) -> Tensor:
    """Factor of the patches, `[n, k · l · c + 1 + padding, o]`: a weight and below it the bias.

    Their length is filled up to a multiple of 8: on rows of another length, a GPU's tensor cores are idle (with
    bfloat16 and 75 entries the gradient took 13 times as long).
    """
    entries = torch.cat([_entries(_filled(weight, 2)), bias.unsqueeze(1)], dim=1)
    return F.pad(entries, (0, 0, 0, -entries.shape[1] % 8))


def _patches(pixels: Tensor, window: Sequence[int], stride: tuple[int, int], length: int) -> Tensor:
    """Patches `[n, b, y, x, length]` of pixels `[n, b, h, w, c]`: those that a window sees, then a 1 for the bias, then
    0."""
    wide = in_pieces(pixels)
    windows = wide.unfold(2, window[0], stride[0]).unfold(3, window[1], stride[1]).movedim(4, -1)
    patches = pixels.new_empty(*windows.shape[:4], length)
    last = F.pad(pixels.new_ones(1), (0, length - math.prod(window) * pixels.shape[-1] - 1))
    seen, after = patches.view(wide.dtype).tensor_split([math.prod(windows.shape[4:])], dim=-1)
    seen.view(windows.shape).copy_(windows)  # [n, b, y, x, k, l, p]
    after.copy_(last.view(wide.dtype))
    return patches


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
    """The gradient of images of `shape` `[n, b, c, h, w]`, given that of pixels `[n, b, y, x, o]`."""
    if of_pixels.element_size() == 2 and stride == (1, 1):
        return _turned_round(of_pixels, weight).permute(0, 1, 4, 2, 3)
    n, _, channels, height, width = weight.shape
    patches = torch.bmm(of_pixels.flatten(1, 3), _entries(weight).mT)
    patches = patches.view(*of_pixels.shape[:4], height, width, channels)
    rows, (tall, wide) = shape[1], patches.shape[2:4]
    images = patches.new_zeros(n, rows, *shape[3:], channels)
    for y in range(height):
        for x in range(width):
            lines, columns = slice(y, y + tall * stride[0], stride[0]), slice(x, x + wide * stride[1], stride[1])
            images[:, :, lines, columns] += patches[:, :, :, :, y, x]
    return images.permute(0, 1, 4, 2, 3)


def _turned_round(of_pixels: Tensor, weight: Tensor) -> Tensor:
    """Gradient of images `[n, b, h, w, c]`, as a convolution of the padded `of_pixels` with the kernel turned round.

    Columns of the kernel are summed by a product, its lines after that, as they lie in memory: less is written than
    by patches of either side, and rounded less often. It is more arithmetic, which costs little with 16 bits only.
    """
    n, out, channels, height, width = weight.shape
    padded = F.pad(of_pixels, (0, 0, width - 1, width - 1, height - 1, height - 1))
    windows = in_pieces(padded).unfold(3, width, 1).transpose(-2, -1).contiguous().view(of_pixels.dtype)
    kernel = weight.flip(4).permute(0, 4, 1, 3, 2).reshape(n, width * out, height * channels)
    lines = torch.bmm(windows.flatten(4).flatten(1, 3), kernel)
    return _summed_lines(lines.view(*windows.shape[:4], height, channels))


def _summed_lines(lines: Tensor) -> Tensor:
    """Image lines `[n, b, h, x, c]` of `[n, b, y, x, k, c]`: the sum over k of what begins k lines above each.

    The first k − 1 lines are above the image. The view counts k from below, so that it goes forward in memory.
    """
    n, rows, tall, wide, height, channels = lines.shape
    steps = list(lines.stride())
    begin, steps[4] = (height - 1) * steps[4], steps[2] - steps[4]
    view = lines.as_strided((n, rows, tall - height + 1, wide, height, channels), steps, begin)
    return view.sum(4, dtype=lines.dtype)


# -- max pooling: torch's own, for any window, takes a fifth of a step on a GPU ------------------------------------


def halves(layer: nn.Module, images: Tensor) -> bool:
    """True for a pooling of 2 × 2 squares side by side, which tile the images `[..., h, w]`."""
    if type(layer) is not nn.MaxPool2d or layer.return_indices:
        return False
    windows = [_pair(value) for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
    return windows == [(2, 2), (2, 2), (0, 0), (1, 1)] and not any(side % 2 for side in images.shape[-2:])


def halved(images: Tensor) -> Tensor:
    """The largest value of each 2 × 2 square of images `[..., c, h, w]`, whose channels come last in memory."""
    pixels: Tensor = _Halved.apply(images.movedim(-3, -1))  # type: ignore[no-untyped-call]
    return pixels.movedim(-1, -3)


class _Halved(torch.autograd.Function):
    """Pooling of pixels `[..., h, w, c]`: the larger of two neighbours, then of two lines. Of equal ones, the first
    counts.

    The four corners of all squares are laid apart first, since what lies one after the other is compared faster.
    """

    @staticmethod
    @inspected
    def forward(ctx: Any, pixels: Tensor) -> Tensor:
        corners = _corners(pixels)
        narrow = torch.maximum(corners[0], corners[1])
        ctx.save_for_backward(corners, narrow)
        return torch.maximum(narrow[0], narrow[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        corners, narrow = ctx.saved_tensors
        return _squares(_handed_on(_handed_on(gradient, narrow), corners))


def _corners(pixels: Tensor) -> Tensor:
    """Corners of the squares of `[..., h, w, c]`, `[2, 2, ..., h / 2, w / 2, c]`: first left or right, then upper or
    lower."""
    pieces = in_pieces(pixels)
    *rows, height, width, count = pieces.shape
    squares = pieces.view(*rows, height // 2, 2, width // 2, 2, count)
    return squares.movedim((-2, -4), (0, 1)).contiguous().view(pixels.dtype)


def _squares(corners: Tensor) -> Tensor:
    """Inverse of _corners."""
    squares = in_pieces(corners).movedim((0, 1), (-2, -4)).contiguous()
    return squares.flatten(-5, -4).flatten(-3, -2).view(corners.dtype)


def _handed_on(gradient: Tensor, values: Tensor) -> Tensor:
    """To the larger of two `values` `[2, ...]` the gradient, and 0 to the other."""
    first, second = to = torch.empty_like(values)
    # The sign of their difference tells which; to multiply by a truth value takes twice as long on a GPU.
    torch.sub(values[1], values[0], out=first)
    torch.ops.aten.threshold_backward.grad_input(gradient, first, 0, grad_input=second)
    torch.sub(gradient, second, out=first)
    return to


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)
