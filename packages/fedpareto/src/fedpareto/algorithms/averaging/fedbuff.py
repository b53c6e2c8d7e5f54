"""FedBuff: Nguyen et al., "Federated learning with buffered asynchronous aggregation", 2022."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import Positive
from fedpareto.contract.algorithm import Needs, Taxonomy
from fedpareto.contract.messages import Replies


@dataclass(frozen=True)
class FedBuff(FedAvg):
    """One global model and one step of the server for every K replies: θ ← θ + η Σ_i s(τ_i) Δ_i / K.

    K and s(τ) are the run's policy. Where everybody replies in time and η is 1, it is FedAvg.
    """

    name: ClassVar[str] = "fedbuff"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging", "arbitrary"
    )
    needs: ClassVar[Needs] = "weighted sum"
    sums: ClassVar[bool] = True
    policy: ClassVar[Literal["sync", "buffered", "asynchronous"]] = "buffered"

    weighting: Literal["size", "equal"] = "equal"
    """Weighting of clients: by their number of training rows (`size`), or equally, as in the paper."""
    server_lr: Positive = 1.0
    """η, the step size of the server."""

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """θ ← θ + η Σ_i Δ_i / K; what is late was brought to this θ before, with its weight."""
        shares = self.server_lr * self._shares(state, replies).double()
        step = replies.sum("model", shares, state.model)
        return replace(state, model=state.model + step.to(state.model), round=state.round + 1)
