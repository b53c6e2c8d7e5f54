"""FedAMP: Huang et al., "Personalized cross-silo federated learning on non-IID data", 2021, algorithm 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms._shared.proximal import Pulled
from fedpareto.config.bounds import Positive
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.moo.updates import gram_of_updates


@dataclass(frozen=True)
class FedAMP(Pulled):
    """Attentive message passing: each client is pulled towards a mixture u_i of all models, in which similar ones have
    more weight.

    u_i = Σ_j ξ_ij θ_j with ξ_ij = α exp(−‖θ_i − θ_j‖² / σ) / σ for j ≠ i, and ξ_ii the rest to one. The client
    minimises f^i(θ) + λ/(2α) ‖θ − u_i‖².
    """

    name: ClassVar[str] = "fedamp"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, personal models near similar ones",
        "arbitrary",
    )

    sigma: Positive = 1.0
    """σ: how far apart models may be and still influence one another; near 0 is local training."""
    cloud_step: Positive = 1.0
    """α, the step of the server: how much weight the others have in u_i. A client's own share never falls below 1/n."""
    distances: Literal["absolute", "relative"] = "absolute"
    """Scale of squared distances: as they are, as in the paper, or divided by their mean over all pairs."""

    def pulls(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """λ/α for every client, and u_1 … u_n."""
        strengths = models.new_full((len(models),), self.strength / self.cloud_step)
        return strengths, self.attention(models).to(models) @ models

    def attention(self, models: Tensor) -> Tensor:
        """ξ, `[n, n]`, rows summing to one, of `models` `[n, d]`."""
        apart = squared_distances(models)
        n = len(models)
        if self.distances == "relative" and apart.sum() > 0:
            apart = apart * (n * (n - 1) / apart.sum())
        # In logarithms: no σ is too small. The paper asks for an α that leaves ξ_ii positive; here it always is.
        logits = math.log(self.cloud_step) - math.log(self.sigma) - apart / self.sigma
        logits = logits.fill_diagonal_(-math.inf)
        excess = (logits.logsumexp(dim=1, keepdim=True) - math.log1p(-1 / max(n, 2))).clamp_min(0)
        others = (logits - excess).exp()
        return others + torch.diag(1 - others.sum(dim=1))


def squared_distances(models: Tensor) -> Tensor:
    """‖θ_i − θ_j‖² of each pair of rows, `[n, d]` to `[n, n]`, in double precision."""
    # Centred on their mean, to avoid cancellation.
    products = gram_of_updates(models, models.mean(dim=0))
    squares = products.diagonal()
    return (squares[:, None] + squares - 2 * products).clamp_min(0).fill_diagonal_(0)
