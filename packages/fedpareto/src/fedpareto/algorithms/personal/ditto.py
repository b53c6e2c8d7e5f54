"""Ditto: Li et al., "Ditto: fair and robust federated learning through personalization", 2021, algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpareto.algorithms._shared.local_loss import supervised
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.bounds import NotNegative
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Pull
from fedpareto.contract.messages import Message


@dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg, and beside it a personal model v_i of each client that minimises f^i(v) + λ/2 ‖v − θ‖².

    The global model θ is FedAvg's: v_i never leaves its client. Both are trained on the same minibatches.
    """

    name: ClassVar[str] = "ditto"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging and personal models near the mean",
        "arbitrary",
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    personalised: ClassVar[bool] = True

    strength: NotNegative = 1.0
    """λ: how strongly a personal model is pulled towards the global one; 0 is local training."""

    def private_state(self, setting: Setting) -> Message:
        """v_i."""
        return {"own": setting.initial}

    def train(self, clients: Clients, message: Message) -> Message:
        """Local training of θ, and v ← v − η(∇f(v) + λ(v − θ)) from the θ that was sent."""
        supervised(clients, self.name)  # A reinforcement learner keeps state for one model, not two.
        received = message["model"]
        pull = Pull(self.strength, received) if self.strength else None
        clients.state["own"] = clients.learn(clients.state["own"], pull=pull)
        return self._reply(clients, clients.learn(received))

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """v_i."""
        return clients.state["own"]
