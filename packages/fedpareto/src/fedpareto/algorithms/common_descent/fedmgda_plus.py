"""FedMGDA+: Hu et al., "Federated learning meets multi-objective optimization", 2022, algorithm 1.

Each client's loss is an objective. The server steps along the shortest mixture of the clients' directions. It is a
descent direction for all participants, and neither an added constant nor a factor on a client's loss changes it.

The step is a post-processing step (section V): put in front of any algorithm that averages like FedAvg, it replaces the
averaging, and the client side is unchanged. MGDA-Prox is such a pair. Relatives share the step and weigh otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import Count, Positive, PositiveShare, Share
from fedpareto.contract.algorithm import Needs, Setting, Taxonomy, by_client
from fedpareto.contract.messages import Message, Replies
from fedpareto.moo.box_simplex import box_min_norm_weights
from fedpareto.moo.min_norm import Array


@dataclass(frozen=True)
class CommonDescentState(FedAvgState):
    """The global model w, and the clients' last weights."""

    weights: Tensor = torch.empty(0)
    """λ `[n]` in the order of `setting.clients`, 0 for those that did not take part."""


@dataclass(frozen=True)
class CommonDescent(FedAvg):
    """w ← w − η_t Σ_i λ_i ḡ_i with ḡ_i the client's update g_i = w − w_i, or its direction."""

    needs: ClassVar[Needs] = "Gram matrix"
    of_server: ClassVar[tuple[str, ...]] = ("server_lr", "decay", "decay_every", "epsilon")
    normalises: ClassVar[bool] = True
    """True for ḡ_i = g_i / ‖g_i‖ (line 5 of algorithm 1), false for g_i itself."""

    weighting: Literal["size", "equal"] = "equal"
    """λ0, the weighting of clients: by their number of training rows (`size`), or equally, as in the published code."""
    server_lr: Positive = 1.0
    """η, the step size of the server; where updates are normalised, the longest step of the model in a round."""
    decay: PositiveShare = 1.0
    """Final η as a share of the first (the paper tries 1/40 to 1/2); 1: η stays as it is."""
    decay_every: Count = 100
    """Rounds after which η falls, always by the same factor."""

    def begin(self, setting: Setting) -> CommonDescentState:
        """w⁰."""
        weights = setting.initial.new_zeros(len(setting.clients), dtype=torch.float64)
        return CommonDescentState(**vars(super().begin(setting)), weights=weights)

    def tell(self, state: FedAvgState, replies: Replies) -> CommonDescentState:
        """λ from the updates' Gram matrix, whose diagonal is their squared lengths; then one step along the mixture."""
        assert isinstance(state, CommonDescentState), "a state made by begin"
        gram = replies.gram("model", state.model).cpu().numpy()
        scales = _inverse(np.sqrt(gram.diagonal())) if self.normalises else np.ones(len(replies))
        shares = self._shares(state, replies).double().cpu().numpy()
        weights = self._weigh(state, replies, gram * np.outer(scales, scales), shares / shares.sum())
        step = replies.sum("model", torch.as_tensor(weights * scales), state.model)
        model = state.model + (self.step_size(state) * step).to(state.model)
        placed = by_client(state.setting, replies, torch.as_tensor(weights, device=model.device))
        return replace(state, model=model, weights=placed, round=state.round + 1)

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """Take a late reply in full from the w that it meets: the shortest mixture gives a shorter update more weight,
        not less.
        """
        return super().refreshed(reply, begun, now, torch.ones_like(weights))

    @abstractmethod
    def _weigh(self, state: FedAvgState, replies: Replies, gram: Array, shares: Array) -> Array:
        """λ `[n]`, from the inner products of the ḡ_i, from λ0, and from the few numbers that clients sent."""

    def step_size(self, state: FedAvgState) -> float:
        """η_t = η β^⌊t/100⌋ with β = decay^(100/T)."""
        fallen = self.decay_every * (state.round // self.decay_every)
        return float(self.server_lr * self.decay ** (fallen / state.setting.rounds))

    def describe(self, state: FedAvgState) -> dict[str, Any]:
        """The clients' weights."""
        assert isinstance(state, CommonDescentState), "a state made by begin"
        return {"weights": state.weights.tolist()}


@dataclass(frozen=True)
class FedMGDAPlus(CommonDescent):
    """One global model: w ← w − η_t d_t with d_t the shortest mixture of normalised updates within ε of λ0."""

    name: ClassVar[str] = "fedmgda-plus"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, MGDA over normalised clients", "arbitrary"
    )

    epsilon: Share = 0.1
    """ε: how far a client's weight may be from λ0; 0 is FedAvg-n, 1 leaves the weights free."""

    def _weigh(self, state: FedAvgState, replies: Replies, gram: Array, shares: Array) -> Array:
        """λ* = argmin ‖Σ_i λ_i ḡ_i‖² over the simplex with ‖λ − λ0‖_∞ ≤ ε (eq. 23 and 25, line 6); of equally good
        weights those nearest λ0.
        """
        return box_min_norm_weights(gram, shares, self.epsilon)


def _inverse(lengths: Array) -> Array:
    """1 / length; 0 for an update that is zero, which has no direction."""
    return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
