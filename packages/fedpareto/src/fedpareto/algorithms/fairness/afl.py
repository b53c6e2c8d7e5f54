"""AFL: Mohri, Sivek and Suresh, "Agnostic federated learning", 2019.

A model for the worst mixture of the clients: clients train, and the server gives clients with high losses more weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms._shared import worst_mixture
from fedpareto.algorithms._shared.worst_mixture import MixtureState
from fedpareto.config.bounds import NotNegative
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part


@dataclass(frozen=True)
class AFLState(MixtureState):
    """The global model, its mean over the rounds, and the mixture of clients that it is trained for."""

    mean: Tensor = torch.empty(0)
    """The mean of w over all rounds so far, `[d]`; before the first, w⁰."""


@dataclass(frozen=True)
class AFL(Algorithm[AFLState]):
    """min_w max_λ Σ_k λ_k F_k(w) over the simplex, by alternating steps: w descends for λ, λ ascends for the losses of
    w.

    F_k is the client's own objective: its losses, scalarised under its preference. The server learns its value. Meant
    for few clients that always take part: the weights of absent ones change by projection only.
    """

    name: ClassVar[str] = "afl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation",
        "multi-criteria aggregation",
        "linearised preferences, averaging for the worst mixture",
        "arbitrary",
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    needs: ClassVar[Needs] = "weighted sum"
    reveals: ClassVar[tuple[str, ...]] = ("loss_before",)

    weight_lr: NotNegative = 0.1
    """γ_λ, the step size of λ's ascent (the FedMGDA+ paper tries 0.01 to 0.5); 0 weights all clients equally."""
    result: Literal["mean", "last"] = "mean"
    """The solution: the mean of the models of all rounds, as in the paper, or the last one."""

    def begin(self, setting: Setting) -> AFLState:
        """w⁰, equal weights."""
        weights = (1 / len(setting.clients),) * len(setting.clients)
        w = setting.initial
        return AFLState(setting, model=w, mean=w, weights=weights, losses=worst_mixture.unheard(setting))

    def ask(self, state: AFLState) -> list[Tasks]:
        """Every participant trains from w."""
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """w_k ← local training from w; also F_k(w)."""
        return {"model": clients.learn(message["model"]), "loss_before": clients.loss(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and the loss of the one that was sent."""
        return {"train": {"model": (setting.layout.size,), "loss_before": ()}}

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """A loss beside the model."""
        return {**super().reply_parts, "loss_before": "losses"}

    def tell(self, state: AFLState, replies: Replies) -> AFLState:
        """w ← Σ_k λ_k w_k, and λ ← Π(λ + γ_λ F(w)) with the losses of the w that was sent."""
        after = worst_mixture.stepped(state, replies, "loss_before", self.weight_lr)
        mean = state.mean + (after.model - state.mean) / (state.round + 1)
        return replace(after, mean=mean, round=state.round + 1)

    def solutions(self, state: AFLState) -> Parcels:
        """The mean of all rounds' models for every client, or the last one."""
        model = state.mean if self.result == "mean" else state.model
        return to_everyone(state, model=model)

    def describe(self, state: AFLState) -> dict[str, Any]:
        """The clients' weights."""
        return {"weights": list(state.weights)}
