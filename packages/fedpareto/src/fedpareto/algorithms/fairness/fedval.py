"""FedVal: Mehrabi et al., "Towards multi-objective statistically fair federated learning", 2022.

The server scores every reply by several criteria on rows of its own, ranks the clients by each of them, and weighs them
by their ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms._shared.server_validated import Judged
from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.config.bounds import NotNegative
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting, Taxonomy, by_client
from fedpareto.contract.messages import Replies


@dataclass(frozen=True)
class FedValState(FedAvgState):
    """The global model θ, and what the server thought of the clients in the last round."""

    scores: Tensor = torch.empty(0)
    """s `[n]` in the order of `setting.clients`: 1 for the last by every criterion, K for the first of K replies; 0 for
    those that did not take part.
    """


@dataclass(frozen=True)
class FedVal(Judged):
    """One global model: a mean in which clients weigh by how they rank on the server's rows.

    Of the paper we know that scores by rank for each criterion are added up with weights, and that these make the
    weights of the mean. That weights are proportional to the sum, and that equal values share a rank, is ours.
    """

    name: ClassVar[str] = "fedval"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "multi-criteria aggregation", "linearised preferences, ranks by every objective", "arbitrary"
    )

    weighting: Literal["size", "equal"] = "equal"
    """Weighting of clients: by their ranks times their number of training rows (`size`), or by their ranks alone."""
    importance: tuple[float, ...] = ()
    """λ, how much each criterion counts, in their order; empty: all alike."""
    sharpness: NotNegative = 1.0
    """p: weights are scores to this power; 0 is FedAvg, and the larger, the less the last ones count."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.importance and (min(self.importance) < 0 or not 0 < sum(self.importance) < math.inf):
            raise UserError(f"importance is {list(self.importance)}; its entries are not negative and not all 0")

    def begin(self, setting: Setting) -> FedValState:
        """θ⁰."""
        self._check(setting)
        criteria = len(self._places(setting))
        if self.importance and len(self.importance) != criteria:
            raise UserError(f"importance has {len(self.importance)} entries for {criteria} criteria")
        scores = setting.initial.new_zeros(len(setting.clients), dtype=torch.float64)
        return FedValState(setting, model=setting.initial, scores=scores)

    def tell(self, state: FedAvgState, replies: Replies) -> FedValState:
        """θ ← Σ_i w_i θ_i with w_i ∝ s_i^p (times n_i), where s_i = Σ_j λ_j r_ij."""
        assert isinstance(state, FedValState), "a state made by begin"
        rank = ranks(self._merits(state.setting, replies["model"]))
        importance = rank.new_tensor(self.importance or [1.0] * rank.shape[1])
        scores = rank @ (importance / importance.sum())
        weights = scores**self.sharpness * self._weights(state, replies)
        model = replies.sum("model", (weights / weights.sum()).to(state.model))
        return replace(state, model=model, scores=by_client(state.setting, replies, scores), round=state.round + 1)

    def describe(self, state: FedAvgState) -> dict[str, Any]:
        """The clients' scores."""
        assert isinstance(state, FedValState), "a state made by begin"
        return {"scores": state.scores.tolist()}


def ranks(values: Tensor) -> Tensor:
    """r of k clients by each criterion, `[k, c]`: 1 for the smallest value up to k; equal ones share their mean."""
    below = (values[:, None] > values[None]).sum(1).to(values)
    equal = (values[:, None] == values[None]).sum(1).to(values)
    return below + (equal + 1) / 2
