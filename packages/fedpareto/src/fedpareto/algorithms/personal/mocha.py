"""MOCHA: Smith et al., "Federated multi-task learning", 2017: its problem, solved by local training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms._shared.proximal import Pulled
from fedpareto.config.bounds import Positive
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.moo.updates import gram_of_updates


@dataclass(frozen=True)
class MOCHA(Pulled):
    """Each client is a task: min Σ_i f^i(θ_i) + λ tr(W Ω Wᵀ), where W has the models as columns.

    Ω describes how clients are related. The regulariser's gradient at θ_i is 2λ Σ_j Ω_ij θ_j, a pull of strength 2λ
    Ω_ii towards −Σ_{j≠i} Ω_ij θ_j / Ω_ii, in which the others are fixed during a round.
    """

    name: ClassVar[str] = "mocha"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "multi-task", "linearised preferences, personal models related by a matrix", "arbitrary"
    )

    strength: float = 0.5
    """λ, the weight of the regulariser; 0 is local training."""
    relation: Literal["mean", "learned"] = "mean"
    """Ω: I − 11ᵀ/n, which pulls each client towards the mean of the others, or learned from the models in every
    round.
    """
    ridge: Positive = 0.01
    """Ridge of the learned Ω, added to the covariance of the models, so that equal clients do not stay tied together.
    """

    def pulls(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """2λ Ω_ii, and −Σ_{j≠i} Ω_ij θ_j / Ω_ii."""
        relation = learned_relation(models, self.ridge) if self.relation == "learned" else mean_relation(models)
        own = relation.diagonal().clamp_min(torch.finfo(relation.dtype).tiny)
        return 2 * self.strength * own, models - (relation / own[:, None]).to(models) @ models


def mean_relation(models: Tensor) -> Tensor:
    """Ω = I − 11ᵀ/n: tr(W Ω Wᵀ) = Σ_i ‖θ_i − mean‖²."""
    n = len(models)
    return torch.eye(n, dtype=torch.float64, device=models.device) - 1 / n


def learned_relation(models: Tensor, ridge: float) -> Tensor:
    """Ω ∝ (C + ridge·I)^(−1/2) with C = WᵀW / tr(WᵀW), scaled to the trace n − 1 of `mean_relation`.

    Without ridge and but for the scale, that is the Ω that minimises tr(W Ω Wᵀ) where tr Ω⁻¹ is given (Zhang and Yeung,
    "A convex formulation for learning task relationships in multi-task learning", 2010). Equal models give the mean
    relation as the ridge goes to 0.
    """
    products = gram_of_updates(models, torch.zeros_like(models[0]))
    n, trace = len(models), products.trace()
    covariance = products / trace if trace > 0 else products
    values, vectors = torch.linalg.eigh(covariance)
    relation: Tensor = (vectors / (values.clamp_min(0) + ridge).sqrt()) @ vectors.T
    return relation * ((n - 1) / relation.trace())
