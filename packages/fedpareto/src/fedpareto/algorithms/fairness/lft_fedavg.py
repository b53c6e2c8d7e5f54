"""LFT+FedAvg, locally fair training: FairBatch inside each client, then FedAvg.

A baseline of Zeng, Chen and Lee, "Improving fairness via federated learning", 2021, and of PraFFL.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.algorithms.fairness import fairbatch
from fedpareto.config.bounds import Share
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.groups import comparison_of
from fedpareto.contract.messages import Message


@dataclass(frozen=True)
class LFTFedAvg(FedAvg):
    """FedAvg of models that each client trained to be fair on its own rows. Preferences are not used."""

    name: ClassVar[str] = "lft-fedavg"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "loss reweighted by group, averaging", "accuracy and group-fairness"
    )
    requires: ClassVar[tuple[str, ...]] = ("groups",)

    weight_lr: Share = 0.005
    """α of FairBatch: how much of a label's loss moves between groups after an epoch; 0 is FedAvg on cross entropy."""

    def begin(self, setting: Setting) -> FedAvgState:
        """θ⁰, if there are groups."""
        comparison_of(setting, self.name)
        return super().begin(setting)

    def private_state(self, setting: Setting) -> Message:
        """FairBatch's λ."""
        return fairbatch.private_state(comparison_of(setting, self.name), setting.initial)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← FairBatch from θ."""
        return self._reply(clients, fairbatch.learn(clients, message["model"], self.weight_lr, self.name))
