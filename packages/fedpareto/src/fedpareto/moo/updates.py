"""Sums, inner products and lengths of many clients' models or of their updates.

Those of updates are in double precision, of which there is never a whole copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
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


ENTRIES = 2**21
"""Numbers in a block: 16 MB in double precision, little beside the models and long enough for fast products."""


class Columns(Protocol):
    """Models `[n, d]` of which some columns can be read at a time: a tensor, or rows that lie elsewhere."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: tuple[slice, slice]) -> Tensor: ...


def weighted_sum(weights: Tensor, rows: Tensor) -> Tensor:
    """Σ_i w_i x_i of rows `[n, ...]` for weights `[n]`, or one such sum for each row of weights `[k, n]`."""
    if rows.dim() == 2:
        return weights.to(rows) @ rows
    sums = weights.to(rows) @ rows.reshape(len(rows), -1)
    return sums.view(*weights.shape[:-1], *rows.shape[1:])


def sum_of_products(left: Tensor, right: Tensor) -> Tensor:
    """Σ_i L_i R_i `[r, c]` of stacks of matrices `[n, r, k]` and `[n, k, c]`."""
    side_by_side = left.permute(1, 0, 2).flatten(1)
    return side_by_side @ right.flatten(0, 1)


def gram_of_updates(models: Columns, origin: Tensor) -> Tensor:
    """The inner products `[n, n]` of models `[n, d]` less `origin` `[d]`, in double precision.

    Squares of very large or small updates leave the range of single precision, and so would the difference between
    nearly parallel ones.
    """
    products = torch.zeros(len(models), len(models), dtype=torch.float64, device=origin.device)
    for _, block in blocks(models, origin):
        products += gram(block)
    return products


def sum_of_updates(coefficients: Tensor, models: Tensor, origin: Tensor) -> Tensor:
    """Σ_i coefficient_i · (model_i − origin), `[d]`, in double precision."""
    total = torch.empty(len(origin), dtype=torch.float64, device=origin.device)
    factors = coefficients.to(total)
    for place, block in blocks(models, origin):
        total[place] = factors @ block
    return total


def sums_of_updates(coefficients: Tensor, models: Tensor, origins: Tensor) -> Tensor:
    """Σ_i coefficient_ik · (model_ik − origin_k), `[K, d]`, of models `[n, K, d]` for coefficients `[n, K]`."""
    each = zip(coefficients.unbind(dim=1), models.unbind(dim=1), origins, strict=True)
    return torch.stack([sum_of_updates(*one) for one in each])


def squared_lengths(models: Tensor, origin: Tensor) -> Tensor:
    """‖model_i − origin‖², `[n]`, in double precision."""
    return (models.double() - origin.double()).square().sum(1)


def blocks(models: Columns, origin: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The updates `[n, columns]` by groups of parameters, in double precision."""
    columns = max(ENTRIES // len(models), 64)
    for start in range(0, len(origin), columns):
        place = slice(start, start + columns)
        yield place, (models[:, place] - origin[place]).double()
