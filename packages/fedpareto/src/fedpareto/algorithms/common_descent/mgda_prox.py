"""MGDA-Prox: FedMGDA+ after FedProx's local training, an extension in Hu et al., "Federated learning meets
multi-objective optimization", 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms.averaging.fedprox import FedProx
from fedpareto.algorithms.common_descent.fedmgda_plus import FedMGDAPlus
from fedpareto.contract.algorithm import Taxonomy


@dataclass(frozen=True)
class MGDAProx(FedMGDAPlus, FedProx):
    """The server of FedMGDA+ and the clients of FedProx, which minimise f_i(w) + μ/2 ‖w − w_t‖²."""

    name: ClassVar[str] = "mgda-prox"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation",
        "clients as objectives",
        "linearised preferences with a proximal term, MGDA over normalised clients",
        "arbitrary",
    )
