"""FCFL: Cui et al., "Addressing algorithmic disparity and performance inconsistency in federated learning", 2021.

Each client's loss is an objective. First the worst of them is made small, by a smooth stand-in for the largest loss;
then the mean is, along directions in which nobody's loss grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.algorithms.common_descent.fedmgda_plus import CommonDescent
from fedpareto.config.bounds import Positive, PositiveShare, Share
from fedpareto.contract.algorithm import Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Replies, Shapes
from fedpareto.contract.privacy import Part
from fedpareto.moo.epo import programme
from fedpareto.moo.min_norm import Array, normalised


@dataclass(frozen=True)
class FCFL(CommonDescent):
    """One global model: w ← w − η Σ_i λ_i g_i with the clients' updates as they are, in two stages.

    The paper's gradients are the updates g_i = w − w_i of local training here, and its bounds on each client's
    disparity are left out (its ε = ∞): group fairness is part of a client's own objective, by its preference. The
    server learns the value of that.
    """

    name: ClassVar[str] = "fcfl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, min-max then Pareto descent", "arbitrary"
    )
    normalises: ClassVar[bool] = False
    requires: ClassVar[tuple[str, ...]] = ("losses",)
    reveals: ClassVar[tuple[str, ...]] = ("loss_before",)

    first_stage: Share = 0.5
    """The share of the rounds that are for the worst client; 0: all are for the mean."""
    delta: Positive = 0.1
    """δ: how much smaller than the largest a loss may be and still count; the paper lets it fall to 0."""
    delta_decay: PositiveShare = 1.0
    """Factor on δ in every round."""

    def train(self, clients: Clients, message: Message) -> Message:
        """w_i ← local training from w; also F_i(w)."""
        return {**super().train(clients, message), "loss_before": clients.loss(message["model"])}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and the loss of the one that was sent."""
        return {"train": {**super().reply_shapes(setting)["train"], "loss_before": ()}}

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """A loss beside the model."""
        return {**super().reply_parts, "loss_before": "losses"}

    def _weigh(self, state: FedAvgState, replies: Replies, gram: Array, shares: Array) -> Array:
        """Stage 1: λ_i ∝ exp(F_i / δ), the gradient of the smooth maximum. Stage 2: of all mixtures with which no
        client's loss grows, Kλ ≥ 0, the one that is best for the mean.
        """
        if state.round < self.first_stage * state.setting.rounds:
            losses = replies["loss_before"].double().cpu().numpy()
            weights = shares * np.exp((losses - losses.max()) / (self.delta * self.delta_decay**state.round))
            return np.asarray(weights / weights.sum())
        k = normalised(gram)
        return programme(k, objective=k @ shares, at_least=np.zeros(len(k)))
