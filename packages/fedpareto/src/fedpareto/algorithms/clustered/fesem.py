"""FeSEM: Long et al., "Multi-center federated learning: clients clustering for better personalization", 2022,
algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import few_models
from fedpareto.algorithms._shared.few_models import FewState
from fedpareto.config.bounds import Count
from fedpareto.contract.algorithm import Algorithm, Setting, Taxonomy, participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.tensors import rng

UNKNOWN = -1
"""Marks a client that has not taken part yet."""


@dataclass(frozen=True)
class FeSEMState(FewState):
    """The centres, and to which of them each client belongs."""

    choices: Tensor = torch.empty(0)
    """r, `[n]`, in the order of `setting.clients`."""


@dataclass(frozen=True)
class FeSEM(Algorithm[FeSEMState]):
    """K centres by stochastic expectation maximisation: a client belongs to the centre nearest to its trained model.

    Everybody begins from the same model, for random ones are further apart than training moves them, and nobody would
    ever change. The first centres are the K means of what comes of that.
    """

    name: ClassVar[str] = "fesem"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "multi-task", "linearised preferences, averaging around the nearest of several centres", "arbitrary"
    )
    personalised: ClassVar[bool] = True

    models: Count = 3
    """K, the number of centres."""
    weighting: Literal["size", "equal"] = "equal"
    """Weighting of the clients of a centre: by their number of training rows (`size`), or equally, as in the paper."""

    def begin(self, setting: Setting) -> FeSEMState:
        """All centres at the same model."""
        choices = torch.full((len(setting.clients),), UNKNOWN, device=setting.initial.device)
        return FeSEMState(setting, models=few_models.same_start(setting, self.models), choices=choices)

    def ask(self, state: FeSEMState) -> list[Tasks]:
        """Every participant trains from its centre (line 8)."""
        present = participants(state)
        centre = self._places(state)[torch.as_tensor(state.setting.rows(present), device=state.models.device)]
        own = {"model": state.models[centre]}
        return [Tasks(present, own=own, round=state.round + 1, groups=centre.cpu().numpy())]

    def train(self, clients: Clients, message: Message) -> Message:
        """W_i ← local training from the client's centre."""
        size = {"size": clients.sizes} if self.weighting == "size" else {}
        return {"model": clients.learn(message["model"])} | size

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and the number of rows where weights need it."""
        size: Shapes = {"size": ()} if self.weighting == "size" else {}
        return {"train": {"model": (setting.layout.size,), **size}}

    def tell(self, state: FeSEMState, replies: Replies) -> FeSEMState:
        """r_i ← argmin_k ‖W_i − C_k‖² (line 5), then C_k ← the mean of its clients' models (line 6)."""
        models = replies["model"]
        centres = self._first_centres(state, models) if bool((state.choices == UNKNOWN).all()) else state.models
        nearest = squared_distances(models, centres).argmin(dim=1)
        rows = torch.as_tensor(state.setting.rows(replies.clients), device=nearest.device)
        return replace(
            state,
            models=few_models.means(centres, replies, nearest, self.weighting),
            choices=state.choices.index_copy(0, rows, nearest),
            round=state.round + 1,
        )

    def _first_centres(self, state: FeSEMState, models: Tensor) -> Tensor:
        """The K means of `models` `[k, d]`; as many of them as there are different ones."""
        distinct = np.unique(models.double().cpu().numpy(), axis=0)
        if self.models == 1 or len(distinct) <= self.models:
            return torch.as_tensor(distinct[np.arange(self.models) % len(distinct)]).to(models)
        from sklearn.cluster import KMeans

        draw = rng.generator(rng.Address(state.setting.seed, round=state.round + 1), "centres")
        means = KMeans(self.models, n_init=10, random_state=int(draw.integers(2**31)))
        return torch.as_tensor(means.fit(distinct).cluster_centers_).to(models)

    def _places(self, state: FeSEMState) -> Tensor:
        """The number of each client's centre, `[n]`; who has never taken part has that of the most clients."""
        known = state.choices[state.choices != UNKNOWN]
        usual = known.mode().values if len(known) else torch.zeros_like(state.choices[0])
        return torch.where(state.choices == UNKNOWN, usual, state.choices)

    def solutions(self, state: FeSEMState) -> Parcels:
        """Each client's centre."""
        return Parcels(state.setting.clients, own={"model": state.models[self._places(state)]})

    def describe(self, state: FeSEMState) -> dict[str, Any]:
        """The clusters as client ids, without empty ones."""
        choices = state.choices.cpu().numpy()
        clusters = [state.setting.clients[choices == k].tolist() for k in range(self.models)]
        return {"clusters": [cluster for cluster in clusters if cluster]}


def squared_distances(models: Tensor, centres: Tensor) -> Tensor:
    """‖W_i − C_k‖² `[n, K]` of models `[n, d]` and centres `[K, d]`, in double precision; without `[n, K, d]`."""
    origin = centres.mean(dim=0)
    a, b = (models - origin).double(), (centres - origin).double()
    return a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * a @ b.T
