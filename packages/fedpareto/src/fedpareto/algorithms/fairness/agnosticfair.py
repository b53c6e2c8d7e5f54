"""AgnosticFair: Du et al., "Fairness-aware agnostic federated learning", 2021.

A model for the worst mixture of the clients: the server gives clients with high losses more weight, and clients train
for accuracy and against the covariance of group and decision score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpareto.algorithms._shared import worst_mixture
from fedpareto.algorithms._shared.worst_mixture import MixtureState
from fedpareto.config.bounds import NotNegative
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.groups import GroupedProblem, cells, comparison_of, grouped
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.tensors.rows import Batch


@dataclass(frozen=True)
class AgnosticFair(Algorithm[MixtureState]):
    """min_w max_α Σ_k α_k L_k(w) with L_k the cross entropy plus a penalty on the covariance of group and score.

    The paper weights single rows by kernel functions and bounds the covariance; here clients are weighted, as in
    agnostic federated learning (Mohri et al., 2019), and the bound is a penalty. Preferences are not used.
    """

    name: ClassVar[str] = "agnosticfair"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation",
        "multi-criteria aggregation",
        "covariance penalty, averaging for the worst mixture",
        "accuracy and group-fairness",
    )
    requires: ClassVar[tuple[str, ...]] = ("groups",)
    needs: ClassVar[Needs] = "weighted sum"

    penalty: NotNegative = 2.0
    """Weight of the squared covariance of group and score beside cross entropy."""
    weight_lr: NotNegative = 0.1
    """Step size of α's ascent; 0 weights all clients equally."""

    # -- the server half -------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> MixtureState:
        """w⁰, equal weights."""
        comparison_of(setting, self.name)
        weights = (1 / len(setting.clients),) * len(setting.clients)
        return MixtureState(setting, model=setting.initial, weights=weights, losses=worst_mixture.unheard(setting))

    def ask(self, state: MixtureState) -> list[Tasks]:
        """Every participant trains from w."""
        return to_participants(state, model=state.model)

    def tell(self, state: MixtureState, replies: Replies) -> MixtureState:
        """w ← Σ_k α_k w_k, and α ← Π(α + η L(w)) with the losses of the w that was sent."""
        return replace(worst_mixture.stepped(state, replies, "loss", self.weight_lr), round=state.round + 1)

    def solutions(self, state: MixtureState) -> Parcels:
        """The global model for every client."""
        return to_everyone(state, model=state.model)

    def describe(self, state: MixtureState) -> dict[str, Any]:
        """The clients' weights."""
        return {"weights": list(state.weights)}

    # -- the client half -------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """w_k ← local training from w on L_k; also L_k(w)."""
        problem, w = grouped(clients, self.name), message["model"]
        loss = Penalised(problem, self.penalty)
        with torch.no_grad():
            before = loss(problem.layout.unflatten(w), clients.all_rows("train"), {})
        return {"model": clients.minimise(w, problem.layout, loss), "loss": before}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, and the loss of the one that was sent."""
        return {"train": {"model": (setting.layout.size,), "loss": ()}}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """Losses are not negative."""
        return {"loss": (0.0, math.inf)}


@dataclass(frozen=True)
class Penalised:
    """L_k: cross entropy, and the penalty on the covariance of group and score."""

    problem: GroupedProblem
    penalty: float

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        entropy = batch.mean(self.problem.entropies(parameters, batch))
        return entropy + self.penalty * squared_covariance(self.problem, parameters, batch)


def squared_covariance(problem: GroupedProblem, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
    """cov(s, f)² of group s and score f among the rows that are compared, `[n]`, summed over the comparisons.

    For more than two groups it is half the sum over the groups' indicators, which for two is the same.
    """
    scores = problem.logits(parameters, batch).unsqueeze(1)
    here, total = cells(problem, batch), torch.zeros_like(batch.mask[:, 0])
    for label in problem.comparison.labels:
        of_group = here.sum(1) if label is None else here[:, label]
        rows = of_group.sum((1, 2)).clamp_min(1)
        share = of_group.sum(-1, keepdim=True) / rows[:, None, None]
        centred = (of_group - share) * of_group.sum(1, keepdim=True)
        covariances = (centred * scores).sum(-1) / rows.unsqueeze(-1)
        total = total + covariances.square().sum(-1) / 2
    return total
