"""FSMGDA: Yang et al., "Federated multi-objective learning", 2023.

Clients descend every objective separately; the server weights the objectives so that the common step is as short as
possible, which descends all of them until a Pareto-stationary point is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpareto.core.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.core.clients import Clients
from fedpareto.core.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.errors import UserError
from fedpareto.moo.min_norm import min_norm_weights


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

    server_lr: float = 1.0
    """η, the step size of the server ("global learning rate" in the thesis)."""

    def __post_init__(self) -> None:
        if self.server_lr <= 0:
            raise UserError(
                f"server_lr is {self.server_lr}; a step size is positive, 1 takes the clients' step as it is"
            )

    def begin(self, setting: Setting) -> FSMGDAState:
        """x⁰, equal weights."""
        m = len(setting.objectives)
        return FSMGDAState(setting, model=setting.initial, weights=(1 / m,) * m)

    def ask(self, state: FSMGDAState) -> list[Tasks]:
        """Every participant trains from x."""
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """Δ_s,i for every objective s: the update of local training for s alone, whatever the client's preference."""
        model = message["model"]
        updates = [clients.learn(model, weights=only) - model for only in _single_objectives(clients)]
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
        """x ← x + η Σ_s λ_s Δ_s with λ = argmin ‖Σ_s λ_s Δ_s‖² and Δ_s the mean over clients."""
        updates = replies.mean("updates")
        exact = updates.double()  # The squares of large or small updates leave the range of single precision.
        weights = min_norm_weights((exact @ exact.T).cpu().numpy())
        step = torch.as_tensor(weights).to(updates) @ updates
        model = state.model + self.server_lr * step
        return replace(state, model=model, weights=tuple(weights.tolist()), round=state.round + 1)

    def solutions(self, state: FSMGDAState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)

    def describe(self, state: FSMGDAState) -> dict[str, Any]:
        """The objectives' weights."""
        return {"weights": list(state.weights)}


def _single_objectives(clients: Clients) -> list[Tensor]:
    """For each objective the weights `[n, m]` that leave only that one."""
    identity = torch.eye(clients.preferences.shape[1]).to(clients.preferences)
    return [row.expand_as(clients.preferences) for row in identity]
