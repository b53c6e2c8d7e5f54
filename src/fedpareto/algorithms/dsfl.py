"""DSFL: Wu, Zhu, Wang, "DSFL: Decentralized satellite federated learning for energy-aware LEO constellation computing",
2022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch

from fedpareto.algorithms import personal
from fedpareto.algorithms.personal import PersonalState
from fedpareto.core.algorithm import Algorithm, Setting, Taxonomy
from fedpareto.core.clients import Clients
from fedpareto.core.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.errors import UserError
from fedpareto.moo import graphs


@dataclass(frozen=True)
class DSFL(Algorithm[PersonalState]):
    """No server: each client trains its own model and mixes it with those of its neighbours, θ_i ← Σ_j W_ij θ'_j.

    W has Metropolis weights, so the mean of all models is that of the trained ones. The paper also chooses by their
    energy who trains; here that is the run's selection.
    """

    name: ClassVar[str] = "dsfl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "fully distributed", "linearised preferences, gossip averaging", "arbitrary"
    )
    personalised: ClassVar[bool] = True
    waits: ClassVar[str] = "neighbours mix the models that they trained in the same round"

    graph: Literal["ring", "torus", "complete", "edges"] = "torus"
    """Who are neighbours: those beside each other in one ring of all; in rings side by side, as satellites in planes;
    everybody; or `edges`.
    """
    planes: int = 0
    """Of the torus: rings; 0: the largest number that divides the clients and is at most the root of their number."""
    edges: tuple[str, ...] = ()
    """Of edges: pairs of clients by their numbers from 0 on, such as 0-3."""

    def __post_init__(self) -> None:
        if self.planes < 0:
            raise UserError(f"planes is {self.planes}; it is a number of rings, or 0")
        if bool(self.edges) != (self.graph == "edges"):
            raise UserError("graph=edges and edges=0-1,1-2 go together; give both or neither")

    def neighbours(self, clients: int) -> np.ndarray:
        """See Algorithm; who is alone, as on a device whose work is counted, has none."""
        if clients == 1:
            return graphs.complete(1)
        if self.graph == "torus":
            found = graphs.torus(clients, self.planes)
        elif self.graph == "edges":
            found = graphs.of_edges(clients, self.edges)
        else:
            found = graphs.ring(clients) if self.graph == "ring" else graphs.complete(clients)
        graphs.must_be_connected(found)
        return found

    def begin(self, setting: Setting) -> PersonalState:
        """All clients at the same model."""
        self.neighbours(len(setting.clients))
        return PersonalState(setting, models=personal.same_start(setting))

    def ask(self, state: PersonalState) -> list[Tasks]:
        """Every participant trains from its θ_i."""
        return personal.tasks(state)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i ← local training from θ_i under the client's own preference."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: PersonalState, replies: Replies) -> PersonalState:
        """θ_i ← Σ_j W_ij θ'_j over the neighbours that trained; who did not train keeps its model."""
        rows = state.setting.rows(replies.clients)
        own = self.neighbours(len(state.setting.clients))[np.ix_(rows, rows)]
        mixing = torch.as_tensor(graphs.metropolis(own)).to(state.models)
        mixed = mixing @ replies["model"]
        return replace(state, models=personal.with_rows(state.models, rows, mixed), round=state.round + 1)

    def solutions(self, state: PersonalState) -> Parcels:
        """Each client's own model."""
        return personal.solutions(state)
