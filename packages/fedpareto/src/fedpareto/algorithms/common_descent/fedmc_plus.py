"""FedMC+: Shen et al., "Multi-objective federated learning: balancing global performance and individual fairness",
2025.

The first objective is the mean loss, whose gradient is the mean update; the second is to conflict less with the client
from whose update that deviates most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.algorithms.common_descent.fedmgda_plus import CommonDescent, CommonDescentState
from fedpareto.config.bounds import Count, PositiveShare, ShareBelowOne
from fedpareto.contract.algorithm import Needs, Setting, Taxonomy
from fedpareto.contract.messages import Replies
from fedpareto.moo.conflict_averse import conflict_averse_weights
from fedpareto.moo.min_norm import Array


@dataclass(frozen=True)
class FedMCPlusState(CommonDescentState):
    """State with what was added to the mean updates of the last rounds, `[window, d]`, the latest first."""

    corrections: Tensor = torch.empty(0)


@dataclass(frozen=True)
class FedMCPlus(CommonDescent):
    """One global model: w ← w − η d, d = argmax_d min_i ⟨g_i, d⟩ with ‖d − g_0‖ ≤ c ‖g_0‖, g_0 the mean update.

    As c < 1, d descends for the mean; whoever stands against all others may lose by it. The convex programme is that of
    conflict-averse descent, which is how we read the abstract. Of the three additions that make FedMC+ out of FedMC, c
    falls as there; the sliding window is our reading, a mean over rounds of what is added to g_0; clients are not
    selected by their labels, which they would have to reveal.
    """

    name: ClassVar[str] = "fedmc-plus"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "clients as objectives", "linearised preferences, conflict-averse averaging", "arbitrary"
    )
    normalises: ClassVar[bool] = False
    needs: ClassVar[Needs] = "Gram matrix"

    c: ShareBelowOne = 0.5
    """Largest distance of d from the mean update, as a share of its length; 0 is FedAvg."""
    c_decay: PositiveShare = 1.0
    """Factor on c in every round; FedMC has 1."""
    window: Count = 1
    """Rounds whose corrections are averaged; FedMC has 1."""

    def begin(self, setting: Setting) -> FedMCPlusState:
        """w⁰; nothing was added yet."""
        nothing = setting.initial.new_zeros(self.window, len(setting.initial))
        return FedMCPlusState(**vars(super().begin(setting)), corrections=nothing)

    def tell(self, state: FedAvgState, replies: Replies) -> FedMCPlusState:
        """w ← w − η (g_0 + the mean correction of the window), as far as there have been so many rounds."""
        assert isinstance(state, FedMCPlusState), "a state made by begin"
        told = super().tell(replace(state, model=state.model), replies)
        assert isinstance(told, FedMCPlusState), "of the same kind"
        mean = replies.sum("model", self._shares(state, replies).double(), state.model).to(state.model)
        step = self.step_size(state)
        correction = (told.model - state.model) / step - mean
        corrections = torch.cat([correction[None], state.corrections[:-1]])
        model = state.model + step * (mean + corrections[: state.round + 1].mean(0))
        return replace(told, model=model, corrections=corrections)

    def _weigh(self, state: FedAvgState, replies: Replies, gram: Array, shares: Array) -> Array:
        """The shares of g_0, and what is added to them; their sum is above 1."""
        return shares + conflict_averse_weights(gram, shares, self.c * self.c_decay**state.round)
