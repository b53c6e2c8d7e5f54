"""From a vector of losses to one number to minimise; differentiable, over the last dimension.

A preference always means importance: the larger a weight, the more that loss matters.
`losses` is `[..., m]`, `weights` is `[m]` or `[..., m]`; the result drops the last dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import torch
from torch import Tensor

from fedpareto.config.errors import UserError


def linear(losses: Tensor, weights: Tensor) -> Tensor:
    """sum_j w_j l_j. Its minima lie on the convex hull of the front, whatever the weights."""
    if losses.shape[-1:] != weights.shape[-1:]:
        _refuse(losses, weights)
    return (weights * losses).sum(dim=-1)


def tchebycheff(losses: Tensor, weights: Tensor, ideal: float | Tensor = 0.0) -> Tensor:
    """max_j w_j (l_j - z_j) with the ideal point z (a number or `[m]`), Bowman 1976.

    Reaches non-convex parts of the front too. Only the worst weighted loss gets a gradient (equal
    worst ones share it).
    """
    return _weighted(losses, weights, ideal).amax(dim=-1)


def smooth_tchebycheff(losses: Tensor, weights: Tensor, ideal: float | Tensor = 0.0, mu: float = 0.1) -> Tensor:
    """mu * log sum_j exp(w_j (l_j - z_j) / mu), Lin et al. 2024.

    At least `tchebycheff` and at most mu * log(m) more, so it tends to it as mu goes to 0, but every
    loss with a positive weight gets a gradient.
    """
    if not mu > 0:
        raise UserError(f"mu: the smoothing must be a positive number, got {mu}")
    return mu * torch.logsumexp(_weighted(losses, weights, ideal) / mu, dim=-1)


SCALARISATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": linear,
    "tchebycheff": tchebycheff,
    "smooth-tchebycheff": smooth_tchebycheff,
}


def _weighted(losses: Tensor, weights: Tensor, ideal: float | Tensor) -> Tensor:
    if losses.shape[-1:] != weights.shape[-1:]:
        _refuse(losses, weights)
    return weights * (losses - ideal)


def _refuse(losses: Tensor, weights: Tensor) -> NoReturn:
    """A single weight would silently broadcast over all losses."""
    raise ValueError(f"losses {tuple(losses.shape)} and weights {tuple(weights.shape)} differ in objectives")
