"""FedAvg-n: FedAvg of normalised updates, a baseline of Hu et al., "Federated learning meets multi-objective
optimization", 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms.common_descent import CommonDescent
from fedpareto.core.algorithm import Taxonomy
from fedpareto.moo.min_norm import Array


@dataclass(frozen=True)
class FedAvgN(CommonDescent):
    """w ← w − η_t Σ_i λ0_i g_i / ‖g_i‖: no client's step is longer than another's."""

    name: ClassVar[str] = "fedavg-n"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "baseline", "linearised preferences, averaging of normalised updates", "arbitrary"
    )

    def _weigh(self, gram: Array, shares: Array) -> Array:
        """λ0."""
        return shares
