"""Differentiable relaxations of the gaps, for training."""

from __future__ import annotations

import torch
from torch import Tensor

from fedpareto.problems.fairness.gaps import (
    CONDITIONS,
    SENSITIVE,
    gap,
    gap_slopes,
    members,
    relaxed_decisions,
    relaxed_slopes,
)
from fedpareto.tensors.rows import Batch

RELAXATIONS = ("tanh", "tanh-halved", "tanh-masked", "covariance")

STEEPNESS = {"demographic-parity": 1.5, "equal-opportunity": 2.5, "equalised-odds": 2.5}
"""c of the tanh relaxation: Padh et al. (2021), whose tanh(3·(f − ½)) and tanh(5·(f − ½)) these are in eq. 5.5."""


def relaxed_gap(
    relaxation: str,
    notion: str,
    logits: Tensor,
    batch: Batch,
    sensitive: str = SENSITIVE,
    groups: int = 2,
    steepness: float = 0.0,
) -> Tensor:
    """A gap `[n]` of the predictions `logits` `[n, b]` that has a gradient; 0 without a gradient where it is unknown.

    With f = sigmoid(logit) and t = tanh(c·max(0, 2f − 1)):

    - "tanh": the gap of t, which tends to the metric as c grows;
    - "tanh-halved": the gap of t/2 + ½, eq. 5.5 of the thesis as printed, half of the former;
    - "tanh-masked": the gap of t/2 + ½ where f > ½ and of 0 elsewhere, as in the code of Padh et al.: it tends to the
      metric too, but jumps where a decision turns;
    - "covariance": see `covariance`; it does not use c.

    `steepness` is c; 0 means the notion's own.
    """
    if relaxation == "covariance":
        return covariance(notion, logits, batch, sensitive, groups)
    decisions = _named(relaxation, relaxed_decisions(logits, steepness or STEEPNESS[notion]), logits)
    return gap(notion, decisions, batch, sensitive, groups).size


def relaxed_gap_slopes(
    relaxation: str, notion: str, logits: Tensor, batch: Batch, sensitive: str, groups: int, steepness: float
) -> Tensor:
    """∂relaxed_gap/∂logits, `[n, b]`, of the relaxations by tanh, written out."""
    decisions, slopes = relaxed_slopes(logits, steepness or STEEPNESS[notion])
    slopes = gap_slopes(notion, _named(relaxation, decisions, logits), batch, sensitive, groups) * slopes
    return slopes if relaxation == "tanh" else slopes / 2


def _named(relaxation: str, decisions: Tensor, logits: Tensor) -> Tensor:
    """t as a relaxation by tanh takes it; see `relaxed_gap`."""
    if relaxation == "tanh":
        return decisions
    halved = decisions / 2 + 0.5
    return halved if relaxation == "tanh-halved" else halved * (logits > 0)


def covariance(notion: str, logits: Tensor, batch: Batch, sensitive: str = SENSITIVE, groups: int = 2) -> Tensor:
    """mean_i [(s_i − s̄)(z_i − z̄)]² with z the logit: the term in the code of PraFFL (Ye & Tang, 2024), `[n]`.

    It is no relaxation of a gap: it is not bounded by 1, and it is 0 only if nothing varies. PraFFL sums it over the
    two logits of its classifier, ours has one. For more than two groups it is half the sum over the indicators of the
    groups, which for two is the same. Conditional notions take the rows with the label, equalised odds the larger
    value of its two.
    """
    terms = []
    for label in CONDITIONS[notion]:
        counted = members(batch, label, sensitive, groups)  # [n, groups, b]
        known = ((counted.sum(-1) > 0).sum(-1) >= 2).to(logits.dtype)
        rows = counted.sum(-2)
        total = rows.sum(-1, keepdim=True).clamp_min(1)
        away = logits - (logits * rows).sum(-1, keepdim=True) / total
        share = counted.sum(-1, keepdim=True) / total.unsqueeze(-1)
        products = (counted - share) * away.unsqueeze(-2) * rows.unsqueeze(-2)
        terms.append(known * products.square().sum((-1, -2)) / (2 * total.squeeze(-1)))
    return torch.stack(terms).amax(0)
