"""Decentralised MOEA/D: after Zhang and Li, "MOEA/D: a multiobjective evolutionary algorithm based on decomposition",
2007, with a client for each subproblem and a network for its neighbourhood. Thesis, section 2.2.3.2, names fully
distributed searches for a front as unexplored; this one is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms._shared.front_search import CHOSEN_ON, front_of
from fedpareto.algorithms._shared.local_loss import senses
from fedpareto.algorithms._shared.neighbours import OnGraph
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.algorithms.without_server.gossip_fedpref import mixtures
from fedpareto.config.bounds import Bounds, Share
from fedpareto.contract.algorithm import Found, Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks, take_rows
from fedpareto.contract.privacy import Part
from fedpareto.contract.solutions import roles
from fedpareto.moo import graphs
from fedpareto.moo.preferences import equidistant


@dataclass(frozen=True)
class DMOEADState(PersonalState):
    """The model of each client, and between two exchanges what it has just trained."""

    weights: Tensor = torch.empty(0)
    """w_1 … w_n, `[n, m]`."""
    values: Tensor = torch.empty(0)
    """Objectives of the clients' models, each on its own rows, `[n, 3, m]` in double precision; ∞ where
    none did.
    """
    choices: Tensor = torch.empty(0)
    """The model that each took in the last round: 0, its own; 1, 2, … its first, second, … neighbour's; or, the last,
    the mixture. `[n]`.
    """
    trained: Tensor = torch.empty(0)
    """θ'_i of those who replied, `[k, d]`; empty once they have chosen."""
    present: Tensor = torch.empty(0, dtype=torch.int64)
    """Rows of those who replied, `[k]`."""
    mixed: Tensor = torch.empty(0)
    """The mixtures of what each of them heard, `[k, d]`."""


