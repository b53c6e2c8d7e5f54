"""Max pooling that halves images, as CNNs mostly do: torch's own, for any window, takes a fifth of a step on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedpareto.networks.linear import inspected
from fedpareto.networks.wide_copy import in_pieces


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
