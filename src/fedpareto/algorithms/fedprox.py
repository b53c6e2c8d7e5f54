"""FedProx: Li et al., "Federated optimization in heterogeneous networks", 2020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms.fedavg import FedAvg
from fedpareto.core.algorithm import Taxonomy
from fedpareto.core.clients import Clients
from fedpareto.core.messages import Message
from fedpareto.errors import UserError

TINY = 1e-12
"""Keeps the direction of no difference at zero."""


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients minimise f^i(θ) + μ/2 ‖θ − θ^t‖², so that they stay near the global model θ^t."""

    name: ClassVar[str] = "fedprox"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "baseline", "linearised preferences, averaging with a proximal term", "arbitrary"
    )

    mu: float = 0.1
    """μ, the strength of the proximal term; 0 is FedAvg."""

    distance: Literal["squared", "plain"] = "squared"
    """What the term measures: μ/2 ‖θ − θ^t‖² as in the paper, or μ/2 Σ ‖θ_l − θ_l^t‖ over the tensors l, without the
    square, as a widely copied example has it: a pull of the same small strength however far away."""

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise UserError(f"mu is {self.mu}; the proximal term is not negative (0 is FedAvg)")

    def train(self, clients: Clients, message: Message) -> Message:
        """Local training with the gradient of the proximal term."""
        anchor, layout = message["model"], clients.problem.layout

        def squared(theta: Tensor) -> Tensor:
            return self.mu * (theta - anchor)

        def plain(theta: Tensor) -> Tensor:
            away = theta - anchor
            parts = [away[..., place] for place in layout.slices.values()]
            lengths = [part.norm(dim=-1, keepdim=True).clamp_min(TINY) for part in parts]
            return self.mu / 2 * torch.cat([part / length for part, length in zip(parts, lengths, strict=True)], dim=-1)

        pull = squared if self.distance == "squared" else plain
        return self._reply(clients, clients.learn(anchor, pull=pull if self.mu else None))
