"""AFL: Mohri, Sivek and Suresh, "Agnostic federated learning", 2019.

A model for the worst mixture of the clients: clients train, and the server gives clients with high losses more weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.core.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.core.clients import Clients
from fedpareto.core.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.errors import UserError
from fedpareto.moo.min_norm import project_to_simplex


@dataclass(frozen=True)
class AFLState(State):
    """The global model, its mean over the rounds, and the mixture of clients that it is trained for."""

    model: Tensor = torch.empty(0)
    """w, `[d]`."""
    mean: Tensor = torch.empty(0)
    """The mean of w over all rounds so far, `[d]`; before the first, w⁰."""
    weights: tuple[float, ...] = ()
    """λ on the simplex, in the order of `setting.clients`."""


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
    needs_losses: ClassVar[bool] = True
    needs: ClassVar[Needs] = "weighted sum"
    reveals: ClassVar[tuple[str, ...]] = ("loss_before",)

    weight_lr: float = 0.1
    """γ_λ, the step size of λ's ascent (the FedMGDA+ paper tries 0.01 to 0.5); 0 weights all clients equally."""
    result: Literal["mean", "last"] = "mean"
    """Whether the solution is the mean of the models of all rounds, as in the paper, or the last one."""

    def __post_init__(self) -> None:
        if not 0 <= self.weight_lr < math.inf:
            raise UserError(f"weight_lr is {self.weight_lr}; it is not negative")

    def begin(self, setting: Setting) -> AFLState:
        """w⁰, equal weights."""
        clients = len(setting.clients)
        return AFLState(setting, model=setting.initial, mean=setting.initial, weights=(1 / clients,) * clients)

    def ask(self, state: AFLState) -> list[Tasks]:
        """Every participant trains from w."""
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """w_k ← local training from w; also F_k(w)."""
        return {"model": clients.learn(message["model"]), "loss_before": clients.loss(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and the loss of the one that was sent."""
        return {"train": {"model": (setting.layout.size,), "loss_before": ()}}

    def tell(self, state: AFLState, replies: Replies) -> AFLState:
        """w ← Σ_k λ_k w_k, and λ ← Π(λ + γ_λ F(w)) with the losses of the w that was sent."""
        places = state.setting.rows(replies.clients)
        weights = np.array(state.weights)
        total = weights[places].sum()
        present = weights[places] / total if total > 0 else np.full(len(places), 1 / len(places))
        model = replies.sum("model", torch.as_tensor(present).to(state.model))
        weights[places] += self.weight_lr * replies["loss_before"].double().cpu().numpy()
        return replace(
            state,
            model=model,
            mean=state.mean + (model - state.mean) / (state.round + 1),
            weights=tuple(project_to_simplex(weights).tolist()),
            round=state.round + 1,
        )

    def solutions(self, state: AFLState) -> Parcels:
        """The mean of all rounds' models for every client, or the last one."""
        model = state.mean if self.result == "mean" else state.model
        return to_everyone(state, model=model)

    def describe(self, state: AFLState) -> dict[str, Any]:
        """The clients' weights."""
        return {"weights": list(state.weights)}
