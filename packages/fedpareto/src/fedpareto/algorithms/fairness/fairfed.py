"""FairFed: Ezzeldin et al., "FairFed: enabling group fairness in federated learning", 2023.

A client whose local gap between groups is close to that of the whole federation gets more weight in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from fedpareto.algorithms.fairness import fairbatch
from fedpareto.config.bounds import NotNegative, Share
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.groups import Comparison, GroupedProblem, cells, comparison_of, differences, grouped, sums
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.tensors.rows import Batch


@dataclass(frozen=True)
class FairFedState(State):
    """The global model, and how far each client's weight is from its share of the rows."""

    model: Tensor = torch.empty(0)
    """θ, `[d]`."""
    shift: Tensor = torch.empty(0)
    """ω_k − n_k / Σ n, `[clients]`, in the order of `setting.clients`."""
    weights: tuple[float, ...] = ()
    """ω of the last round, of the clients that replied."""


@dataclass(frozen=True)
class FairFed(Algorithm[FairFedState]):
    """One global model: a mean whose weights shift from round to round towards clients with a typical gap.

    The local gaps F_k and the global one come from counts of rows and of positive decisions by label and group, which
    clients send. With more than two groups or several rates to compare, the largest difference counts. Preferences are
    not used.
    """

    name: ClassVar[str] = "fairfed"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation",
        "multi-criteria aggregation",
        "loss reweighted by group, fairness-aware averaging",
        "accuracy and group-fairness",
    )
    waits: ClassVar[str] = "it compares the gap of each client with that of all, counted on the same model"
    requires: ClassVar[tuple[str, ...]] = ("groups",)
    needs: ClassVar[Needs] = "weighted sum"

    beta: NotNegative = 1.0
    """β, the fairness budget: how strongly weights react to the distance of a local gap from the global one; 0 is
    FedAvg.
    """
    debias: Literal["fairbatch", "none"] = "fairbatch"
    """Training of clients: with FairBatch, or on plain cross entropy."""
    weight_lr: Share = 0.005
    """α of FairBatch: how much of a label's loss moves between groups after an epoch."""

    # -- the server half -------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FairFedState:
        """θ⁰, with weights by number of rows."""
        comparison_of(setting, self.name)
        return FairFedState(setting, model=setting.initial, shift=setting.initial.new_zeros(len(setting.clients)))

    def ask(self, state: FairFedState) -> list[Tasks]:
        """Every participant trains from θ."""
        return to_participants(state, model=state.model)

    def tell(self, state: FairFedState, replies: Replies) -> FairFedState:
        """ω_k ← ω_k − β (Δ_k − mean Δ), not below 0 and with the sum 1; then θ ← Σ_k ω_k θ_k."""
        places = state.setting.rows(replies.clients)
        sizes = replies["size"]
        natural = sizes / sizes.sum()
        comparison = comparison_of(state.setting, self.name)
        delta = _distances(replies["positive"], replies["rows"], comparison)
        weights = (natural + state.shift[places] - self.beta * (delta - delta.mean())).clamp_min(0)
        weights = weights / weights.sum() if weights.sum() > 0 else natural
        shift = state.shift.clone()
        shift[places] = weights - natural
        model = replies.sum("model", weights)
        return replace(state, model=model, shift=shift, weights=tuple(weights.tolist()), round=state.round + 1)

    def solutions(self, state: FairFedState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)

    def describe(self, state: FairFedState) -> dict[str, Any]:
        """The clients' weights."""
        return {"weights": list(state.weights)}

    # -- the client half -------------------------------------------------------------------------------------------

    def private_state(self, setting: Setting) -> Message:
        """FairBatch's λ, where it is in use."""
        if self.debias == "none":
            return {}
        return fairbatch.private_state(comparison_of(setting, self.name), setting.initial)

    def train(self, clients: Clients, message: Message) -> Message:
        """Counts θ's decisions on the client's rows, then trains from it."""
        theta, problem = message["model"], grouped(clients, self.name)
        everyone = clients.all_rows("train")
        here = cells(problem, everyone)
        with torch.no_grad():
            decisions = (problem.logits(problem.layout.unflatten(theta), everyone) > 0).to(theta.dtype)
        statistics = {"size": clients.sizes, "rows": here.sum(-1), "positive": sums(decisions, here)}
        return {"model": self._learn(clients, theta), **statistics}

    def _learn(self, clients: Clients, theta: Tensor) -> Tensor:
        if self.debias == "fairbatch":
            return fairbatch.learn(clients, theta, self.weight_lr, self.name)
        problem = grouped(clients, self.name)
        return clients.minimise(theta, problem.layout, Entropy(problem))

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, the number of rows, and the counts by label and group."""
        groups = setting.comparison.groups if setting.comparison else 0
        counts = (2, groups)
        return {"train": {"model": (setting.layout.size,), "size": (), "rows": counts, "positive": counts}}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        return {**super().reply_limits, "rows": (0.0, math.inf), "positive": (0.0, math.inf)}


@dataclass(frozen=True)
class Entropy:
    """Plain cross entropy."""

    problem: GroupedProblem

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        return batch.mean(self.problem.entropies(parameters, batch))


def _distances(positive: Tensor, rows: Tensor, comparison: Comparison) -> Tensor:
    """Δ_k = |F_k − F_global|, from counts `[k, 2, groups]`; for a client that lacks a group, of accuracy instead."""
    local, known = differences(positive, rows, comparison)
    of_all, _ = differences(positive.sum(0), rows.sum(0), comparison)
    right = positive[:, 1].sum(-1) + (rows - positive)[:, 0].sum(-1)
    accuracy = right / rows.sum((1, 2)).clamp_min(1)
    return torch.where(known, (local - of_all).abs().amax((1, 2)), (accuracy - accuracy.mean()).abs())
