"""Gossip FedAvg: FedAvg without a server, each client in the place of one for its neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from fedpareto.algorithms._shared.neighbours import Gossip
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Replies, Shapes, take_rows
from fedpareto.moo.updates import weighted_sum


@dataclass(frozen=True)
class GossipFedAvg(Gossip):
    """θ_i ← the mean of θ'_j over client i and its neighbours. On a complete graph that is FedAvg, to the bit."""

    name: ClassVar[str] = "gossip-fedavg"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "fully distributed", "linearised preferences, averaging among neighbours", "arbitrary"
    )

    weighting: Literal["size", "equal"] = "size"
    """Weighting of clients: by their number of training rows (`size`), as in FedAvg, or equally."""

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i, and its number of rows where weights need it."""
        return super().train(clients, message) | ({"size": clients.sizes} if self.weighting == "size" else {})

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and its number of rows where weights need it."""
        size: Shapes = {"size": ()} if self.weighting == "size" else {}
        return {"train": {**super().reply_shapes(setting)["train"], **size}}

    def mixtures(self, state: PersonalState, rows: np.ndarray, replies: Replies) -> Tensor:
        """Σ_j (n_j / Σ n) θ'_j over those heard. Where everybody hears all, it is one sum, by the product of FedAvg."""
        models = replies["model"]
        sizes = replies["size"] if self.weighting == "size" else models.new_ones(len(models))
        if self.neighbours(len(state.setting.clients)).is_complete:
            return weighted_sum(sizes / sizes.sum(), models).repeat(len(models), 1)
        heard = self.heard(state, rows)
        return heard.mean(take_rows(sizes, heard.whom), models)
