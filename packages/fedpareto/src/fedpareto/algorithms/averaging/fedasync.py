"""FedAsync: Xie, Koyejo, Gupta, "Asynchronous federated optimization", 2019."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import PositiveShare
from fedpareto.contract.algorithm import Needs, Taxonomy
from fedpareto.contract.messages import Message, Replies


@dataclass(frozen=True)
class FedAsync(FedAvg):
    """One global model, into which every reply is mixed when it arrives: θ ← θ + α s(τ) (θ_i − θ).

    The run's policy says what s(τ) is: a reply that began τ steps of the server ago counts less.
    """

    name: ClassVar[str] = "fedasync"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, mixing", "arbitrary"
    )
    needs: ClassVar[Needs] = "weighted sum"
    policy: ClassVar[Literal["sync", "buffered", "asynchronous"]] = "asynchronous"

    weighting: Literal["size", "equal"] = "equal"
    """Weighting of clients: by their number of training rows (`size`), or equally, as in the paper."""
    mixing: PositiveShare = 0.6
    """α: what a fresh reply counts."""
    mixes: Literal["models", "updates"] = "models"
    """Object of the mixing: a late reply is mixed as the model that it is, as in the paper, or by what it changed of
    the model from which it began: then it is FedBuff with a buffer of one.
    """

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """θ + s(τ) (θ_i − θ), with the θ that a late reply meets."""
        return super().refreshed(reply, now if self.mixes == "models" else begun, now, weights)

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """θ ← (1 − α_i) θ + α_i θ_i, one reply after the other; α_i is α, or by its client's share of their rows."""
        alpha = (self.mixing * len(replies) * self._shares(state, replies).double()).clamp(max=1)
        left = torch.cumprod(1 - alpha.flip(0), dim=0).flip(0)  # Share of the model before reply i that stays.
        weights = alpha * torch.cat([left[1:], left.new_ones(1)])
        step = replies.sum("model", weights, state.model)
        return replace(state, model=state.model + step.to(state.model), round=state.round + 1)
