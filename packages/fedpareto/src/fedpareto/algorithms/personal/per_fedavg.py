"""Per-FedAvg: Fallah, Mokhtari and Ozdaglar, "Personalized federated learning with theoretical guarantees: a
model-agnostic meta-learning approach", 2020, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import PREFERENCES, OwnLoss, scalarised
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.bounds import NotNegative
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message
from fedpareto.tensors.rows import Batch


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    """A global model w from which one gradient step on a client's own rows makes a good personal model.

    Clients minimise F_i(w) = f^i(w − α ∇f^i(w)). In every minibatch the inner step is taken on the first half of the
    rows and judged on the second, as the paper's independent batches are.
    """

    name: ClassVar[str] = "per-fedavg"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging for one local step (meta-learning)",
        "arbitrary",
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    personalised: ClassVar[bool] = True

    alpha: NotNegative = 0.05
    """α, the step that makes a personal model; 0 is FedAvg on the second halves of minibatches."""
    first_order: bool = False
    """First-order variant, which leaves the second derivative out: half the work, and a bias of α ∇²f."""

    def train(self, clients: Clients, message: Message) -> Message:
        """w_i ← w_i − β (I − α ∇²f^i(w_i)) ∇f^i(w_i − α ∇f^i(w_i)), with the learner's steps."""
        loss = AdaptedLoss(OwnLoss.of(clients, self.name), self.alpha, self.first_order)
        given = {PREFERENCES: clients.preferences}
        return self._reply(clients, clients.minimise(message["model"], clients.problem.layout, loss, given))

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """w − α ∇f^i(w), on a minibatch of the client's rows."""
        model = message["model"]
        if not self.alpha:
            return model
        with torch.enable_grad():  # Who evaluates models needs no gradients otherwise.
            losses, gradients = clients.gradients(model)
            losses = losses.requires_grad_()
            (weights,) = torch.autograd.grad(scalarised(clients, losses).sum(), losses)
        return model - self.alpha * (weights.unsqueeze(-1) * gradients).sum(1)


@dataclass(frozen=True)
class AdaptedLoss:
    """The clients' own loss after one step of size `alpha`."""

    objective: OwnLoss
    alpha: float
    first_order: bool

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds the clients' preferences."""
        first, second = halves(batch)
        names = [name for name, tensor in parameters.items() if tensor.requires_grad]
        inner = self.objective(parameters, first, given)
        found = torch.autograd.grad(
            inner.sum(), [parameters[name] for name in names], create_graph=not self.first_order, materialize_grads=True
        )
        adapted = {name: parameters[name] - self.alpha * slope for name, slope in zip(names, found, strict=True)}
        return self.objective({**parameters, **adapted}, second, given)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """The first half of each client's rows and the second; a single row is in both."""
    number, total = batch.mask.cumsum(-1), batch.mask.sum(-1, keepdim=True)
    is_first = number <= (total / 2).ceil()
    is_second = ~is_first | (total == 1)
    return _only(batch, is_first), _only(batch, is_second)


def _only(batch: Batch, rows: Tensor) -> Batch:
    return replace(batch, mask=batch.mask * rows, counted=None)
