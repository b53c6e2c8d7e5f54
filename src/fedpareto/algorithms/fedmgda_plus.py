"""FedMGDA+: Hu et al., "Federated learning meets multi-objective optimization", 2022, algorithm 1.

Each client's loss is an objective. The server walks along the shortest mixture of the clients' directions, which
descends for all who take part, and which neither an added constant nor a factor on a client's loss can change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms.common_descent import CommonDescent
from fedpareto.core.algorithm import Taxonomy
from fedpareto.errors import UserError
from fedpareto.moo.box_simplex import box_min_norm_weights
from fedpareto.moo.min_norm import Array


@dataclass(frozen=True)
class FedMGDAPlus(CommonDescent):
    """One global model: w ← w − η_t d_t with d_t the shortest mixture of normalised updates within ε of λ0."""

    name: ClassVar[str] = "fedmgda-plus"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, MGDA over normalised clients", "arbitrary"
    )

    epsilon: float = 0.1
    """ε: how far a client's weight may be from λ0; 0 is FedAvg-n, 1 leaves the weights free."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.epsilon <= 1:
            raise UserError(f"epsilon is {self.epsilon}; it is between 0 (fixed weights) and 1 (free weights)")

    def _weigh(self, gram: Array, shares: Array) -> Array:
        """λ* = argmin ‖Σ_i λ_i ḡ_i‖² over the simplex with ‖λ − λ0‖_∞ ≤ ε (eq. 25, line 6)."""
        return box_min_norm_weights(gram, shares, self.epsilon)
