"""MaT-FL: Cai et al., "Many-task federated learning: a new problem setting and a simple baseline", 2023.

For each client and layer the server finds the clients with the most similar updates and averages their layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.config.bounds import Above, Count
from fedpareto.contract.algorithm import Algorithm, Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.moo.similarity import cosines, cosines_of


@dataclass(frozen=True)
class MaTFL(Algorithm[PersonalState]):
    """Personal models by dynamic grouping: every round, for every layer, each client averages over its k voters."""

    name: ClassVar[str] = "mat-fl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "multi-task", "linearised preferences, layer-wise averaging over similar clients", "arbitrary"
    )
    personalised: ClassVar[bool] = True

    voters: Count = 5
    """k: the clients, itself included, whose layers a client averages (the thesis tries 3 to 10); 1: local training."""
    grouping: Literal["voting", "soft"] = "voting"
    """The k most similar layers, as in paper and thesis, or the published code's soft weights over whole models."""
    soft_threshold: Annotated[float, Above(-1)] = 0.0
    """Number added to a similarity before negative ones are cut off, in the soft grouping; 1 keeps all."""

    def begin(self, setting: Setting) -> PersonalState:
        """All clients at the same model."""
        return PersonalState(
            setting, models=personal_models.same_start(setting), heard=personal_models.heard_nobody(setting)
        )

    def ask(self, state: PersonalState) -> list[Tasks]:
        """Each client trains its own model."""
        return personal_models.tasks(state)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i ← local training under the client's own preference."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: PersonalState, replies: Replies) -> PersonalState:
        """Each client that replied averages over those that replied; the others keep their models.

        Where a round does not wait for all, over the last replies of all who have ever replied.
        """
        after, replied = personal_models.trained_models(state, replies)
        heard = None if state.heard is None else personal_models.hear(state, replied, replies["model"])
        known = replied if heard is None else np.flatnonzero(heard.ever.cpu().numpy())
        trained = after[replied] if heard is None else heard.trained[known]
        moves = trained - state.models[replied] if heard is None else heard.moves[known]
        rows = None if len(known) == len(replied) else torch.as_tensor(np.searchsorted(known, replied))
        mixed = self._mixed(state, trained, moves, rows)
        models = after.index_copy(0, torch.as_tensor(replied, device=after.device), mixed)
        return replace(state, models=models, heard=heard, round=state.round + 1)

    def _mixed(self, state: PersonalState, trained: Tensor, moves: Tensor, rows: Tensor | None) -> Tensor:
        """Mix for each client, or some `rows` of them `[k]`, the models `[n, d]` by their updates."""
        if self.grouping == "soft":
            return soft_weights(trained, self.soft_threshold, rows) @ trained
        mixed = torch.empty_like(trained if rows is None else trained[rows])
        for layer in state.setting.layout.layers.values():
            mixed[:, layer] = voting_weights(moves[:, layer], self.voters, rows) @ trained[:, layer]
        return mixed

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """Left as it is: nobody else changes a client's θ_i, so a late reply meets the model from which it began."""
        return reply

    def solutions(self, state: PersonalState) -> Parcels:
        """Each client's personal model."""
        return personal_models.solutions(state)


def voting_weights(updates: Tensor, voters: int, rows: Tensor | None = None) -> Tensor:
    """Row i gives 1/k to each of the k clients whose updates are most similar to i's, itself first; `[n, d]` to `[n,
    n]`, or some rows of it.

    Among equals the client that comes first is taken.
    """
    similarity = _cosines(updates, rows)
    own = torch.arange(len(updates), device=updates.device) if rows is None else rows
    similarity[torch.arange(len(own), device=own.device), own] = 2  # Itself before any other that is exactly parallel.
    k = min(voters, len(updates))
    chosen = similarity.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return torch.zeros_like(similarity).scatter_(1, chosen, 1 / k)


def soft_weights(models: Tensor, threshold: float, rows: Tensor | None = None) -> Tensor:
    """A_ij = max(0, cos(Δ_i, Δ_j) + threshold), rows summing to one, with Δ_i = θ_i − mean θ over the whole model."""
    scores = (_cosines(models - models.mean(dim=0), rows) + threshold).clamp_min(0)
    return scores / scores.sum(dim=1, keepdim=True)


def _cosines(vectors: Tensor, rows: Tensor | None) -> Tensor:
    return cosines(vectors) if rows is None else cosines_of(rows, vectors)
