"""FedDyn: Acar et al., "Federated learning based on dynamic regularization", 2021, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.config.bounds import Positive
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Pull
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks


@dataclass(frozen=True)
class FedDynState(FedAvgState):
    """The global model θ, and h, how far clients would still go, `[d]` each."""

    drift: Tensor = torch.empty(0)


@dataclass(frozen=True)
class FedDyn(Algorithm[FedDynState]):
    """One global model; each client's loss is changed so that where all of them stand still is where the mean does.

    Client i minimises f^i(θ_i) − ∇_i · θ_i + α/2 ‖θ_i − θ‖², where ∇_i, the gradient of its own loss at its last
    model, stays with it: at a common minimum these gradients cancel, which the mean of local minima does not.
    """

    name: ClassVar[str] = "feddyn"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging with dynamic regularisers",
        "arbitrary",
    )
    needs: ClassVar[Needs] = "weighted sum"
    sums: ClassVar[bool] = True
    waits: ClassVar[str] = "a client's regulariser follows from the model that everybody was sent"

    alpha: Positive = 0.1
    """α, the strength of the regulariser; the paper has 0.001 to 0.1."""

    def begin(self, setting: Setting) -> FedDynState:
        """θ⁰ and h = 0."""
        return FedDynState(setting, model=setting.initial, drift=torch.zeros_like(setting.initial))

    def private_state(self, setting: Setting) -> Message:
        """∇_i = 0."""
        return {"gradient": torch.zeros_like(setting.initial)}

    def ask(self, state: FedDynState) -> list[Tasks]:
        """Every participant trains from θ."""
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_i ← argmin f^i(θ_i) − ∇_i · θ_i + α/2 ‖θ_i − θ‖², then ∇_i ← ∇_i − α (θ_i − θ)."""
        received, gradient = message["model"], clients.state["gradient"]
        model = clients.learn(received, pull=Pull(self.alpha, received, -gradient))
        clients.state["gradient"] = gradient - self.alpha * (model - received)
        return {"model": model}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: FedDynState, replies: Replies) -> FedDynState:
        """h ← h − α/N Σ_i (θ_i − θ) over the participants, θ ← mean of θ_i − h/α."""
        mean = replies.mean("model")
        share = len(replies) / len(state.setting.clients)
        drift = state.drift - self.alpha * share * (mean - state.model)
        return replace(state, model=mean - drift / self.alpha, drift=drift, round=state.round + 1)

    def solutions(self, state: FedDynState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)
