"""Are two halves of a group really two? A permutation test on similarities."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

DRAWS = 999
"""Random relabellings behind a p value; the smallest p is one in a thousand."""


def separation(similarity: Tensor, sides: Tensor) -> Tensor:
    """Mean similarity of pairs on one side minus that of pairs across: `[n, n]` and `[draws, n]` to `[draws]`.

    `sides` says for each draw which members are on the first side. A pair is of two members, nobody with itself.
    """
    first = sides.to(similarity.dtype)
    second = 1 - first
    pairs = similarity - similarity.diagonal().diag()

    def summed(left: Tensor, right: Tensor) -> Tensor:
        return torch.einsum("ki,ij,kj->k", left, pairs, right)

    n, ones = len(similarity), first.sum(dim=1)
    twos = n - ones
    within = (summed(first, first) + summed(second, second)) / (ones * (ones - 1) + twos * (twos - 1))
    return within - summed(first, second) / (ones * twos)


def separation_p_value(similarity: Tensor, half: list[int], stream: np.random.Generator, draws: int = DRAWS) -> float:
    """Share of random relabellings in which a half of the same size stands apart as clearly as this one.

    Exact where the half was chosen without these similarities: then, if all members are alike, every half of its size
    is as likely. A half that was chosen *by* them always looks well separated, and the value would be far too small.
    """
    n = len(similarity)
    if n < 3 or not 0 < len(half) < n:
        return 1.0
    orders = torch.as_tensor(stream.random((draws, n)).argsort(axis=1), device=similarity.device)
    sides = torch.zeros(draws + 1, n, dtype=torch.bool, device=similarity.device)
    sides[0, half] = True
    sides[1:] = orders < len(half)
    found = separation(similarity.double(), sides)
    # The same halves in another order differ by rounding only; they count as equal.
    return float((found >= found[0] - 1e-9).double().mean())
