"""pFedMe: Dinh, Tran and Nguyen, "Personalized federated learning with Moreau envelopes", 2020, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.config.bounds import Count, Positive
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Pull
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks


@dataclass(frozen=True)
class PFedMe(Algorithm[FedAvgState]):
    """Every client has θ_i, the least of f^i(θ) + λ/2 ‖θ − w‖²; the global model w descends the mean of these minima.

    The gradient of such a minimum (the Moreau envelope of f^i) at w is λ(w − θ_i), so no second derivative is needed.
    θ_i never leaves its client. In the paper each θ_i is found by a few steps on one minibatch; here by one local
    training, with the learner's own steps or epochs.
    """

    name: ClassVar[str] = "pfedme"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging around personal models",
        "arbitrary",
    )
    needs: ClassVar[Needs] = "weighted sum"
    sums: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    personalised: ClassVar[bool] = True

    strength: Positive = 15.0
    """λ: how near a personal model is to its client's w_i; the paper has 15 to 20."""
    local_rounds: Count = 2
    """R: how often, in a round, θ_i is found and w_i moved."""
    local_lr: Positive = 0.01
    """η: w_i moves by ηλ(θ_i − w_i); at ηλ = 1 it is θ_i."""
    beta: Positive = 1.0
    """β: the server moves by this share of the way to the mean of the w_i; above 1 beyond it, as in the paper."""

    def begin(self, setting: Setting) -> FedAvgState:
        """w⁰."""
        return FedAvgState(setting, model=setting.initial)

    def private_state(self, setting: Setting) -> Message:
        """θ_i."""
        return {"own": setting.initial}

    def ask(self, state: FedAvgState) -> list[Tasks]:
        """Every participant begins at w."""
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """R times: θ_i ≈ argmin f^i(θ) + λ/2 ‖θ − w_i‖² (line 7), w_i ← w_i − ηλ(w_i − θ_i) (line 8)."""
        own, local = clients.state["own"], message["model"]
        for number in range(self.local_rounds):
            # Minibatches of its own each time.
            again = replace(clients, addresses=clients.addresses.with_lane(number))
            own = again.learn(own, pull=Pull(self.strength, local))
            local = local - self.local_lr * self.strength * (local - own)
        clients.state["own"] = own
        return {"model": local}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """w_i, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """w ← (1 − β) w + β mean of w_i (line 12)."""
        model = torch.lerp(state.model, replies.mean("model"), self.beta)
        return replace(state, model=model, round=state.round + 1)

    def solutions(self, state: FedAvgState) -> Parcels:
        """w; a client keeps its own model."""
        return to_everyone(state, model=state.model)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """θ_i."""
        return clients.state["own"]
