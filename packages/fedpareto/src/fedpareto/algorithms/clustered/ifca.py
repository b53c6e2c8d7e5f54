"""IFCA: Ghosh et al., "An efficient framework for clustered federated learning", 2020, algorithm 1, model averaging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms._shared import few_models
from fedpareto.algorithms._shared.few_models import FewState
from fedpareto.config.bounds import Count
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, Taxonomy, by_client
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part

UNKNOWN = -1
"""Marks a client that has not taken part yet."""


@dataclass(frozen=True)
class IFCAState(FewState):
    """The models, and which of them each client chose last."""

    choices: Tensor = torch.empty(0)
    """`[n]`, in the order of `setting.clients`."""


@dataclass(frozen=True)
class IFCA(Algorithm[IFCAState]):
    """One model for each cluster; in every round a client joins the cluster whose model has the least loss for it.

    The loss is the client's own objective: its losses, scalarised under its preference. The server learns the choice.
    """

    name: ClassVar[str] = "ifca"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "multi-task", "linearised preferences, averaging inside clusters chosen by loss", "arbitrary"
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    needs: ClassVar[Needs] = "weighted sum"
    personalised: ClassVar[bool] = True

    models: Count = 3
    """k, the number of clusters."""
    weighting: Literal["size", "equal"] = "equal"
    """Weighting of the clients in a cluster: by their number of training rows (`size`), or equally, as in the paper."""

    def begin(self, setting: Setting) -> IFCAState:
        """Different models: from equal ones every client would always choose the first."""
        choices = torch.full((len(setting.clients),), UNKNOWN, device=setting.initial.device)
        return IFCAState(setting, models=few_models.distinct_start(setting, self.models), choices=choices)

    def ask(self, state: IFCAState) -> list[Tasks]:
        """Every participant gets all the models (line 3)."""
        return few_models.tasks(state)

    def train(self, clients: Clients, message: Message) -> Message:
        """ĵ = argmin_j F_i(θ_j) (line 6), then local training from θ_ĵ."""
        choice = self._choice(clients, message)
        size = {"size": clients.sizes} if self.weighting == "size" else {}
        model = clients.learn(few_models.chosen(message["models"], choice))
        return {"model": model, "choice": choice.to(model.dtype)} | size

    def fine_tune(self, clients: Clients, message: Message) -> Message:
        """Local training from the client's choice, the only model that it keeps."""
        return {"models": self.train(clients, message)["model"][:, None]}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, its index, and the number of rows where weights need it."""
        d, size = setting.layout.size, {"size": ()} if self.weighting == "size" else {}
        return {"train": {"model": (d,), "choice": (), **size}, "fine_tune": {"models": (1, d)}}

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """A choice beside the model."""
        return {**super().reply_parts, "choice": "choice"}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """A choice is one of the K models."""
        return {**super().reply_limits, "choice": (0.0, self.models - 1.0)}

    def tell(self, state: IFCAState, replies: Replies) -> IFCAState:
        """θ_j ← the mean of the models that clients trained from θ_j; a model that no client chose stays as it is."""
        choice = replies["choice"].long()
        models = few_models.means(state.models, replies, choice, self.weighting)
        chosen = by_client(state.setting, replies, choice, absent=UNKNOWN)
        choices = torch.where(chosen == UNKNOWN, state.choices, chosen)
        return replace(state, models=models, choices=choices, round=state.round + 1)

    def solutions(self, state: IFCAState) -> Parcels:
        """All the models for every client."""
        return few_models.solutions(state)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The model that the client trained, or the received one with the least loss."""
        return (
            message["model"]
            if "model" in message
            else few_models.chosen(message["models"], self._choice(clients, message))
        )

    def _choice(self, clients: Clients, message: Message) -> Tensor:
        return few_models.losses(clients, message["models"]).argmin(dim=1)

    def describe(self, state: IFCAState) -> dict[str, Any]:
        """The clusters as client ids, without empty ones."""
        choices = state.choices.cpu().numpy()
        clusters = [state.setting.clients[choices == j].tolist() for j in range(self.models)]
        return {"clusters": [cluster for cluster in clusters if cluster]}
