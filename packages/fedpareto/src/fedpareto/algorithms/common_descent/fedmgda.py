"""FedMGDA: MGDA with clients as objectives, the plain version in Hu et al., "Federated learning meets multi-objective
optimization", 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms.common_descent.fedmgda_plus import FedMGDAPlus
from fedpareto.config.bounds import Share
from fedpareto.contract.algorithm import Taxonomy


@dataclass(frozen=True)
class FedMGDA(FedMGDAPlus):
    """One global model: w ← w − η_t d_t with d_t the shortest mixture of the clients' updates as they are."""

    name: ClassVar[str] = "fedmgda"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, MGDA over clients", "arbitrary"
    )
    normalises: ClassVar[bool] = False

    epsilon: Share = 1.0
    """ε: how far a client's weight may be from λ0 (eq. 25); 1 leaves the weights free, 0 is FedAvg."""
