"""FedFB: Zeng, Chen and Lee, "Improving fairness via federated learning", 2021.

FairBatch over the whole federation: the server weights rows by label y and group z, and adapts the weights to the gap
between the groups in the clients' losses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedpareto.config.bounds import NotNegative
from fedpareto.contract.algorithm import Algorithm, Needs, Setting, State, Taxonomy, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.groups import GroupedProblem, cells, comparison_of, differences, grouped, row_weights, sums
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.tensors.rows import Batch


@dataclass(frozen=True)
class FedFBState(State):
    """The global model, the weights, and whether the model is still to be measured before the round is over."""

    model: Tensor = torch.empty(0)
    """w, `[d]`."""
    weights: Tensor = torch.empty(0)
    """λ_{y,z} · N / M_z, the weight of a row, `[2, groups]`: at first 1, always from 0 to 2."""
    measuring: bool = False


@dataclass(frozen=True)
class FedFB(Algorithm[FedFBState]):
    """One global model, trained on cross entropy whose weights by label and group the server adapts.

    M_z of all N rows belong to group z. For demographic parity λ_{0,z} + λ_{1,z} = 2 M_z / N: a group as a whole keeps
    its weight. A round has two exchanges: training, and the losses of the new model. Preferences are not used.
    """

    name: ClassVar[str] = "fedfb"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside",
        "single-objective comparison",
        "loss reweighted by group from the server, averaging",
        "accuracy and group-fairness",
    )
    exchanges: ClassVar[int] = 2
    waits: ClassVar[str] = "its second exchange measures the model that its first one has made, on the same clients"
    requires: ClassVar[tuple[str, ...]] = ("groups",)
    needs: ClassVar[Needs] = "weighted sum"

    weight_lr: NotNegative = 0.3
    """α: in round t the weights move by α / √t times the gap; 0 is FedAvg on cross entropy."""

    # -- the server half -------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FedFBState:
        """w⁰, equal weights."""
        groups = comparison_of(setting, self.name).groups
        return FedFBState(setting, model=setting.initial, weights=setting.initial.new_ones(2, groups))

    def ask(self, state: FedFBState) -> list[Tasks]:
        """Every participant trains from w, then evaluates the new w."""
        if state.measuring:
            return to_participants(state, "measure", model=state.model)
        return to_participants(state, **self._sent(state))

    def tell(self, state: FedFBState, replies: Replies) -> FedFBState:
        """w ← Σ_i (n_i / Σ n) w_i with n_i the weight of the client's rows; in the second exchange λ moves."""
        if state.measuring:
            weights = self._moved(state, replies["losses"].sum(0), replies["rows"].sum(0))
            return replace(state, weights=weights, measuring=False, round=state.round + 1)
        mass = replies["mass"].clamp_min(torch.finfo(state.model.dtype).tiny)
        return replace(state, model=replies.sum("model", mass / mass.sum()), measuring=True)

    def _moved(self, state: FedFBState, losses: Tensor, rows: Tensor) -> Tensor:
        """λ_{0,z} ← λ_{0,z} + α_t F_z for z > 0, λ_{0,0} ← λ_{0,0} − α_t Σ_z F_z; the other way round for y = 1.

        F_z is the rate of positive decisions in group z less that in group 0, with losses in place of mistakes. Where
        groups are compared among the rows of a label, only the weights of this label move.
        """
        comparison = comparison_of(state.setting, self.name)
        positive = torch.stack([losses[0], rows[1] - losses[1]])
        gaps, _ = differences(positive, rows, comparison)
        gaps[:, 0] = -gaps[:, 1:].sum(-1)
        counts = comparison.among(rows)
        # The weights of rows are λ_{y,z} N / M_z, and so are their steps.
        steps = gaps * counts.sum(-1, keepdim=True) / counts.clamp_min(1)
        weights = state.weights.clone()
        for label, step in zip(comparison.labels, self.weight_lr / math.sqrt(state.round + 1) * steps, strict=True):
            if label != 1:
                weights[0] += step
            if label != 0:
                weights[1] -= step
        return weights.clamp(0, 2)

    def _sent(self, state: FedFBState) -> Message:
        return {"model": state.model, "weights": state.weights}

    def solutions(self, state: FedFBState) -> Parcels:
        """The global model for every client; fine-tuning uses the same weights."""
        return to_everyone(state, **self._sent(state))

    def describe(self, state: FedFBState) -> dict[str, Any]:
        """The weights of rows, by label and group."""
        return {"weights": state.weights.tolist()}

    # -- the client half -------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """w_i ← local training from w on weighted cross entropy, divided by the mean weight of the client's rows."""
        problem, weights = grouped(clients, self.name), message["weights"]
        everyone = clients.all_rows("train")
        mass = (row_weights(weights, cells(problem, everyone)) * everyone.mask).sum(-1)
        scale = clients.sizes / mass.clamp_min(1)
        given = {"weights": weights, "scale": scale}
        return {"model": clients.minimise(message["model"], problem.layout, Weighted(problem), given), "mass": mass}

    def measure(self, clients: Clients, message: Message) -> Message:
        """The sums of w's losses by label and group, and the numbers of rows."""
        problem, everyone = grouped(clients, self.name), clients.all_rows("train")
        here = cells(problem, everyone)
        with torch.no_grad():
            losses = problem.entropies(problem.layout.unflatten(message["model"]), everyone)
        return {"losses": sums(losses, here), "rows": here.sum(-1)}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model and the weight of the rows behind it; then losses and counts by label and group."""
        counts = (2, setting.comparison.groups if setting.comparison else 0)
        return {"train": {"model": (setting.layout.size,), "mass": ()}, "measure": {"losses": counts, "rows": counts}}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """Counts and sums of losses."""
        return dict.fromkeys(("mass", "losses", "rows"), (0.0, math.inf))


@dataclass(frozen=True)
class Weighted:
    """Cross entropy, weighted by label and group."""

    problem: GroupedProblem

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        """Losses `[n]`; `given` holds the weights `[n, 2, groups]`, and a scale `[n]`."""
        weights = row_weights(given["weights"], cells(self.problem, batch))
        return given["scale"] * batch.mean(weights * self.problem.entropies(parameters, batch))
