"""Inner products and sums of many clients' updates, in double precision, of which there is never a whole copy."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fedpareto.moo.gram import gram

ENTRIES = 2**21
"""Numbers in a block: 16 MB in double precision, little beside the models and long enough for fast products."""


def gram_of_updates(models: Tensor, origin: Tensor) -> Tensor:
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


def blocks(models: Tensor, origin: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The updates `[n, columns]` by groups of parameters, in double precision."""
    columns = max(ENTRIES // len(models), 64)
    for start in range(0, len(origin), columns):
        place = slice(start, start + columns)
        yield place, (models[:, place] - origin[place]).double()
