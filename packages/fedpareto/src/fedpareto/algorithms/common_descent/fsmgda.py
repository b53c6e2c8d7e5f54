"""FSMGDA: Yang et al., "Federated multi-objective learning", 2023.

Clients descend every objective separately; the server weights the objectives so that the common step is as short as
possible, which descends all of them until a Pareto-stationary point is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import Positive
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks, take_rows
from fedpareto.moo.min_norm import min_norm_weights
from fedpareto.moo.subsets import dealt


@dataclass(frozen=True)
class FSMGDAState(State):
    """The global model and the objectives' last weights."""

    model: Tensor = torch.empty(0)
    """x, `[d]`."""
    weights: tuple[float, ...] = ()
    """λ of the last round, one for each objective."""


@dataclass(frozen=True)
class FSMGDA(Algorithm[FSMGDAState]):
    """One global model: the clients' mean updates for single objectives, combined by their min-norm weights."""

    name: ClassVar[str] = "fsmgda"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "single-solution", "successive single-objective updates, MGDA", "arbitrary"
    )
    averages: ClassVar[bool] = True
    needs: ClassVar[Needs] = "weighted sum"
    sums: ClassVar[bool] = True

    server_lr: Positive = 1.0
    """η, the step size of the server ("global learning rate" in the thesis)."""
    subsets: tuple[str, ...] = ()
    """S_i, the objectives that a client has, joined by "+", as in ["accuracy", "accuracy+demographic-parity"]; dealt to
    clients in turn. Empty: everybody has all of them."""

    def begin(self, setting: Setting) -> FSMGDAState:
        """x⁰, equal weights."""
        m = len(setting.objectives)
        self._has(setting)  # Raises UserError, before anybody trains, if that is not possible.
        return FSMGDAState(setting, model=setting.initial, weights=(1 / m,) * m)

    def ask(self, state: FSMGDAState) -> list[Tasks]:
        """Every participant trains from x; who does not have all objectives is told which."""
        tasks = to_participants(state, model=state.model)
        if not self.subsets:
            return tasks
        has = torch.as_tensor(self._has(state.setting)).to(state.model)
        return [
            replace(one, own={"has": take_rows(has, state.setting.rows(one.clients))})  # Public, as in the paper.
            for one in tasks
        ]

    def _has(self, setting: Setting) -> np.ndarray:
        """The paper's A: which objectives each client has, booleans `[n, m]`."""
        names = [objective.name for objective in setting.objectives]
        return dealt(self.subsets, names, len(setting.clients), "subsets")

    def train(self, clients: Clients, message: Message) -> Message:
        """Δ_s,i for every objective s: the update of local training for s alone, whatever the client's preference; 0
        for those that a client does not have.
        """
        model = message["model"]
        has = message.get("has", torch.ones_like(clients.preferences))
        updates = [
            (clients.learn(model, weights=only) - model) * mine[:, None] if mine.any() else torch.zeros_like(model)
            for only, mine in zip(_single_objectives(clients), has.T, strict=True)
        ]
        return {"updates": torch.stack(updates, dim=1)}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The global model; after local steps, moved by the client's updates in the proportion of its preference."""
        if "updates" not in message:
            return message["model"]
        return message["model"] + torch.einsum("nm,nmd->nd", clients.preferences, message["updates"])

    def fine_tune(self, clients: Clients, message: Message) -> Message:
        """Local training under the client's own preference; of the variant +ft only."""
        return {"model": clients.learn(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """One update for each objective: m times the bytes of a model."""
        d = setting.layout.size
        return {"train": {"updates": (len(setting.objectives), d)}, "fine_tune": {"model": (d,)}}

    def tell(self, state: FSMGDAState, replies: Replies) -> FSMGDAState:
        """x ← x + η Σ_s λ_s Δ_s with λ = argmin ‖Σ_s λ_s Δ_s‖² and Δ_s the mean over clients that have s."""
        updates, counts = replies.mean("updates"), self._counts(state, replies)
        if self.subsets:
            # The update of a client that does not have an objective is 0: it adds nothing to the sum.
            factors = np.divide(len(replies), counts, out=np.zeros(len(counts)), where=counts > 0)
            updates = updates * torch.as_tensor(factors).to(updates)[:, None]
        exact = updates.double()  # The squares of large or small updates leave the range of single precision.
        there, weights = np.flatnonzero(counts), np.zeros(len(counts))
        weights[there] = min_norm_weights((exact @ exact.T).cpu().numpy()[np.ix_(there, there)])
        step = torch.as_tensor(weights).to(updates) @ updates
        model = state.model + self.server_lr * step
        return replace(state, model=model, weights=tuple(weights.tolist()), round=state.round + 1)

    def _counts(self, state: FSMGDAState, replies: Replies) -> np.ndarray:
        """|R_s|, how many of those who replied have each objective, `[m]`; one that nobody has counts for nothing."""
        counts: np.ndarray = self._has(state.setting)[state.setting.rows(replies.clients)].sum(axis=0)
        return counts

    def solutions(self, state: FSMGDAState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)

    def describe(self, state: FSMGDAState) -> dict[str, Any]:
        """The objectives' weights."""
        return {"weights": list(state.weights)}


def _single_objectives(clients: Clients) -> list[Tensor]:
    """Weights `[n, m]` for each objective that leave only that one."""
    identity = torch.eye(clients.preferences.shape[1]).to(clients.preferences)
    return [row.expand_as(clients.preferences) for row in identity]
