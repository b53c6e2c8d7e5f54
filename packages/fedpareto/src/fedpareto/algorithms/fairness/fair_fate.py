"""FAIR-FATE: Salazar et al., "FAIR-FATE: fair federated learning with momentum", 2023.

The server measures fairness on rows of its own. The updates of clients that are fairer than the global model have a
momentum, which counts more and more beside the mean of all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms._shared.server_validated import Judged
from fedpareto.algorithms.averaging.fedavg import FedAvgState
from fedpareto.config.bounds import NotNegative, Share, ShareBelowOne
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting, Taxonomy, by_client
from fedpareto.contract.messages import Replies


@dataclass(frozen=True)
class FairFateState(FedAvgState):
    """The global model θ, and the momentum of fair updates."""

    momentum: Tensor = torch.empty(0)
    """v, `[d]`."""
    fairness: Tensor = torch.empty(0)
    """F of the last round, `[n]` in the order of `setting.clients`, less that of the model that was sent; 0 for
    those that did not take part.
    """


@dataclass(frozen=True)
class FairFate(Judged):
    """One global model: θ ← θ + λ_t v̂ + (1 − λ_t) α_N, α_N the mean update, v the momentum of α_F.

    α_F = Σ F_i (θ_i − θ) / Σ F_i over the clients with F_i > F(θ), the sum over criteria of what is measured on the
    server's rows, each scaled to 0 for the worst and 1 for the best of θ and all θ_i.
    """

    name: ClassVar[str] = "fair-fate"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation", "multi-criteria aggregation", "linearised preferences, momentum of fair updates", "arbitrary"
    )

    criteria: tuple[str, ...] = ()
    """The objectives by which a client is fair, by name; empty: the notions of fairness, or all where there is none."""
    lambda0: Share = 0.1
    """λ_0, the weight of the momentum at first; 0 is FedAvg."""
    rho: NotNegative = 0.05
    """ρ: λ_t = λ_0 (1 + ρ)^t."""
    most: Share = 1.0
    """The largest λ_t."""
    beta: ShareBelowOne = 0.9
    """β_0, how much of v is kept; it falls to 0 with the last round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lambda0 > self.most:
            raise UserError(f"lambda0 is {self.lambda0:g}; it is at most the value of most, {self.most:g}")

    def begin(self, setting: Setting) -> FairFateState:
        """θ⁰, at rest."""
        self._check(setting)
        unknown = setting.initial.new_zeros(len(setting.clients), dtype=torch.float64)
        at_rest = torch.zeros_like(setting.initial)
        return FairFateState(setting, model=setting.initial, momentum=at_rest, fairness=unknown)

    def _places(self, setting: Setting) -> list[int]:
        fair = [place for place, objective in enumerate(setting.objectives) if objective.fairness]
        return super()._places(setting) if self.criteria or not fair else fair

    def tell(self, state: FedAvgState, replies: Replies) -> FairFateState:
        """v ← β_t v + (1 − β_t) α_F and v̂ = v / (1 − β_t^t) in round t, with which θ moves."""
        assert isinstance(state, FairFateState), "a state made by begin"
        fairness = self._fairness(state.setting, torch.cat([state.model[None], replies["model"]]))
        ahead = (fairness[1:] > fairness[0]) * fairness[1:]
        share = ahead / ahead.sum() if ahead.any() else ahead
        fair = replies.sum("model", share, state.model).to(state.model)
        mean = replies.weighted_mean("model", self._weights(state, replies)) - state.model
        t, beta = state.round + 1, self.beta_of(state)
        weight = min(self.lambda0 * (1 + self.rho) ** t, self.most)
        momentum = beta * state.momentum + (1 - beta) * fair
        return replace(
            state,
            model=state.model + weight * momentum / (1 - beta**t) + (1 - weight) * mean,
            momentum=momentum,
            fairness=by_client(state.setting, replies, fairness[1:] - fairness[0]),
            round=t,
        )

    def beta_of(self, state: FedAvgState) -> float:
        """β_t = β_0 s / (1 − β_0 + β_0 s), with s the share of rounds that are left."""
        left = 1 - (state.round + 1) / state.setting.rounds
        return float(self.beta * left / (1 - self.beta + self.beta * left))

    def _fairness(self, setting: Setting, models: Tensor) -> Tensor:
        """F `[k]` of models `[k, d]`, among one another."""
        merits = self._merits(setting, models)
        lowest = merits.where(merits.isfinite(), math.inf).amin(0)
        # Where all are alike, or nothing was measured, nobody is ahead.
        return ((merits - lowest) / (merits.amax(0) - lowest)).clamp_min(0).nan_to_num(0.0, 0.0, 0.0).sum(1)

    def describe(self, state: FedAvgState) -> dict[str, Any]:
        """The gain in fairness of clients' models over the one that they were sent."""
        assert isinstance(state, FairFateState), "a state made by begin"
        return {"fairness": state.fairness.tolist()}
