"""A candidate for an algorithm of our own: all clients train one model for every preference; see own_algorithm.py.

The model for a preference λ lies between m corners, θ(λ) = Σ_j λ_j θ_j, as in Dimitriadis et al., "Pareto manifold
learning: tackling multiple tasks via ensembles of single-task models", 2023. There one party trains it; here it is what
a federation shares. Every client's rows count for the whole front, and no preference leaves its client. It is not in
the library: docs/own-algorithm.md tells why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms._shared.local_loss import supervised
from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import Message, Shapes
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch

CENTRE = "0 "
"""Begins the names of the centre's tensors. Statistics of rows, which some networks keep, are its own: the same at all
corners.
"""


@dataclass(frozen=True)
class Span(FedAvg):
    """FedAvg of m corners, which clients train under preferences drawn at random; each uses θ at its own.

    "model" in messages is all corners, `[m, d]`.
    """

    name: ClassVar[str] = "span"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "preference-driven", "linearised over random preferences, averaging", "arbitrary"
    )
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    personalised: ClassVar[bool] = True

    drawn: int = 1
    """k, preferences drawn for each minibatch; each counts m times, with its entries rotated, so that no objective has
    more weight than another."""
    reach: float = 2.0
    """ρ: how fast corners move apart beside their centre, since clients train c and δ of
    θ(λ) = c + ρ Σ_j (λ_j − 1/m) δ_j; 0 is FedAvg under random preferences."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drawn < 1:
            raise UserError(f"drawn is {self.drawn}; at least 1 preference is drawn for a minibatch")
        if not 0 <= self.reach < math.inf:
            raise UserError(f"reach is {self.reach}; it is a number from 0 on, for example 2")

    def begin(self, setting: Setting) -> FedAvgState:
        """θ_j⁰, all at the initial model."""
        return FedAvgState(setting, model=setting.initial.repeat(len(setting.objectives), 1))

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained corners, and the number of rows where weights need it."""
        shapes = super().reply_shapes(setting)["train"]
        return {"train": {**shapes, "model": (len(setting.objectives), setting.layout.size)}}

    def train(self, clients: Clients, message: Message) -> Message:
        """c and δ descend the mean of λ·f(θ(λ)) over random λ; what is sent are the corners that they make."""
        corners = message["model"]
        spread = Spread(self.reach, corners.shape[1])
        loss = ExpectedLoss(self, supervised(clients, self.name), clients.learner)
        layout = spread.layout(clients.problem.layout)
        parts = clients.minimise(spread.parts(corners).flatten(1), layout, loss)
        return self._reply(clients, spread.corners(parts.unflatten(1, (1 + corners.shape[1], -1))))

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """θ(λ) at the client's own preference."""
        return between(message["model"], clients.preferences)

    def weights(self, batch: Batch, objectives: int) -> Tensor:
        """λ for a minibatch, uniform on the simplex, and each with its entries rotated, `[n, k·m, m]`."""
        training = batch.training
        assert training is not None, "a loss is called in training"
        count = self.drawn * objectives
        every = count + -count % 2  # A stream is read from even places on.
        drawn = training.addresses.exponential(f"{training.purpose} preferences", count, training.step * every)
        points = drawn.view(-1, self.drawn, objectives).to(training.mask.dtype)
        points = points / points.sum(-1, keepdim=True)
        return torch.cat([points.roll(places, -1) for places in range(objectives)], dim=1)


def between(corners: Tensor, weights: Tensor) -> Tensor:
    """θ(λ) = Σ_j λ_j θ_j, `[n, d]`, of `[n, m, d]` and `[n, m]`."""
    return torch.einsum("nm,nmd->nd", weights, corners)


@dataclass(frozen=True)
class Spread:
    """The corners as their centre c and directions δ_j: θ_j = c + ρ (δ_j − mean of δ), as they are trained.

    Adam moves every parameter by about its step size. Corners that it moved would stay together, because they have much
    of their gradient in common; with c and δ the common part and the differences have steps of their own.
    """

    reach: float
    objectives: int

    def layout(self, layout: Layout) -> Layout:
        """Of c and δ_1 … δ_m one after the other."""
        names, buffers = (
            tuple(f"{part} {name}" for part in range(1 + self.objectives) for name in some)
            for some in (layout.names, layout.buffers)
        )
        return Layout(names, layout.shapes * (1 + self.objectives), buffers)

    def parts(self, corners: Tensor) -> Tensor:
        """c and δ, `[n, 1 + m, d]`, of corners `[n, m, d]`."""
        centre = corners.mean(dim=1, keepdim=True)
        return torch.cat([centre, (corners - centre) / (self.reach or 1)], dim=1)

    def corners(self, parts: Tensor) -> Tensor:
        """The inverse."""
        centre, apart = parts[:, :1], parts[:, 1:]
        return centre + self.reach * (apart - apart.mean(dim=1, keepdim=True))

    def model(self, layout: Layout, parts: Mapping[str, Tensor], weights: Tensor) -> dict[str, Tensor]:
        """θ(λ) by name, for λ `[n, m]`."""
        shares = torch.cat([torch.ones_like(weights[:, :1]), self.reach * (weights - 1 / self.objectives)], dim=1)
        of_each = shares.unbind(dim=1)
        return {
            name: torch.stack(
                [share.view(-1, *[1] * len(shape)) * parts[f"{part} {name}"] for part, share in enumerate(of_each)]
            ).sum(dim=0)
            for name, shape in zip(layout.names, layout.shapes, strict=True)
        }


@dataclass(frozen=True)
class ExpectedLoss:
    """The mean of the scalarised losses of θ(λ) over random λ, as a function of c and δ."""

    algorithm: Span
    problem: SupervisedProblem
    learner: Learner

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """See Loss."""
        m = len(self.problem.objectives)
        spread, layout = Spread(self.algorithm.reach, m), self.problem.layout
        rows = batch.of(CENTRE)
        each = [
            self.learner.scalarised(self.problem.losses(spread.model(layout, parameters, weights), rows), weights)
            for weights in self.algorithm.weights(batch, m).unbind(dim=1)
        ]
        return torch.stack(each).mean(dim=0)
