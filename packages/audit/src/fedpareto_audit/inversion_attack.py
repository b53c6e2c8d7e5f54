"""Rows from a gradient: in closed form where the first layer is linear, by optimisation elsewhere.

A linear layer's weight gradient is Σ_i x_i δ_i and its bias gradient Σ_i δ_i (Phong et al., "Privacy-preserving deep
learning via additively homomorphic encryption", 2018): a unit that only one row excites has that row in their ratio.
Elsewhere Geiping et al., "Inverting gradients: how easy is it to break privacy in federated learning?", 2020: rows
whose gradient points the same way, and images that are smooth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

QUIET = 1e-6
"""A unit whose bias gradient is below this share of the largest tells nothing."""
ALIKE = 0.05
"""Two units agree on a row if their rows are this close, relative to their length."""
TOLERANCE = 0.1
"""A feature is recovered if it is this close, in its own standard deviations or as one of two values."""
EXACT = 60.0
"""Decibels from which an image is the image: an error of a thousandth of the range."""

GradientOf = Callable[[Tensor, Tensor], Tensor]
"""The gradients `[n, c]` of rows `[n, b, ...]` under logits of a preference, `[n, m]`; can be differentiated again."""


def rows_of_linear(weight: Tensor, bias: Tensor, count: int) -> Tensor:
    """`count` rows `[count, in]` behind the gradients of a linear layer, `[in, out]` and `[out]`.

    Units that agree on a row are taken together; the rows on which most units agree come first, then those of single
    units, the loudest first. With one row all units have it.
    """
    if count == 1:
        return _least_squares(weight, bias).unsqueeze(0)
    loud = torch.nonzero(bias.abs() > QUIET * bias.abs().max()).flatten()
    loud = loud[bias[loud].abs().argsort(descending=True)]
    if not len(loud):
        return weight.new_zeros(count, len(weight))
    weight, bias = weight[:, loud], bias[loud]
    rows = (weight / bias).mT
    length = rows.norm(dim=1)
    agree = torch.cdist(rows, rows) <= ALIKE * torch.minimum(length[:, None], length)
    left = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
    found: list[Tensor] = []
    while len(found) < count and left.any():
        votes = (agree & left).sum(1) * left
        group = agree[int(votes.argmax())] & left
        found.append(_least_squares(weight[:, group], bias[group]))
        left &= ~group
    missing = count - len(found)
    return torch.stack([*found, *([_least_squares(weight, bias)] * missing)])


def _least_squares(weight: Tensor, bias: Tensor) -> Tensor:
    """x for which x·bias is nearest to `weight`."""
    return weight @ bias / bias.square().sum().clamp_min(torch.finfo(bias.dtype).tiny)


@dataclass(frozen=True)
class Search:
    """The length and smoothness of a search for rows whose gradient fits."""

    steps: int = 200
    lr: float = 0.1
    """The first step of Adam on signs, as a share of a feature's range; it falls to 0."""
    variation: float = 0.01
    """Weight of the total variation of images."""


def matched(
    gradient_of: GradientOf,
    target: Tensor,
    start: Tensor,
    objectives: int,
    lowest: Tensor,
    highest: Tensor,
    how: Search,
) -> tuple[Tensor, Tensor]:
    """Rows `[n, b, ...]` whose gradients point along `target` `[n, c]`, and how far they are from it, 1 − cos `[n]`.

    The preference under which they were made is searched with them. The best rows of the whole search are returned.
    """
    width = highest - lowest
    place = ((start - lowest) / width).detach().clone().requires_grad_()
    wants = target.new_zeros(len(target), objectives).requires_grad_()
    optimiser = torch.optim.Adam([{"params": [place], "lr": how.lr}, {"params": [wants], "lr": how.lr}])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, how.steps)
    best, rows = torch.full((len(target),), math.inf, device=target.device), start.clone()
    for _ in range(how.steps):
        optimiser.zero_grad()
        apart = 1 - torch.cosine_similarity(gradient_of(lowest + width * place, wants), target, dim=1)
        better = apart.detach() < best
        best = torch.where(better, apart.detach(), best)
        rows[better] = (lowest + width * place.detach())[better]
        (apart.sum() + how.variation * _variation(place)).backward()  # type: ignore[no-untyped-call]
        assert place.grad is not None, "gradients depend on rows"
        place.grad.sign_()
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            place.clamp_(0, 1)
    return rows, best


def _variation(rows: Tensor) -> Tensor:
    """The total variation of images `[n, b, ..., height, width]`, summed over n; none of tables."""
    if rows.dim() < 4:
        return rows.new_zeros(())
    across, down = (rows.diff(dim=dimension).abs().flatten(1).mean(1).sum() for dimension in (-1, -2))
    return across + down


# -- how much was recovered ----------------------------------------------------------------------------------------


def paired(found: Tensor, true: Tensor) -> Tensor:
    """Order what was found `[k, ...]` like the true rows `[b, ...]`, k ≥ b, each pair as near as possible."""
    from scipy.optimize import linear_sum_assignment

    distances = torch.cdist(true.flatten(1).double(), found.flatten(1).double()).square()
    _, columns = linear_sum_assignment(distances.cpu().numpy())
    return found[torch.as_tensor(np.asarray(columns), device=found.device)]


def features_recovered(found: Tensor, true: Tensor, deviation: Tensor) -> Tensor:
    """Share `[b]` of each row's features that are within the tolerance."""
    near = (found - true).abs() <= TOLERANCE * deviation
    return near.flatten(1).double().mean(1)


def peak_signal_to_noise(found: Tensor, true: Tensor, width: float) -> Tensor:
    """Decibels `[b]` of each image: 10 log₁₀ of the squared range over the mean squared error, at most EXACT."""
    squared = (found - true).double().square().flatten(1).mean(1) / width**2
    return -10 * torch.log10(squared.clamp_min(10 ** (-EXACT / 10)))
