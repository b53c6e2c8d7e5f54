"""FedMDFG: Pan et al., "FedMDFG: federated learning with multi-gradient descent and fair guidance", 2023.

Each client's loss is an objective. The server steps along a direction in which all losses fall and, where they are too
different, become more alike; clients then tell their losses for several lengths of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import AtLeast, Positive
from fedpareto.contract.algorithm import (
    Algorithm,
    Needs,
    Setting,
    State,
    Taxonomy,
    by_client,
    to_everyone,
    to_participants,
)
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part
from fedpareto.moo.min_norm import Array, min_norm_weights

SUFFICIENT = 1e-4
"""β: the share of the promised decrease that a step must have, as in the published code."""
STATIONARY = 1e-6
"""A direction shorter than this, as a share of the mean update, is not stretched to that one's length."""


@dataclass(frozen=True)
class FedMDFGState(State):
    """The global model ω, and between the two exchanges of a round what the first one told."""

    model: Tensor = torch.empty(0)
    """`[d]`."""
    direction: Tensor = torch.empty(0)
    """The direction: what a step of length 1 adds to ω, `[d]`."""
    losses: Tensor = torch.empty(0)
    """Losses of ω, by client, `[n]` in double precision."""
    slopes: Tensor = torch.empty(0)
    """Rate at which each client's loss falls along the direction, `[n]` in double precision."""
    fair: bool = False
    """True if losses are to become more alike in this round."""
    searching: bool = False
    """True once the direction is known, so that its length is next."""
    step: float = 0.0
    """η of the last round."""


