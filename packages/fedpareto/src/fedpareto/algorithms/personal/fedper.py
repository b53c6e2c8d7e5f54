"""FedPer: Arivazhagan et al., "Federated learning with personalization layers", 2019, algorithms 1 and 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms._shared.own_head import OwnHead
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message


@dataclass(frozen=True)
class FedPer(OwnHead):
    """FedAvg of the base layers; base and personal layers are trained together, by the same steps."""

    name: ClassVar[str] = "fedper"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging of the first layers", "arbitrary"
    )

    def train(self, clients: Clients, message: Message) -> Message:
        """(φ_i, h_i) ← local training from (φ, h_i)."""
        model = clients.learn(self.personal(clients, message))
        body = message["model"].shape[1]
        clients.state["head"] = model[:, body:]
        return self._reply(clients, model[:, :body])
