"""Common parts of FedRep and FedPer: the first layers are everybody's, the last ones each client's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import Whole
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Shapes


@dataclass(frozen=True)
class OwnHead(FedAvg):
    """FedAvg of the body φ, the first layers of the model; the last ones, the head h_i, stay private to each client.

    "model" in messages is the body: heads never leave their clients.
    """

    personalised: ClassVar[bool] = True

    head_layers: Whole = 1
    """Layers at the end of the model that are private to the client; 0 is FedAvg, all of them local training."""

    def begin(self, setting: Setting) -> FedAvgState:
        """φ⁰, the first layers of the initial model."""
        return FedAvgState(setting, model=setting.initial[: self._body(setting)].clone())

    def private_state(self, setting: Setting) -> Message:
        """h_i, the last layers of the initial model."""
        return {"head": setting.initial[self._body(setting) :].clone()}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained body, and its number of rows where weights need it."""
        shapes = super().reply_shapes(setting)["train"]
        return {"train": {**shapes, "model": (self._body(setting),)}}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """(φ, h_i)."""
        return torch.cat([message["model"], clients.state["head"]], dim=1)

    def _body(self, setting: Setting) -> int:
        """The number of parameters of the body."""
        return setting.layout.cut(self.head_layers)[0].size
