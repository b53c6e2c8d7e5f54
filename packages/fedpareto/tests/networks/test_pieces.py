"""Numbers moved in larger pieces are the same numbers."""

from __future__ import annotations

import pytest
import torch

from fedpareto.networks.convolution import in_pieces


@pytest.mark.parametrize(("channels", "size"), [(1, 4), (2, 8), (3, 4), (4, 16), (6, 8), (8, 16)])
def test_a_piece_is_the_largest_of_which_channels_consist(channels, size):
    pixels = torch.randn(2, 3, channels)
    pieces = in_pieces(pixels)
    assert pieces.element_size() == size
    assert pieces.shape == (2, 3, 4 * channels // size)
    assert torch.equal(pieces.view(torch.float32), pixels)


def test_what_begins_between_two_pieces_is_cut_into_smaller_ones():
    values = torch.arange(33, dtype=torch.float32)
    for begin, size in [(0, 16), (1, 4), (2, 8), (4, 16)]:
        pixels = values[begin : begin + 16].view(4, 4)
        assert in_pieces(pixels).element_size() == size
        assert torch.equal(in_pieces(pixels).view(torch.float32), pixels)


def test_what_does_not_lie_in_one_piece_is_copied():
    pixels = torch.randn(4, 6, 5).mT
    assert torch.equal(in_pieces(pixels).view(torch.float32), pixels)