@dataclass(frozen=True)
class FedMDFG(Algorithm[FedMDFGState]):
    """One global model: ω ← ω − η d, d the shortest mixture of the updates ḡ_i and of the fair-driven one.

    The ḡ_i are the clients' updates, all scaled to the mean length, in place of the paper's gradients. If the angle
    between the vector of losses l and (1, …, 1) is above θ, Σ_i h_i ḡ_i joins them, with h the direction in which l
    turns away from (1, …, 1) fastest. Clients that are absent in a round have no say in it: the paper remembers the
    last gradients of some.
    """

    name: ClassVar[str] = "fedmdfg"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, MGDA with fair guidance", "arbitrary"
    )
    exchanges: ClassVar[int] = 2
    waits: ClassVar[str] = "its second exchange measures steps along the direction that its first one has found"
    needs: ClassVar[Needs] = "Gram matrix"
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    reveals: ClassVar[tuple[str, ...]] = ("loss_before", "losses")

    angle: Annotated[float, AtLeast(0, 90)] = 11.25
    """θ in degrees: how unequal losses may be before they are to become more alike; 90: never."""
    server_lr: Positive = 1.0
    """The middle of the step sizes that are tried."""
    halvings: Annotated[int, AtLeast(0, 20)] = 5
    """s: steps from 2^s to 2^−s times server_lr are tried, up to 1 times where not all clients take part."""

    @property
    def steps(self) -> Array:
        """η, the longest first."""
        return np.asarray(self.server_lr * 2.0 ** np.arange(self.halvings, -self.halvings - 1, -1), dtype=np.float64)

    def begin(self, setting: Setting) -> FedMDFGState:
        """ω⁰."""
        w, none = setting.initial, setting.initial.new_zeros(len(setting.clients), dtype=torch.float64)
        return FedMDFGState(setting, model=w, direction=torch.zeros_like(w), losses=none, slopes=none)

    def ask(self, state: FedMDFGState) -> list[Tasks]:
        """Updates first, then losses along their common direction; of the same clients."""
        if state.searching:
            return to_participants(state, "search", model=state.model, direction=state.direction)
        return to_participants(state, model=state.model)

    def train(self, clients: Clients, message: Message) -> Message:
        """ω_i ← local training from ω; also l_i(ω)."""
        return {"model": clients.learn(message["model"]), "loss_before": clients.loss(message["model"])}

    def search(self, clients: Clients, message: Message) -> Message:
        """l_i of every step."""
        tried = [clients.loss(message["model"] + float(step) * message["direction"]) for step in self.steps]
        return {"losses": torch.stack(tried, dim=1)}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model and the loss of the one that was sent; then the losses of all steps."""
        return {
            "train": {"model": (setting.layout.size,), "loss_before": ()},
            "search": {"losses": (2 * self.halvings + 1,)},
        }

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """Losses beside the model."""
        return {**super().reply_parts, "loss_before": "losses", "losses": "losses"}

    def tell(self, state: FedMDFGState, replies: Replies) -> FedMDFGState:
        """The direction; then the longest step that is good for all, and makes losses more alike if that is wanted."""
        if state.searching:
            step = self._step(state, replies)
            model = state.model + step * state.direction
            return replace(state, model=model, step=step, searching=False, round=state.round + 1)
        return self._directed(state, replies)

    def _directed(self, state: FedMDFGState, replies: Replies) -> FedMDFGState:
        """Set the direction −d; an update of length 0 has no say in it."""
        gram = replies.gram("model", state.model).cpu().numpy()
        losses = replies["loss_before"].double().cpu().numpy()
        lengths = np.sqrt(gram.diagonal())
        alive = lengths > 0
        scales = np.zeros(len(gram))
        scales[alive] = lengths[alive].sum() / alive.sum() / lengths[alive] if alive.any() else 0.0
        k, fair = gram * np.outer(scales, scales), inequality(losses) > self.angle
        weights = np.zeros(len(k))
        weights[alive] = fair_weights(k[np.ix_(alive, alive)], losses[alive], fair)

        def placed(numbers: Array) -> Tensor:
            return by_client(state.setting, replies, torch.as_tensor(numbers, device=state.model.device))

        direction = replies.sum("model", torch.as_tensor(weights * scales), state.model).to(state.model)
        told = replace(state, losses=placed(losses), slopes=placed(k @ weights))
        return replace(told, direction=direction, fair=fair, searching=True)

    def _step(self, state: FedMDFGState, replies: Replies) -> float:
        """η: the first that is good for all; else the first that is good for their sum; else 0, the model stays."""
        rows = torch.as_tensor(state.setting.rows(replies.clients), device=state.losses.device)
        before, slopes = (numbers[rows].cpu().numpy() for numbers in (state.losses, state.slopes))
        everybody = len(replies) == len(state.setting.clients)
        first = 0 if everybody else self.halvings
        after, steps = replies["losses"].double().cpu().numpy().T[first:], self.steps[first:]
        good = (before - after >= SUFFICIENT * steps[:, None] * slopes).all(axis=1)
        if state.fair:
            good &= np.array([inequality(losses) < inequality(before) for losses in after])
        better = after.sum(axis=1) < before.sum()
        for wanted in (good, better):
            if wanted.any():
                return float(steps[wanted.argmax()])
        return 0.0

    def solutions(self, state: FedMDFGState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)

    def describe(self, state: FedMDFGState) -> dict[str, Any]:
        """The length of the last step, and whether it was to make losses more alike."""
        return {"step": state.step, "fair": state.fair}


def inequality(losses: Array) -> float:
    """The angle between losses `[n]` and (1, …, 1), in degrees."""
    length = np.linalg.norm(losses) * math.sqrt(len(losses))
    return math.degrees(math.acos(min(losses.sum() / length, 1.0))) if length > 0 else 0.0


def fair_weights(gram: Array, losses: Array, fair: bool) -> Array:
    """Weights of the updates `[n]`, in a mixture as long as their mean; below 0 where a loss may fall more slowly."""
    n = len(gram)
    if not n:
        return np.zeros(0)
    mixed = np.eye(n)
    if fair and inequality(losses) > 0:
        unit, even = losses / np.linalg.norm(losses), np.full(n, 1 / math.sqrt(n))
        away = (even @ unit) * unit - even
        mixed = np.vstack([mixed, away / np.linalg.norm(away)])
    weights = min_norm_weights(mixed @ gram @ mixed.T) @ mixed
    length, mean = (math.sqrt(max(float(one @ gram @ one), 0.0)) for one in (weights, np.full(n, 1 / n)))
    return np.asarray(weights * mean / length if length > STATIONARY * mean else weights)
