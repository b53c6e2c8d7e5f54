"""Cosine similarity."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpareto.moo.updates import gram


def cosines(vectors: Tensor) -> Tensor:
    """The cosine of each pair of rows: `[n, d]` to `[n, n]`.

    A row is always like itself (1), also where it is zero and a cosine would be undefined; a zero row is at right
    angles (0) to all others.
    """
    products = gram(vectors)
    length, tiny = products.diagonal().sqrt(), torch.finfo(vectors.dtype).tiny
    # One product of lengths, not two divisions: the result is exactly symmetric, as clustering asks.
    return (products / (length[:, None] * length).clamp_min(tiny)).clamp(-1, 1).fill_diagonal_(1)


def cosines_of(rows: Tensor, vectors: Tensor) -> Tensor:
    """Cosines of some rows only, which are named by their places `[k]`: `[k, n]`."""
    lengths = vectors.norm(dim=1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
    some = vectors[rows] / lengths[rows]
    found: Tensor = ((some @ vectors.T) / lengths.T).clamp(-1, 1)
    found[torch.arange(len(rows), device=found.device), rows] = 1
    return found


def cosines_of_pairs(some: Tensor, others: Tensor) -> Tensor:
    """The cosine of each row with the same one of the `others`: two `[n, d]` to `[n]`; 0 where one of them is zero."""
    lengths = some.square().sum(1).sqrt() * others.square().sum(1).sqrt()
    return ((some * others).sum(1) / lengths.clamp_min(torch.finfo(some.dtype).tiny)).clamp(-1, 1)
