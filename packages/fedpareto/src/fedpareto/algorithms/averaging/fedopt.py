"""The server's step as an optimiser's: FedAvgM, FedAdam and FedYogi.

Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual classification", 2019;
Reddi et al., "Adaptive federated optimization", 2021, algorithm 2.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import Positive, ShareBelowOne
from fedpareto.contract.algorithm import Needs, Setting, Taxonomy
from fedpareto.contract.messages import Replies


@dataclass(frozen=True)
class FedOptState(FedAvgState):
    """The global model θ and the moments of the clients' mean updates, `[d]` each."""

    first: Tensor = torch.empty(0)
    """m."""
    second: Tensor = torch.empty(0)
    """v."""


@dataclass(frozen=True)
class FedOpt(FedAvg):
    """FedAvg, whose mean update Δ is not added to θ but taken as a gradient by the server's own optimiser."""

    needs: ClassVar[Needs] = "weighted sum"
    sums: ClassVar[bool] = True

    server_lr: Positive = 1.0
    """η, the server's step size."""
    beta: ShareBelowOne = 0.9
    """β₁, how much of the last mean update is kept."""

    def begin(self, setting: Setting) -> FedOptState:
        """θ⁰, at rest."""
        nothing = torch.zeros_like(setting.initial)
        return FedOptState(setting, model=setting.initial, first=nothing, second=nothing)

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        """The optimiser's step along Δ = Σ_i (n_i / Σ n) θ_i − θ."""
        assert isinstance(state, FedOptState), "a state made by begin"
        update = replies.weighted_mean("model", self._weights(state, replies)) - state.model
        return replace(self.stepped(state, update), round=state.round + 1)

    @abstractmethod
    def stepped(self, state: FedOptState, update: Tensor) -> FedOptState:
        """θ, m and v after a step along `update` `[d]`."""


@dataclass(frozen=True)
class FedAvgM(FedOpt):
    """Server momentum: m ← β m + Δ, θ ← θ + η m. β = 0 and η = 1 is FedAvg."""

    name: ClassVar[str] = "fedavgm"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, averaging with server momentum", "arbitrary"
    )

    def stepped(self, state: FedOptState, update: Tensor) -> FedOptState:
        first = self.beta * state.first + update
        return replace(state, model=state.model + self.server_lr * first, first=first)


@dataclass(frozen=True)
class _Adaptive(FedOpt):
    """Steps that are shorter where updates are large: θ ← θ + η m / (√v + τ), with m ← β₁ m + (1 − β₁) Δ."""

    server_lr: float = 0.03
    """η, the server's step size: about how far a parameter moves in a round."""
    beta2: ShareBelowOne = 0.99
    """β₂, how much of the last v is kept."""
    tau: Positive = 0.001
    """τ, which keeps the step finite where updates are tiny; v begins at τ²."""

    def begin(self, setting: Setting) -> FedOptState:
        """v⁰ = τ², the least that the paper allows."""
        begun = super().begin(setting)
        return replace(begun, second=torch.full_like(setting.initial, self.tau**2))

    def stepped(self, state: FedOptState, update: Tensor) -> FedOptState:
        first = self.beta * state.first + (1 - self.beta) * update
        second = self.squares(state.second, update.square())
        model = state.model + self.server_lr * first / (second.sqrt() + self.tau)
        return replace(state, model=model, first=first, second=second)

    @abstractmethod
    def squares(self, second: Tensor, square: Tensor) -> Tensor:
        """v after a round whose mean update has the square Δ²."""


@dataclass(frozen=True)
class FedAdam(_Adaptive):
    """Adam at the server: v ← β₂ v + (1 − β₂) Δ²."""

    name: ClassVar[str] = "fedadam"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging with Adam at the server",
        "arbitrary",
    )

    def squares(self, second: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * second + (1 - self.beta2) * square


@dataclass(frozen=True)
class FedYogi(_Adaptive):
    """Yogi at the server: v ← v − (1 − β₂) Δ² sign(v − Δ²), which forgets large updates more slowly than Adam."""

    name: ClassVar[str] = "fedyogi"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "linearised preferences, averaging with Yogi at the server",
        "arbitrary",
    )

    def squares(self, second: Tensor, square: Tensor) -> Tensor:
        return second - (1 - self.beta2) * square * (second - square).sign()
