"""FedMGDA+: Hu et al., "Federated learning meets multi-objective optimization", 2022, algorithm 1.

Each client's loss is an objective. The server steps along the shortest mixture of the clients' directions. It is a
descent direction for all participants, and neither an added constant nor a factor on a client's loss changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms.common_descent.fedmgda import FedMGDA
from fedpareto.contract.algorithm import Taxonomy


@dataclass(frozen=True)
class FedMGDAPlus(FedMGDA):
    """One global model: w ← w − η_t d_t with d_t the shortest mixture of normalised updates within ε of λ0.

    FedMGDA on directions, ḡ_i = g_i / ‖g_i‖ (line 5): λ* = argmin ‖Σ_i λ_i ḡ_i‖² over the simplex with
    ‖λ − λ0‖_∞ ≤ ε (eq. 25, line 6).
    """

    name: ClassVar[str] = "fedmgda-plus"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, MGDA over normalised clients", "arbitrary"
    )
    normalises: ClassVar[bool] = True

    epsilon: float = 0.1
    """ε: how far a client's weight may be from λ0; 0 is FedAvg-n, 1 leaves the weights free."""
