"""FedProx: Li et al., "Federated optimization in heterogeneous networks", 2020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.bounds import NotNegative
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Pull
from fedpareto.contract.messages import Message


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients minimise f^i(θ) + μ/2 ‖θ − θ^t‖², so that they stay near the global model θ^t."""

    name: ClassVar[str] = "fedprox"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging with a proximal term", "arbitrary"
    )

    mu: NotNegative = 0.1
    """μ, the strength of the proximal term; 0 is FedAvg."""

    def train(self, clients: Clients, message: Message) -> Message:
        """Local training with the proximal term's gradient μ(θ − θ^t)."""
        anchor = message["model"]
        model = clients.learn(anchor, pull=Pull(self.mu, anchor) if self.mu else None)
        return self._reply(clients, model)
