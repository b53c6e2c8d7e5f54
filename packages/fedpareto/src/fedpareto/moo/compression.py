"""Compressed Jacobians: a near-square rearrangement and a randomised singular value decomposition of low rank.

As in FedCMOO (Askin et al., 2025): two factors are sent instead of m gradients of length d. All functions work
on a stack of n matrices at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

POWER_ITERATIONS = 2
"""Passes that sharpen the decomposition's basis (the published code's)."""
OVERSAMPLING = 10
"""One extra column for each of this many of the rank (the published code's)."""


def near_square(d: int, m: int) -> tuple[int, int]:
    """Rows and columns of the rearranged matrix: ⌊√(dm)⌋ rows, and as many blocks of m columns as d needs."""
    rows = math.isqrt(d * m)
    return rows, -(-d // rows) * m


def default_rank(d: int, m: int) -> int:
    """⌊d / (2√(dm))⌋, with which the factors hold about d numbers; at least 1."""
    return min(max(1, int(d / (2 * math.sqrt(d * m)))), *near_square(d, m))


def rearrange(jacobians: Tensor) -> Tensor:
    """`[n, m, d]` to the near-square `[n, rows, columns]`: blocks of rows side by side, zeros at the end."""
    n, m, d = jacobians.shape
    rows, columns = near_square(d, m)
    padded = torch.nn.functional.pad(jacobians, (0, rows * columns // m - d))
    return padded.reshape(n, m, columns // m, rows).permute(0, 3, 2, 1).reshape(n, rows, columns)


def restore(matrices: Tensor, d: int, m: int) -> Tensor:
    """Inverse of `rearrange`."""
    n, rows, columns = matrices.shape
    blocks = matrices.reshape(n, rows, columns // m, m).permute(0, 3, 2, 1)
    return blocks.reshape(n, m, rows * columns // m)[..., :d]


def compress(jacobians: Tensor, rank: int, normal: Callable[[int], Tensor]) -> tuple[Tensor, Tensor]:
    """Factors `[n, rows, rank]` and `[n, rank, columns]` of the Jacobians `[n, m, d]` (Halko et al., 2011).

    `normal` draws as many numbers as asked for each matrix, `[n, count]`, so that a client's factors do not depend on
    its neighbours.
    """
    a = rearrange(jacobians)
    rows, columns = a.shape[1:]
    width = min(rank + rank // OVERSAMPLING, rows, columns)
    drawn = normal(columns * width).view(len(a), columns, width)
    q = torch.linalg.qr(a @ drawn.to(a)).Q
    for _ in range(POWER_ITERATIONS):
        q = torch.linalg.qr(a @ torch.linalg.qr(a.mT @ q).Q).Q
    u, s, vh = torch.linalg.svd(q.mT @ a, full_matrices=False)
    return q @ (u[..., :rank] * s[:, None, :rank]), vh[:, :rank]
