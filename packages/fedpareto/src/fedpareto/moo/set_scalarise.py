"""From the losses of K models for n clients to one number: the worst client's loss under its best model.

`losses` is `[n, K]`; `weights` λ is `[n]`, the importance of each client. Smooth Tchebycheff set scalarisation: Lin et
al., "Few for many: Tchebycheff set scalarization for many-objective optimization", 2025.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpareto.config.errors import UserError


def smooth_tchebycheff_set(losses: Tensor, weights: Tensor, mu: float) -> Tensor:
    """μ log Σ_i (Σ_k exp(−λ_i L_ik / μ))⁻¹, a smooth max_i min_k λ_i L_ik; eq. 9 of FedFew where λ = 1."""
    return mu * torch.logsumexp(_smooth_minimum(_weighted(losses, weights, mu), mu) / mu, dim=0)


def set_weights(losses: Tensor, weights: Tensor, mu: float) -> tuple[Tensor, Tensor]:
    """α `[n]` and w `[n, K]`, eqs. 11 and 12 of FedFew: α_i w_ik is the derivative of eq. 9 by λ_i L_ik.

    α and every row of w sum to 1. As μ goes to 0, w_i becomes the choice of the best model for client i, and α the
    choice of the client that is served worst. Differences are taken before the division by μ, so no μ is too small.
    """
    weighted = _weighted(losses, weights, mu)
    inner = torch.softmax((weighted.amin(dim=1, keepdim=True) - weighted) / mu, dim=1)
    served = _smooth_minimum(weighted, mu)
    return torch.softmax((served - served.amax()) / mu, dim=0), inner


def _smooth_minimum(weighted: Tensor, mu: float) -> Tensor:
    """−μ log Σ_k exp(−L_ik / μ) `[n]`, eq. 8."""
    least = weighted.amin(dim=1, keepdim=True)
    return least.squeeze(1) - mu * torch.logsumexp((least - weighted) / mu, dim=1)


def _weighted(losses: Tensor, weights: Tensor, mu: float) -> Tensor:
    if not mu > 0:
        raise UserError(f"mu: the smoothing must be a positive number, got {mu}")
    return weights[:, None] * losses
