"""APFL: Deng, Kamani and Mahdavi, "Adaptive personalized federated learning", 2020, algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import PREFERENCES, OwnLoss, scalarised
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.bounds import NotNegative, Share
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch

SHARED, OWN = "shared.", "own."
"""Prefixes of the tensors of θ_i and of v_i where both are trained side by side."""


@dataclass(frozen=True)
class APFL(FedAvg):
    """FedAvg, and on each client a mixture v̄_i = α_i v_i + (1 − α_i) θ with a personal model v_i.

    The global model θ is FedAvg's: neither v_i nor α_i leaves its client.
    """

    name: ClassVar[str] = "apfl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging and mixtures with local models",
        "arbitrary",
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    personalised: ClassVar[bool] = True

    mixing: Share = 0.5
    """Initial α_i, the share of the client's own model: 0 is the global model, 1 local training."""
    mixing_lr: NotNegative = 0.05
    """The step size of α_i, one step in every round; 0: α_i stays as it is."""

    def private_state(self, setting: Setting) -> Message:
        """v_i and α_i."""
        return {"own": setting.initial, "mixing": setting.initial.new_full((1,), self.mixing)}

    def train(self, clients: Clients, message: Message) -> Message:
        """One step of α_i, then of θ_i and v_i side by side on the same minibatches."""
        received, own = message["model"], clients.state["own"]
        alpha = self._adapted(clients, received)
        both = clients.minimise(
            torch.cat([received, own], dim=1),
            _twice(clients.problem.layout),
            Both(OwnLoss.of(clients, self.name)),
            {"mixing": alpha, PREFERENCES: clients.preferences},
        )
        model, own = both.chunk(2, dim=1)
        clients.state = {"own": own, "mixing": alpha}
        return self._reply(clients, model)

    def _adapted(self, clients: Clients, received: Tensor) -> Tensor:
        """α_i ← α_i − η ⟨v_i − θ, ∇f(v̄_i)⟩, kept between 0 and 1, `[n, 1]`."""
        own, alpha = clients.state["own"], clients.state["mixing"]
        if not self.mixing_lr:
            return alpha
        losses, gradients = clients.gradients(mixture(alpha, own, received))
        (weights,) = torch.autograd.grad(scalarised(clients, losses.requires_grad_()).sum(), losses)
        slopes = torch.einsum("nd,nmd->nm", own - received, gradients)
        return (alpha - self.mixing_lr * (weights * slopes).sum(dim=1, keepdim=True)).clamp(0, 1)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """v̄_i."""
        return mixture(clients.state["mixing"], clients.state["own"], message["model"])


def mixture(alpha: Tensor, own: Tensor, shared: Tensor) -> Tensor:
    """α v + (1 − α) θ of each client; `alpha` is `[n, 1]`, the others `[n, ...]`."""
    alpha = alpha.view(-1, *[1] * (own.dim() - 1))
    return alpha * own + (1 - alpha) * shared


def _twice(layout: Layout) -> Layout:
    """Two models one after the other."""
    names, buffers = (
        tuple(part + name for part in (SHARED, OWN) for name in some) for some in (layout.names, layout.buffers)
    )
    return Layout(names, layout.shapes * 2, buffers)


@dataclass(frozen=True)
class Both:
    """f(θ_i) + f(v̄_i), in which the second term moves v_i only: its gradient there is α ∇f(v̄_i)."""

    objective: OwnLoss

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds α_i too."""
        names = self.objective.problem.layout.names
        shared = {name: parameters[SHARED + name] for name in names}
        mixed = {name: mixture(given["mixing"], parameters[OWN + name], shared[name].detach()) for name in names}
        return self.objective(shared, batch.of(SHARED), given) + self.objective(mixed, batch.of(OWN), given)
