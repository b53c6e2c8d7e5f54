"""Robust aggregation of updates, a few of which may be malicious.

All of them look at the updates of models `[n, d]` from their origin, and read them in blocks.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpareto.moo.box_simplex import box_min_norm_weights
from fedpareto.moo.updates import blocks, gram_of_updates, sum_of_updates

SAME = 1e-9
"""A difference of cosines that is rounding: nobody is discarded for less."""


def trimmed_mean(models: Tensor, origin: Tensor, cut: int) -> Tensor:
    """The mean update `[d]` without the `cut` largest and smallest values of each parameter (Yin et al., 2018).

    With at most `cut` malicious updates each parameter stays within the range of the honest ones; 0 is the plain mean.
    """
    if not 0 <= 2 * cut < len(models):
        raise ValueError(f"of {len(models)} updates, {cut} at each end cannot be left out")
    total = torch.empty(len(origin), dtype=torch.float64, device=origin.device)
    for place, block in blocks(models, origin):
        total[place] = block.sort(dim=0).values[cut : len(models) - cut].mean(dim=0)
    return total


def median(models: Tensor, origin: Tensor) -> Tensor:
    """The median of each parameter, `[d]` (Yin et al., 2018); of an even number, the mean of the middle two."""
    return trimmed_mean(models, origin, (len(models) - 1) // 2)


def krum_scores(gram: Tensor, attackers: int) -> Tensor:
    """The sum of squared distances `[n]` of each update to its n − f − 2 nearest others (Blanchard et al., 2017).

    `gram` are the updates' inner products `[n, n]`, f = `attackers`. At least one neighbour always counts.
    """
    squares = gram.diagonal()
    distances = (squares[:, None] + squares - 2 * gram).clamp_min(0).fill_diagonal_(0)
    neighbours = max(len(gram) - attackers - 2, 1)
    return distances.sort(dim=1).values[:, 1 : neighbours + 1].sum(dim=1)


def krum(gram: Tensor, attackers: int, keep: int = 1) -> list[int]:
    """The positions of the `keep` updates with the best Krum scores, ascending; 1 is Krum, more are Multi-Krum."""
    return sorted(krum_scores(gram, attackers).argsort(stable=True)[:keep].tolist())


def near(updates: Tensor, centre: Tensor, radius: float) -> Tensor:
    """True for updates `[n]` no further from `centre` `[d]` than `radius` times the median of all distances."""
    distances = (updates.double() - centre.double()).norm(dim=1)
    is_near: Tensor = distances <= radius * middle(distances) * (1 + SAME)
    return is_near


def alike(gram: Tensor, weights: Tensor, width: float, widening: float) -> Tensor:
    """True for updates `[n]` that point where most do (Muñoz-González, Co, Lupu, 2019, algorithm 1).

    `gram` are the updates' inner products `[n, n]`. Of each update that is left the cosine with the weighted mean of
    those left is taken, and what lies further than `width` standard deviations from the median is discarded: below it
    if the mean is below the median, for then there is a tail on this side, else above it, where attackers who agree
    are. Then again, with a width that is larger by `widening`, until nothing is discarded.
    """
    kept = torch.ones(len(gram), dtype=torch.bool)
    size = gram.diagonal().clamp_min(0).sqrt()
    while True:
        share = torch.where(kept, weights, torch.zeros_like(weights))
        products = gram @ share
        scale = size * (share @ products).clamp_min(0).sqrt()
        cosines = torch.where(scale > 0, products / scale, torch.zeros_like(scale))
        centre, left = middle(cosines[kept]), cosines[kept]
        away = centre - cosines if left.mean() < centre else cosines - centre
        found = kept & (away > max(width * float(left.std(correction=0)), SAME))
        if not found.any():
            return kept
        kept = kept & ~found
        width += widening


def lengths(models: Tensor, origins: Tensor) -> Tensor:
    """‖model_i − origin_i‖ in double precision, `[n, ...]` for models `[n, ..., d]`."""
    found: Tensor = (models - origins).double().norm(dim=-1)
    return found


def clipped(model: Tensor, origin: Tensor, norm: Tensor) -> Tensor:
    """`model` `[..., d]`, or the point towards it that is as far from `origin` as `norm` `[...]` allows."""
    update = model - origin
    length = update.double().norm(dim=-1)
    share = (norm / length.clamp_min(torch.finfo(torch.float64).tiny)).unsqueeze(-1)
    return torch.where((length <= norm).unsqueeze(-1), model, origin + (update.double() * share).to(update))


def common_descent(models: Tensor, origin: Tensor, epsilon: float) -> Tensor:
    """FedMGDA+'s step `[d]` (Hu et al., 2022, eq. 25) from equal weights, with the median norm of the updates as its
    scale.

    That is ℓ Σ_i λ_i Δ_i / ‖Δ_i‖ with λ the shortest mixture within ε of 1/n, and ℓ the median of the lengths ‖Δ_i‖:
    no client can lengthen the step, and no step size is needed.
    """
    gram = gram_of_updates(models, origin).cpu()
    length = gram.diagonal().clamp_min(0).sqrt()
    scale = torch.where(length > 0, 1 / length, torch.zeros_like(length))
    equal = torch.full_like(length, 1 / len(models))
    weights = torch.as_tensor(box_min_norm_weights((gram * scale[:, None] * scale).numpy(), equal.numpy(), epsilon))
    return sum_of_updates(middle(length) * weights * scale, models, origin)


def middle(values: Tensor) -> Tensor:
    """The median over the first dimension, `[n, ...]` to `[...]`; of an even number the mean of the middle two."""
    ordered = values.sort(dim=0).values
    cut = (len(values) - 1) // 2
    return ordered[cut : len(values) - cut].mean(dim=0)
