"""Numbers of 16 or 32 bits moved in larger pieces: a GPU takes as long to copy 2 bytes to another place as 16."""

from __future__ import annotations

import torch
from torch import Tensor

PIECES = [(16, torch.complex128), (8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8)]
"""Bytes, and the type of number that has as many."""


def in_pieces(tensor: Tensor) -> Tensor:
    """The bytes of `[..., c]` as `[..., p]`, in the largest pieces of which c numbers consist; copied if not dense."""
    # Of a tensor with a size of 1 any stride may be said, so its bytes are seen as a line first.
    line = tensor.reshape(-1)
    of_all, begin = (count * tensor.element_size() for count in (tensor.shape[-1], line.storage_offset()))
    size, piece = next((size, kind) for size, kind in PIECES if of_all % size == begin % size == 0)
    return line.view(piece).view(*tensor.shape[:-1], of_all // size)
