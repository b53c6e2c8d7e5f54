"""Gram matrices of many long vectors."""

from __future__ import annotations

from torch import Tensor

BLOCK = 64


def gram(rows: Tensor) -> Tensor:
    """All inner products, `[n, d]` to `[n, n]`, exactly symmetric: only the upper triangle of blocks is computed."""
    products = rows.new_empty(len(rows), len(rows))
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK] @ rows[start:].T
        products[start : start + BLOCK, start:] = part
        products[start:, start : start + BLOCK] = part.T
    return products
