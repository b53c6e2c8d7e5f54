"""Probabilities that mean what they say: temperature scaling (Guo et al., "On calibration of modern neural networks",
2017) on rows that were not trained on.
"""

from __future__ import annotations

import torch
from torch import Tensor

COLDEST, HOTTEST = 0.1, 100.0
"""Temperatures lie between these."""
HALVINGS = 40


def inverse_temperature(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """1/T `[n]` with the smallest cross entropy of σ(z/T) over a client's rows, for logits z `[n, k, b]` of k models.

    The cross entropy is convex in 1/T, so the root of its derivative Σ (σ(z/T) − t) z is found by halving. Instead of
    the labels (`[n, 1, b]`, 0 or 1) Platt's targets t are fitted, (N₁ + 1)/(N₁ + 2) and 1/(N₀ + 2) (Platt 1999): of
    few rows nobody can be certain, however well the model separates them. 1 where a client has no rows.
    """
    positives = (labels * mask).sum(-1, keepdim=True)
    negatives = ((1 - labels) * mask).sum(-1, keepdim=True)
    targets = torch.where(labels > 0, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    low = torch.full_like(logits[:, 0, 0], 1 / HOTTEST)
    high = torch.full_like(low, 1 / COLDEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope = (((logits * middle[:, None, None]).sigmoid() - targets) * logits * mask).sum((1, 2))
        low, high = torch.where(slope < 0, middle, low), torch.where(slope < 0, high, middle)
    known = (positives + negatives)[:, 0, 0] > 0
    return torch.where(known, (low + high) / 2, torch.ones_like(low))
