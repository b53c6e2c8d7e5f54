"""FedFew: Guo et al., "Few-for-many personalized federated learning", 2026, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms._shared import few_models
from fedpareto.algorithms._shared.few_models import FewState
from fedpareto.config.bounds import Count, Positive
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, Taxonomy, by_client
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part
from fedpareto.moo.set_scalarise import set_weights, smooth_tchebycheff_set


@dataclass(frozen=True)
class FedFewState(FewState):
    """The models, and the last weights of clients and models."""

    weights: Tensor = torch.empty(0)
    """α `[n]` in the order of `setting.clients`, 0 for those that did not take part."""
    shares: Tensor = torch.empty(0)
    """w `[n, K]` in the same order, 0 for those that did not take part."""
    objective: float | None = None
    """Eq. 9 of the participants, from the losses that they sent; None before the first round."""


@dataclass(frozen=True)
class FedFew(Algorithm[FedFewState]):
    """Few models such that the best of them for each client serves the worst-served client well (eq. 9).

    L_ik is the client's own objective of model k: its losses, scalarised under its preference. The server learns its
    value. Since Σ_ik α_i w_ik = 1, the K models share one unit of step: each moves about 1/K as far as in FedAvg.
    """

    name: ClassVar[str] = "fedfew"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, Tchebycheff set scalarisation", "arbitrary"
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    needs: ClassVar[Needs] = "weighted sum"
    reveals: ClassVar[tuple[str, ...]] = ("losses",)
    personalised: ClassVar[bool] = True

    models: Count = 3
    """K, the number of models on the server."""
    mu: Positive = 0.01
    """μ: how smooth the maximum over clients and the minimum over models are; near 0 only the worst-served counts."""
    weighting: Literal["size", "equal"] = "size"
    """Weighting of a loss: multiplied by the client's share of all rows (footnote 2), or taken as it is (eq. 9)."""
    server_lr: Positive = 1.0
    """The step size of the server, 1 in the published code; K would make up for the shared unit of step."""
    initial: Literal["distinct", "identical"] = "distinct"
    """Start of the models: different ones, or copies that differ only by minibatches, as in the published code."""
    loss: Literal["before", "during", "after"] = "before"
    """Time at which L_ik is measured: on the model that was sent, as the mean over the last local epoch while the model
    changes (as in the published code), or on the model after local training (line 8 of algorithm 1).
    """

    def begin(self, setting: Setting) -> FedFewState:
        """Θ⁰."""
        start = few_models.distinct_start if self.initial == "distinct" else few_models.same_start
        shares = setting.initial.new_zeros(len(setting.clients), self.models, dtype=torch.float64)
        return FedFewState(setting, models=start(setting, self.models), weights=shares[:, 0].clone(), shares=shares)

    def ask(self, state: FedFewState) -> list[Tasks]:
        """Every participant trains all of Θ (line 2)."""
        return few_models.tasks(state)

    def train(self, clients: Clients, message: Message) -> Message:
        """Each θ_k goes through local training (lines 4 to 9); also L_i(θ_k)."""
        if self.loss == "during":
            trained, losses = few_models.learn_each_watched(clients, message["models"])
        else:
            trained = few_models.learn_each(clients, message["models"])
            losses = few_models.losses(clients, message["models"] if self.loss == "before" else trained)
        size = {"size": clients.sizes} if self.weighting == "size" else {}
        return {"models": trained, "losses": losses} | size

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained models, their losses, and the number of rows where weights need it."""
        size: Shapes = {"size": ()} if self.weighting == "size" else {}
        return {"train": {"models": (self.models, setting.layout.size), "losses": (self.models,), **size}}

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """K losses beside K models."""
        return {**super().reply_parts, "losses": "losses"}

    def tell(self, state: FedFewState, replies: Replies) -> FedFewState:
        """θ_k ← θ_k + η Σ_i α_i w_ik Δ_ik (line 15) with Δ_ik the client's local update of θ_k."""
        losses, importance = replies["losses"].double(), self._importance(replies)
        outer, inner = set_weights(losses, importance, self.mu)
        steps = replies.sum_each("models", outer[:, None] * inner, state.models)
        models = state.models + (self.server_lr * steps).to(state.models)
        return replace(
            state,
            models=models,
            weights=by_client(state.setting, replies, outer),
            shares=by_client(state.setting, replies, inner),
            objective=float(smooth_tchebycheff_set(losses, importance, self.mu)),
            round=state.round + 1,
        )

    def _importance(self, replies: Replies) -> Tensor:
        """λ_i: n_i / Σ n, or 1."""
        if self.weighting == "equal":
            return replies["losses"].new_ones(len(replies), dtype=torch.float64)
        sizes = replies["size"].double()
        return sizes / sizes.sum()

    def solutions(self, state: FedFewState) -> Parcels:
        """Θ for every client (line 19)."""
        return few_models.solutions(state)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The model with the least loss on the client's training rows (line 23)."""
        return few_models.chosen(message["models"], few_models.losses(clients, message["models"]).argmin(dim=1))

    def describe(self, state: FedFewState) -> dict[str, Any]:
        """Eq. 9 and its weights, α and w, in the round that is over."""
        weights, shares = state.weights.tolist(), state.shares.tolist()
        return {"weights": weights, "shares": shares, "objective": state.objective}
