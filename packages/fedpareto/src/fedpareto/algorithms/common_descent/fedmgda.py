"""FedMGDA: MGDA with clients as objectives, the plain version in Hu et al., "Federated learning meets multi-objective
optimization", 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms._shared.descent_step import CommonDescent
from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.config.bounds import Share
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.messages import Replies
from fedpareto.moo.box_simplex import box_min_norm_weights
from fedpareto.moo.min_norm import Array


@dataclass(frozen=True)
class FedMGDA(CommonDescent):
    """One global model: w ← w − η_t d_t with d_t the shortest mixture of the clients' updates as they are."""

    name: ClassVar[str] = "fedmgda"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, MGDA over clients", "arbitrary"
    )
    normalises: ClassVar[bool] = False

    epsilon: Share = 1.0
    """ε: how far a client's weight may be from λ0 (eq. 25); 1 leaves the weights free, 0 is FedAvg."""

    def _weigh(self, state: FedAvgState, replies: Replies, gram: Array, shares: Array) -> Array:
        """λ* = argmin ‖Σ_i λ_i g_i‖² over the simplex (eq. 23, 25); of equally good weights those nearest λ0."""
        return box_min_norm_weights(gram, shares, self.epsilon)
