"""FedAvg: McMahan et al., "Communication-efficient learning of deep networks from decentralized data", 2017."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.contract.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks


@dataclass(frozen=True)
class FedAvgState(State):
    """The global model θ, `[d]`."""

    model: Tensor = torch.empty(0)


@dataclass(frozen=True)
class FedAvg(Algorithm[FedAvgState]):
    """One global model: the mean of the clients' models after local training."""

    name: ClassVar[str] = "fedavg"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging", "arbitrary"
    )
    averages: ClassVar[bool] = True
    needs: ClassVar[Needs] = "weighted sum"
    sums: ClassVar[bool] = True

    weighting: Literal["size", "equal"] = "size"
    """Weighting of clients: by their number of training rows (`size`), as in the paper, or equally."""

    def begin(self, setting: Setting) -> FedAvgState:
        """θ⁰."""
        return FedAvgState(setting, model=setting.initial)

    def ask(self, state: FedAvgState) -> list[Tasks]:
        """Every participant trains from θ."""
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← local training from θ under the client's own preference."""
        return self._reply(clients, clients.learn(message["model"]))

    def _reply(self, clients: Clients, model: Tensor) -> Message:
        """The trained model, and its number of rows where weights need it."""
        return {"model": model} | ({"size": clients.sizes} if self.weighting == "size" else {})

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and its number of rows where weights need it."""
        size: Shapes = {"size": ()} if self.weighting == "size" else {}
        return {"train": {"model": (setting.layout.size,), **size}}

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """θ ← Σ_i n_i θ_i / Σ_i n_i."""
        model = replies.weighted_mean("model", self._weights(state, replies))
        return replace(state, model=model, round=state.round + 1)

    def _shares(self, state: FedAvgState, replies: Replies) -> Tensor:
        """n_i / Σ n, or equal weights."""
        weights = self._weights(state, replies)
        return weights / weights.sum()

    def _weights(self, state: FedAvgState, replies: Replies) -> Tensor:
        """n_i, or 1."""
        return replies["size"] if self.weighting == "size" else state.model.new_ones(len(replies))

    def solutions(self, state: FedAvgState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)
