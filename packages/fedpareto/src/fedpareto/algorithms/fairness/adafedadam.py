"""Adaptive FedAdam: Ju et al., "Accelerating fair federated learning: adaptive federated Adam", 2024.

Adam at the server on a weighted sum of the clients' losses, whose weights change from round to round: who has made less
progress counts more. What a client sends is scaled to the length of its gradient, and how far it came with it tells how
certain its direction is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import scalarised
from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.algorithms.fairness.q_fedavg import SMALLEST_LOSS, step_size
from fedpareto.config.bounds import NotNegative, Positive, ShareBelowOne
from fedpareto.contract.algorithm import ABOVE_ZERO, Needs, Setting, Taxonomy, by_client
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Replies, Shapes

LEAST_CERTAIN = 0.1
"""The least certainty of a round: below it Adam would forget nothing and go nowhere; our own bound."""


@dataclass(frozen=True)
class AdaFedAdamState(FedAvgState):
    """The global model θ, the moments of its gradients, and where the clients began."""

    first: Tensor = torch.empty(0)
    """m, `[d]`."""
    second: Tensor = torch.empty(0)
    """v, `[d]`."""
    fading: Tensor = torch.empty(0)
    """The products of all β₁^C and all β₂^C so far, `[2]` in double precision."""
    begun: Tensor = torch.empty(0)
    """F_k(θ⁰) of each client, `[n]` in double precision: the first loss that it reported; 0 before that."""
    certainty: float = 1.0
    """C of the last round."""


@dataclass(frozen=True)
class AdaFedAdam(FedAvg):
    """One global model: Adam on Σ_k w_k U_k with w_k ∝ n_k (F_k(θ) / F_k(θ⁰))^α and U_k = (θ − θ_k) / η'_k.

    η'_k = ‖θ − θ_k‖ / ‖∇F_k(θ)‖, and C_k = log(η'_k / η_k) + 1 of the local step size η_k. With C = Σ_k w_k C_k, Adam's
    η, β₁ and β₂ become C η, β₁^C and β₂^C. F_k is the client's own objective; the server learns its value and the
    length of its gradient on a minibatch.
    """

    name: ClassVar[str] = "adafedadam"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, weights by progress", "arbitrary"
    )
    needs: ClassVar[Needs] = "norms"
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    reveals: ClassVar[tuple[str, ...]] = ("loss_before", "slope")

    alpha: NotNegative = 1.0
    """α, fairness: how much more a client counts that has made less progress; 0: not at all."""
    server_lr: Positive = 0.03
    """η, the server's step size where C is 1: about how far a parameter moves in a round."""
    beta: ShareBelowOne = 0.9
    """β₁, how much of m is kept."""
    beta2: ShareBelowOne = 0.999
    """β₂, how much of v is kept."""
    tau: Positive = 1e-8
    """Number added to √v."""

    def begin(self, setting: Setting) -> AdaFedAdamState:
        """θ⁰, at rest."""
        nothing, numbers = torch.zeros_like(setting.initial), setting.initial.double()
        return AdaFedAdamState(
            setting,
            model=setting.initial,
            first=nothing,
            second=nothing,
            fading=numbers.new_ones(2),
            begun=numbers.new_zeros(len(setting.clients)),
        )

    def train(self, clients: Clients, message: Message) -> Message:
        """θ_k ← local training from θ; also F_k(θ), ‖∇F_k(θ)‖ and η_k."""
        theta = message["model"]
        losses, jacobians = clients.gradients(theta)
        (weights,) = torch.autograd.grad(scalarised(clients, losses.requires_grad_()).sum(), losses)
        slope = torch.einsum("nm,nmd->nd", weights.to(jacobians), jacobians).norm(dim=1)
        numbers = {"loss_before": clients.loss(theta), "slope": slope}
        numbers["lr"] = torch.full_like(slope, step_size(clients.learner, "by which to tell how certain it is"))
        return {**self._reply(clients, clients.learn(theta)), **numbers}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, the number of rows where weights need it, and three numbers."""
        return {"train": {**super().reply_shapes(setting)["train"], "loss_before": (), "slope": (), "lr": ()}}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """Losses and lengths are not negative."""
        numbers = {"loss_before": (0.0, math.inf), "slope": (0.0, math.inf), "lr": (ABOVE_ZERO, math.inf)}
        return {**super().reply_limits, **numbers}

    def tell(self, state: FedAvgState, replies: Replies) -> AdaFedAdamState:
        """m ← β₁^C m + (1 − β₁^C) g, v likewise of g², θ ← θ − C η m̂ / (√v̂ + τ)."""
        assert isinstance(state, AdaFedAdamState), "a state made by begin"
        begun, weights = self._weighed(state, replies)
        slope, steps = replies["slope"].double(), replies.squared_norms("model", state.model).sqrt()
        moved = (slope > 0) & (steps > 0)
        reach = torch.where(moved, steps / slope.where(moved, 1.0), 1.0)  # η'; who did not move has no gradient.
        certain = (reach / replies["lr"].double()).log().where(moved, 0.0) + 1
        certainty = max(float(weights @ certain), LEAST_CERTAIN)
        gradient = -replies.sum("model", weights.where(moved, 0.0) / reach, state.model).to(state.model)
        kept, kept2 = self.beta**certainty, self.beta2**certainty
        first = kept * state.first + (1 - kept) * gradient
        second = kept2 * state.second + (1 - kept2) * gradient.square()
        fading = state.fading * state.fading.new_tensor([kept, kept2])
        share, share2 = (1 - fading).tolist()
        step = certainty * self.server_lr * (first / share) / ((second / share2).sqrt() + self.tau)
        return replace(
            state,
            model=state.model - step,
            first=first,
            second=second,
            fading=fading,
            begun=begun,
            certainty=certainty,
            round=state.round + 1,
        )

    def _weighed(self, state: AdaFedAdamState, replies: Replies) -> tuple[Tensor, Tensor]:
        """F(θ⁰) of all clients who ever replied, and w of those who did now."""
        losses = replies["loss_before"].double().clamp_min(SMALLEST_LOSS)
        begun = torch.where(state.begun > 0, state.begun, by_client(state.setting, replies, losses))
        progress = losses / begun[torch.as_tensor(state.setting.rows(replies.clients), device=begun.device)]
        weights = self._shares(state, replies).double() * progress**self.alpha
        return begun, weights / weights.sum()

    def describe(self, state: FedAvgState) -> dict[str, Any]:
        """Certainty of the last round's direction."""
        assert isinstance(state, AdaFedAdamState), "a state made by begin"
        return {"certainty": state.certainty}
