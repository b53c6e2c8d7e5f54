"""Max pooling that halves images, as CNNs mostly do: torch's own, for any window, takes a fifth of a step on a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedpareto.networks.linear import inspected


def halves(layer: nn.Module, images: Tensor) -> bool:
    """Whether it is a pooling of 2 × 2 squares side by side, which tile the images `[..., h, w]`."""
    if type(layer) is not nn.MaxPool2d or layer.return_indices:
        return False
    windows = [_pair(value) for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
    return windows == [(2, 2), (2, 2), (0, 0), (1, 1)] and not any(side % 2 for side in images.shape[-2:])


def halved(images: Tensor) -> Tensor:
    """The largest value of each 2 × 2 square of images `[..., c, h, w]`, whose channels come last in memory."""
    pixels: Tensor = _Halved.apply(images.movedim(-3, -1))  # type: ignore[no-untyped-call]
    return pixels.movedim(-1, -3)


class _Halved(torch.autograd.Function):
    """Of pixels `[..., h, w, c]`: the larger of two neighbours, then of two lines. Of equal ones, the first counts."""

    @staticmethod
    @inspected
    def forward(ctx: Any, pixels: Tensor) -> Tensor:
        """See halved."""
        narrow = torch.maximum(*_neighbours(pixels))
        ctx.save_for_backward(pixels, narrow)
        return torch.maximum(*_lines(narrow))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient goes where the largest value was."""
        pixels, narrow = ctx.saved_tensors
        of_narrow, of_pixels = torch.empty_like(narrow), torch.empty_like(pixels)
        _handed_on(gradient, _lines(narrow), _lines(of_narrow))
        _handed_on(of_narrow, _neighbours(pixels), _neighbours(of_pixels))
        return of_pixels


def _neighbours(pixels: Tensor) -> tuple[Tensor, Tensor]:
    return pixels[..., 0::2, :], pixels[..., 1::2, :]


def _lines(pixels: Tensor) -> tuple[Tensor, Tensor]:
    return pixels[..., 0::2, :, :], pixels[..., 1::2, :, :]


def _handed_on(gradient: Tensor, values: tuple[Tensor, Tensor], to: tuple[Tensor, Tensor]) -> None:
    """Writes the gradient to the larger of two values, and 0 to the other."""
    torch.mul(gradient, values[0] >= values[1], out=to[0])
    torch.sub(gradient, to[0], out=to[1])


def _pair(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return (value, value) if isinstance(value, int) else tuple(value)
