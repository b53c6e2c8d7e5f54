"""FedRep: Collins et al., "Exploiting shared representations for personalized federated learning", 2021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedpareto.algorithms._shared.local_loss import PREFERENCES, OwnLoss, found_under, under
from fedpareto.algorithms._shared.own_head import OwnHead
from fedpareto.config.bounds import Whole
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch

REST = "rest "
"""Begins the names of the tensors that are frozen."""


@dataclass(frozen=True)
class FedRep(OwnHead):
    """FedAvg of the body φ. In a round the head h_i is trained first, with the body as it was sent, and then the body
    with the new head.
    """

    name: ClassVar[str] = "fedrep"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging of the first layers", "arbitrary"
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)

    head_epochs: Whole = 10
    """Passes over a client's data for the head in one round; for the body it is the learner's `epochs`."""

    def train(self, clients: Clients, message: Message) -> Message:
        """h_i ← h_i − η ∇_h f(φ, h_i) for `head_epochs`, then φ_i ← φ − η ∇_φ f(φ, h_i)."""
        body, head = message["model"], clients.state["head"]
        first, last = clients.problem.layout.cut(self.head_layers)
        if self.head_epochs:
            head = self._trained(clients, head, last, first.unflatten(body), epochs=self.head_epochs, purpose="head")
        clients.state["head"] = head
        return self._reply(clients, self._trained(clients, body, first, last.unflatten(head)))

    def _trained(
        self,
        clients: Clients,
        part: Tensor,
        layout: Layout,
        rest: Mapping[str, Tensor],
        epochs: int | None = None,
        purpose: str = "batches",
    ) -> Tensor:
        """A part of the model after local training, with the rest of it frozen."""
        if not layout.size:
            return part
        loss, given = PartLoss(OwnLoss.of(clients, self.name)), {PREFERENCES: clients.preferences, **under(REST, rest)}
        return clients.minimise(part, layout, loss, given, epochs=epochs, purpose=purpose)


@dataclass(frozen=True)
class PartLoss:
    """The clients' own loss as a function of a part of the model."""

    objective: OwnLoss

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds the rest of the model too."""
        return self.objective({**found_under(REST, given), **parameters}, batch, given)
