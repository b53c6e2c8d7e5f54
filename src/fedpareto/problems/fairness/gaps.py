"""Gaps between two groups, as metrics and as differentiable relaxations, over a stack of clients.

A rate of a group that has no row is unknown, and so is every gap with it. Such a gap is given as 0 with no gradient:
a batch without one of the groups then teaches nothing about fairness, rather than something false.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedpareto.core.problem import Batch

Gap = Callable[[Tensor, Batch], Tensor]
"""From decisions `[n, b]` (hard or relaxed) to the gaps of n clients `[n]`, each between −1 and 1."""


def demographic_parity_gap(decisions: Tensor, batch: Batch) -> Tensor:
    """DDP, eq. 5.4: P(ŷ = 1 | s = 0) − P(ŷ = 1 | s = 1)."""
    return _rate_gap(decisions, batch.columns["sensitive"], batch.mask)


def equal_opportunity_gap(decisions: Tensor, batch: Batch) -> Tensor:
    """DEO, eq. 5.2: the same among the rows whose true label is 1."""
    return _rate_gap(decisions, batch.columns["sensitive"], batch.mask * batch.columns["label"])


GAPS: dict[str, Gap] = {
    "demographic-parity": demographic_parity_gap,
    "equal-opportunity": equal_opportunity_gap,
}


def relaxed_decisions(logits: Tensor, steepness: float) -> Tensor:
    """tanh(c·max(0, 2f − 1)) with f the predicted probability: eq. 5.5 without its halving.

    It tends to the decision f > ½ as c grows; eq. 5.5 as printed, halved and shifted, tends to half the gap.
    """
    return torch.tanh(steepness * (2 * torch.sigmoid(logits) - 1).clamp_min(0))


def hard_decisions(logits: Tensor) -> Tensor:
    """1 where the predicted probability exceeds ½."""
    return (logits > 0).to(logits.dtype)


def _rate_gap(decisions: Tensor, sensitive: Tensor, counted: Tensor) -> Tensor:
    first, second = counted * (1 - sensitive), counted * sensitive
    of_first, of_second = first.sum(-1), second.sum(-1)
    gap = (decisions * first).sum(-1) / of_first.clamp_min(1) - (decisions * second).sum(-1) / of_second.clamp_min(1)
    return gap * ((of_first > 0) & (of_second > 0))
