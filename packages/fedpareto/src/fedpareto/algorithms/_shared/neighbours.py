"""Common parts of algorithms without a server: a graph of neighbours, and a model of each client's own.

A round has no place at which all meet. What a client makes of a round is a function of its own model and of what its
neighbours sent it; `tell` is that function for all clients at once, so that a federation is simulated in one stack. A
session of real nodes (fedpareto_space.session.peer) calls it at each node with what that node has heard.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.config.bounds import Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, S, Setting, State
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.moo import graphs
from fedpareto.moo.graphs import Graph
from fedpareto.moo.neighbourhoods import Neighbourhoods

DRAWN = 8
"""Graphs that are kept: drawing one takes longer than a round."""


@dataclass(frozen=True)
class OnGraph(Algorithm[S]):
    """Clients that exchange models with their neighbours only."""

    personalised: ClassVar[bool] = True
    waits: ClassVar[str] = "neighbours mix the models that they trained in the same round"

    graph: Literal["ring", "grid", "torus", "random-regular", "small-world", "complete", "edges"] = "ring"
    """Kind of graph: neighbours are those beside each other in one ring of all; in rows side by side; in rings side by
    side, as satellites in planes; drawn, all with as many; on a circle with a few drawn shortcuts; everybody; or
    `edges`.
    """
    planes: Whole = 0
    """Number of rings of a torus, or of rows of a grid; 0: the largest number that divides the clients and is at most
    the root of their number.
    """
    degree: int = 4
    """Neighbours of each client in a random-regular or small-world graph."""
    rewiring: float = 0.1
    """Share of edges that become shortcuts in a small-world graph."""
    graph_seed: Whole = 0
    """Seed from which a random-regular or small-world graph is drawn."""
    edges: tuple[str, ...] = ()
    """Edges of the graph `edges`: pairs of clients by their numbers from 0 on, such as 0-3; or a file with such a pair
    in each line.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.edges) != (self.graph == "edges"):
            raise UserError("graph=edges and edges=0-1,1-2 go together; give both or neither")

    def neighbours(self, clients: int) -> Graph:
        """The graph of so many clients; a single one, as on a device whose work is counted, has none."""
        if clients == 1:
            return graphs.complete(1)
        edges = graphs.pairs_in(self.edges) if self.edges else ("", "")
        return _drawn(self.graph, clients, self.planes, self.degree, self.rewiring, self.graph_seed, edges)

    def heard(self, state: State, rows: np.ndarray) -> Neighbourhoods:
        """Places of its own reply and of its neighbours' among the replies, for each of those who replied."""
        return self.neighbours(len(state.setting.clients)).among(rows).neighbourhoods


@lru_cache(maxsize=DRAWN)
def _drawn(
    kind: str, clients: int, planes: int, degree: int, rewiring: float, seed: int, edges: tuple[str, str]
) -> Graph:
    """`edges` are what a list or a file says now: another one is another graph."""
    match kind:
        case "torus":
            found = graphs.torus(clients, planes)
        case "grid":
            found = graphs.grid(clients, planes)
        case "random-regular":
            found = graphs.random_regular(clients, degree, seed)
        case "small-world":
            found = graphs.small_world(clients, degree, rewiring, seed)
        case "edges":
            found = graphs.of_pairs(clients, *edges)
        case _:
            found = graphs.ring(clients) if kind == "ring" else graphs.complete(clients)
    graphs.must_be_connected(found)
    return found


@dataclass(frozen=True)
class Gossip(OnGraph[PersonalState]):
    """Each client trains its own model and mixes it with those of its neighbours."""

    def begin(self, setting: Setting) -> PersonalState:
        """All clients at the same model."""
        self.neighbours(len(setting.clients))
        return PersonalState(setting, models=personal_models.same_start(setting))

    def ask(self, state: PersonalState) -> list[Tasks]:
        """Every participant trains from its θ_i."""
        return personal_models.tasks(state)

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i ← local training from θ_i under the client's own preference."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: PersonalState, replies: Replies) -> PersonalState:
        """θ_i ← what client i makes of its own θ'_i and of its neighbours'; who did not train keeps its model."""
        rows = state.setting.rows(replies.clients)
        mixed = self.mixtures(state, rows, replies)
        return replace(state, models=personal_models.with_rows(state.models, rows, mixed), round=state.round + 1)

    @abstractmethod
    def mixtures(self, state: PersonalState, rows: np.ndarray, replies: Replies) -> Tensor:
        """θ_i of those who replied, `[k, d]`, in these `rows` of the state: each of its own row, and of the replies of
        those whom it `heard`.
        """

    def solutions(self, state: PersonalState) -> Parcels:
        """Each client's own model."""
        return personal_models.solutions(state)