@dataclass(frozen=True)
class DMOEAD(OnGraph[DMOEADState]):
    """No server: client i looks for the model that is best under its weights w_i, and all of them are the front.

    The w_i are a lattice, laid over the network so that neighbours have near weights. In a round, client i trains under
    w_i, and is sent its neighbours' models. It measures these, and their mixture by FedPref's similarity, on its own
    validation rows, and goes on with what is best under w_i.
    """

    name: ClassVar[str] = "dmoead"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "fully distributed", "linearised objectives, neighbours' models taken over where better", "arbitrary"
    )
    exchanges: ClassVar[int] = 2

    similarity_bound: Annotated[float, Bounds(below=1)] = -1.0
    """Threshold s_min of FedPref, for the mixture; 1 − 1e-9 leaves it out."""
    top_ratio: Share = 0.4
    """R of topR of FedPref, for the mixture."""

    # -- what every node does between exchanges ----------------------------------------------------------------------

    def begin(self, setting: Setting) -> DMOEADState:
        """All at the same model; w_i in the order in which one comes from client 0 to the others."""
        n, m, like = len(setting.clients), len(setting.objectives), setting.initial
        order = graphs.breadth_first(self.neighbours(n))
        weights = like.new_empty(n, m)
        weights[torch.as_tensor(order, device=like.device)] = torch.as_tensor(equidistant(n, m)).to(like)
        return DMOEADState(
            setting,
            models=personal_models.same_start(setting),
            weights=weights,
            values=like.new_full((n, 3, m), torch.inf, dtype=torch.float64),
            choices=like.new_zeros(n),
        )

    def ask(self, state: DMOEADState) -> list[Tasks]:
        """Train under w_i; then choose from what was trained around."""
        if not len(state.present):
            (tasks,) = personal_models.tasks(state)
            weights = take_rows(state.weights, state.setting.rows(tasks.clients))
            return [replace(tasks, own={**tasks.own, "weights": weights})]
        rows = state.present.cpu().numpy()
        own = {"models": self._candidates(state), "weights": take_rows(state.weights, rows)}
        return [Tasks(state.setting.clients[rows], own=own, round=state.round + 1, step="choose")]

    def _candidates(self, state: DMOEADState) -> Tensor:
        """Each of those who trained has as candidates its own model, its neighbours' and their mixture, `[k, c, d]`.
        Who has fewer neighbours than others has its own model instead of theirs.
        """
        graph = self.neighbours(len(state.setting.clients))
        near = graph.among(state.present.cpu().numpy())
        places = np.tile(np.arange(len(near))[:, None], int(graph.degrees.max()) + 1)
        places[near.rows, 1 + np.arange(len(near.others)) - near.starts[near.rows]] = near.others
        candidates = state.trained[torch.as_tensor(places, device=state.trained.device)]
        return torch.cat([candidates, state.mixed.unsqueeze(1)], dim=1)

    def tell(self, state: DMOEADState, replies: Replies) -> DMOEADState:
        """First the trained models; then θ_i ← what client i chose. Who does not say keeps what it trained, and nobody
        knows what that is worth.
        """
        rows = state.setting.rows(replies.clients)
        if not len(state.present):
            trained, heard = replies["model"], self.heard(state, rows)
            mixed = mixtures(state, rows, trained, heard, self.similarity_bound, self.top_ratio)
            return replace(state, trained=trained, present=torch.as_tensor(rows), mixed=mixed)
        candidates, present = self._candidates(state), state.present.cpu().numpy()
        places = torch.as_tensor(np.searchsorted(present, rows), device=candidates.device)
        models = state.trained.index_copy(0, places, candidates[places, replies["choice"].long()])
        # Earlier values belong to models that clients without a reply here no longer have.
        values = torch.full_like(state.values[: len(present)], torch.inf)
        choices = torch.zeros_like(state.choices[: len(present)])
        return replace(
            state,
            models=personal_models.with_rows(state.models, present, models),
            values=personal_models.with_rows(
                state.values, present, values.index_copy(0, places, replies["values"].double())
            ),
            choices=personal_models.with_rows(state.choices, present, choices.index_copy(0, places, replies["choice"])),
            trained=state.trained[:0],
            present=state.present[:0],
            mixed=state.mixed[:0],
            round=state.round + 1,
        )

    # -- the client half ---------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """θ'_i ← local training from θ_i under w_i."""
        return {"model": clients.learn(message["model"], weights=message["weights"])}

    def choose(self, clients: Clients, message: Message) -> Message:
        """The candidate with the largest weighted sum under w_i on the client's validation rows, of equal ones its own;
        and what that is worth on all three parts of its rows.
        """
        parts = roles(clients.problem.parts(clients.splits))
        values = torch.stack([clients.evaluate(model)[:, parts] for model in message["models"].unbind(1)], dim=1)
        worth = (values[:, :, CHOSEN_ON] * (message["weights"] * senses(clients)).unsqueeze(1)).sum(-1)
        choice = worth.nan_to_num(nan=-torch.inf).argmax(dim=1)
        chosen = values[torch.arange(len(choice), device=choice.device), choice]
        return {"choice": choice.to(values.dtype), "values": chosen}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """A model; then which one is kept, and what it is worth."""
        return {
            "train": {"model": (setting.layout.size,)},
            "choose": {"choice": (), "values": (3, len(setting.objectives))},
        }

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """Objectives beside a model and a choice."""
        return {**super().reply_parts, "choice": "choice", "values": "objectives"}

    # -- results -----------------------------------------------------------------------------------------------------

    def solutions(self, state: DMOEADState) -> Parcels:
        """Each client's own model."""
        return personal_models.solutions(state)

    def found(self, state: DMOEADState) -> Found:
        """The models that no other dominates, by what their clients measured."""
        front = front_of(state.values[:, CHOSEN_ON], state.setting)
        return Found(state.weights[front].double(), state.values[front], state.models[front])

    def describe(self, state: DMOEADState) -> dict[str, Any]:
        """Each client's weights, and what it chose in the last round."""
        return {"weights": state.weights.tolist(), "choices": state.choices.long().tolist()}
