"""q-FedAvg: Li et al., "Fair resource allocation in federated learning", 2020, algorithm 2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.config.bounds import NotNegative
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import ABOVE_ZERO, Algorithm, Needs, Setting, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part

SMALLEST_LOSS = 1e-10
"""The smallest loss; one below counts as this: F^(q−1) has no value at 0."""


@dataclass(frozen=True)
class QFedAvg(Algorithm[FedAvgState]):
    """One global model for Σ_k F_k^(q+1) / (q+1): the larger a client's loss F_k, the larger its weight.

    F_k is the client's own objective: its losses, scalarised under its preference. The server learns its value.
    """

    name: ClassVar[str] = "q-fedavg"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation",
        "multi-criteria aggregation",
        "linearised preferences, averaging weighted by losses",
        "arbitrary",
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    needs: ClassVar[Needs] = "norms"
    reveals: ClassVar[tuple[str, ...]] = ("loss_before",)

    q: NotNegative = 1.0
    """Emphasis on large losses; 0 is FedAvg with equal weights."""
    lipschitz: NotNegative = 0.0
    """L, the Lipschitz constant of the losses' gradients; 0: 1 / lr of local training, as in the paper, which the
    clients report. A larger L makes shorter steps (not with q = 0).
    """

    def begin(self, setting: Setting) -> FedAvgState:
        """w⁰."""
        return FedAvgState(setting, model=setting.initial)

    def ask(self, state: FedAvgState) -> list[Tasks]:
        """Every participant trains from w."""
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """w_k ← local training from w; also F_k(w), and L unless it is a parameter."""
        reply = {"model": clients.learn(message["model"]), "loss_before": clients.loss(message["model"])}
        if not self.lipschitz:
            reply["lipschitz"] = torch.full_like(
                reply["loss_before"], 1 / step_size(clients.learner, "from which to take L; set lipschitz")
            )
        return reply

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, the loss of the one that was sent, and L."""
        lipschitz: Shapes = {} if self.lipschitz else {"lipschitz": ()}
        return {"train": {"model": (setting.layout.size,), "loss_before": (), **lipschitz}}

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """L says nothing about rows."""
        return {**super().reply_parts, "loss_before": "losses", "lipschitz": "public"}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """Losses are not negative, and L is a positive number."""
        return {"loss_before": (0.0, math.inf), "lipschitz": (ABOVE_ZERO, math.inf)}

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """w ← w − Σ_k F_k^q Δ_k / Σ_k h_k with Δ_k = L(w − w_k) and h_k = q F_k^(q−1) ‖Δ_k‖² + L F_k^q."""
        losses = replies["loss_before"].double().clamp_min(SMALLEST_LOSS)
        powers = (losses / losses.max()) ** self.q  # The largest loss cancels out, and nothing over- or underflows.
        # All clients train alike and report the same L. Torch's median is the lower of two: one client that reports
        # another L can at most undo the shortening of the step.
        lipschitz = self.lipschitz or float(replies["lipschitz"].median())
        squares = lipschitz**2 * replies.squared_norms("model", state.model)
        h = self.q * powers / losses * squares + lipschitz * powers
        step = replies.sum("model", lipschitz * powers / h.sum(), state.model)
        return replace(state, model=state.model + step.to(state.model), round=state.round + 1)

    def solutions(self, state: FedAvgState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)


def step_size(learner: Learner, wanted: str) -> float:
    """The step size of local training; an error ends with what it is `wanted` for."""
    step = getattr(learner, "lr", None)
    if not step:
        raise UserError(f"{type(learner).__name__} has no step size lr {wanted}")
    return float(step)
