"""Inner products and sums of many clients' updates, which are read once each and never copied as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fedpareto.moo.gram import gram

ENTRIES = 2**21
"""Numbers in a block: 16 MB in double precision, little beside the models and long enough for fast products."""


def gram_of_updates(models: Sequence[Tensor], origin: Tensor) -> Tensor:
    """The inner products `[n, n]` of model_i − origin (each `[d]`), in double precision.

    Squares of very large or small updates leave the range of single precision, and so would the difference between
    nearly parallel ones.
    """
    products = torch.zeros(len(models), len(models), dtype=torch.float64, device=origin.device)
    for _, block in blocks(models, origin):
        products += gram(block)
    return products


def sum_of_updates(coefficients: Tensor, models: Sequence[Tensor], origin: Tensor) -> Tensor:
    """Σ_i coefficient_i · (model_i − origin), `[d]`, in double precision."""
    total = torch.empty(len(origin), dtype=torch.float64, device=origin.device)
    factors = coefficients.to(total)
    for place, block in blocks(models, origin):
        total[place] = factors @ block
    return total


def blocks(models: Sequence[Tensor], origin: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The updates `[n, columns]` by groups of parameters, in double precision."""
    columns = max(ENTRIES // len(models), 64)
    for start in range(0, len(origin), columns):
        place = slice(start, start + columns)
        yield place, torch.stack([model[place] for model in models]).sub_(origin[place]).double()
