"""Pooling of our own: the same values and the same gradient as torch's, also where values are equal."""

import pytest
import torch
from torch import nn

from fedpareto.networks.convolution import halved, halves


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_halved_is_torchs_max_pooling_whichever_values_are_equal(levels):
    stream = torch.Generator().manual_seed(levels)
    images = torch.randint(levels, (2, 3, 4, 6, 8), generator=stream).double() - levels // 2
    pulls = torch.randn(2, 3, 4, 3, 4, generator=stream, dtype=torch.float64)
    ours, theirs = (images.clone().requires_grad_() for _ in range(2))
    found, expected = halved(ours), nn.MaxPool2d(2)(theirs.flatten(0, 1)).unflatten(0, (2, 3))
    assert torch.equal(found, expected)
    (found * pulls).sum().backward()
    (expected * pulls).sum().backward()
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize(
    ("layer", "size", "expected"),
    [
        (nn.MaxPool2d(2), (4, 6), True),
        (nn.MaxPool2d((2, 2), stride=2), (4, 6), True),
        (nn.MaxPool2d(2), (5, 6), False),
        (nn.MaxPool2d(3, stride=2, padding=1), (4, 6), False),
        (nn.MaxPool2d(2, stride=1), (4, 6), False),
        (nn.MaxPool2d(2, dilation=2), (4, 6), False),
        (nn.AvgPool2d(2), (4, 6), False),
    ],
)
def test_only_squares_that_tile_the_images_are_halved(layer, size, expected):
    assert halves(layer, torch.zeros(1, 1, *size)) is expected
