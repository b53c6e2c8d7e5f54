"""FairTrade: Badar, Sikdar, Nejdl and Fisichella, "FairTrade: achieving Pareto-optimal trade-offs between balanced
accuracy and fairness in federated learning", 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.bounds import NotNegative, Positive, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Needs, Setting, Taxonomy, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.groups import Comparison, GroupedProblem, cells, comparison_of, differences, grouped, sums
from fedpareto.contract.learner import STEP_FACTOR
from fedpareto.contract.messages import Message, Replies, Shapes, Tasks
from fedpareto.moo import bayesian
from fedpareto.tensors.rows import Batch

STEPS = 21
"""Points of the lattice of proposals, in each direction."""
WORST = np.ones(2)
"""The reference point: neither balanced error nor gap is above 1."""


@dataclass(frozen=True)
class FairTradeState(FedAvgState):
    """The global model, and what was tried."""

    tried: Tensor = torch.empty(0, 2)
    """The proposals since the search began anew, in the unit square, `[t, 2]`; the last is that of the next round."""
    seen: Tensor = torch.empty(0, 2)
    """Balanced error and gap of the models that they made, `[t − 2, 2]`: of the last two none is known yet."""


@dataclass(frozen=True)
class FairTrade(FedAvg):
    """FedAvg whose server chooses fairness weight and step size of each round by Bayesian optimisation.

    Clients minimise cross entropy plus α times the squared differences between groups' mean probabilities, with σ times
    the step size of their learner. They count right decisions and those for each group by the model that they were
    sent, from which the server has its balanced error and gap. Two Gaussian processes predict both for every (α, σ);
    the next pair is that with the largest expected improvement of the hypervolume.

    The paper's server measures on test rows of its own; here nobody needs any, and a measurement is one round late. Its
    cross entropy has a weight of 10 on positive rows. Preferences are not used.
    """

    name: ClassVar[str] = "fairtrade"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "federation",
        "online hyper-parameter tuning",
        "penalty on differences between groups, multi-objective Bayesian optimisation",
        "accuracy and group-fairness",
    )
    waits: ClassVar[str] = "the counts in a reply tell what the proposal of the round before was worth"
    needs: ClassVar[Needs] = "weighted sum"
    finds_steps: ClassVar[bool] = True
    requires: ClassVar[tuple[str, ...]] = ("groups",)

    fairness: NotNegative = 1.0
    """α of the first proposal."""
    step: Positive = 1.0
    """σ of the first proposal: a factor on the learner's step size."""
    fairness_range: tuple[float, float] = (0.1, 10.0)
    """Smallest and largest α, on a logarithmic scale."""
    step_range: tuple[float, float] = (0.25, 2.0)
    """Smallest and largest σ, on a logarithmic scale."""
    proposals: Whole = 10
    """Number of proposals that follow the first before the search begins anew, as the model has changed since; 0: none,
    which is FedAvg with a fixed penalty.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fairness", "step"):
            low, high = getattr(self, f"{name}_range")
            if not 0 < low < high < math.inf:
                raise UserError(f"{name}_range is [{low:g}, {high:g}]; it is a smaller and a larger positive number")

    # -- the server half -------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FairTradeState:
        """θ⁰ and the first proposal."""
        comparison_of(setting, self.name)
        nothing = torch.empty(0, 2, dtype=torch.float64)
        return FairTradeState(setting, model=setting.initial, tried=self._first(), seen=nothing)

    def ask(self, state: FedAvgState) -> list[Tasks]:
        """Every participant trains from θ with the proposal."""
        assert isinstance(state, FairTradeState)
        proposal = torch.tensor(self.proposed(state), dtype=torch.float64).to(state.model)
        return to_participants(state, model=state.model, proposal=proposal)

    def tell(self, state: FedAvgState, replies: Replies) -> FairTradeState:
        """θ ← mean; what the last but one proposal made is known now, and the next one is found."""
        assert isinstance(state, FairTradeState)
        model = replies.weighted_mean("model", self._weights(state, replies))
        state = replace(state, model=model, round=state.round + 1)
        if len(state.tried) > self.proposals:
            return replace(state, tried=self._first(), seen=state.seen[:0])
        tried, seen = state.tried.cpu(), state.seen.cpu()
        if len(tried) > 1:
            positive, rows = (replies[name].double().sum(0).cpu() for name in ("positive", "rows"))
            values = measured(positive, rows, comparison_of(state.setting, self.name))
            seen = torch.cat([seen, torch.tensor([values], dtype=torch.float64)])
        found = bayesian.proposal(tried.numpy(), seen.numpy(), WORST, bayesian.lattice(2, STEPS))
        return replace(state, tried=torch.cat([tried, torch.from_numpy(found)[None]]), seen=seen)

    def proposed(self, state: FairTradeState) -> tuple[float, float]:
        """(α, σ) of the next round."""
        if len(state.tried) == 1:
            return self.fairness, self.step
        place = state.tried[-1].tolist()
        ranges = (self.fairness_range, self.step_range)
        alpha, sigma = (low * (high / low) ** x for x, (low, high) in zip(place, ranges, strict=True))
        return alpha, sigma

    def _first(self) -> Tensor:
        """Place of the first proposal in the unit square, `[1, 2]`; outside of the ranges it is at the border."""
        pairs = ((self.fairness, self.fairness_range), (self.step, self.step_range))
        places = [math.log(min(max(x, low), high) / low) / math.log(high / low) for x, (low, high) in pairs]
        return torch.tensor([places], dtype=torch.float64)

    def describe(self, state: FedAvgState) -> dict[str, Any]:
        """The next proposal, and what is known of those before it."""
        assert isinstance(state, FairTradeState)
        fairness, step = self.proposed(state)
        return {"fairness": fairness, "step": step, "balanced error and gap": state.seen.tolist()}

    # -- the client half -------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """Counts θ's decisions on the client's rows, then trains from it with (α, σ)."""
        problem, theta, everyone = grouped(clients, self.name), message["model"], clients.all_rows("train")
        here = cells(problem, everyone)
        with torch.no_grad():
            decisions = (problem.logits(problem.layout.unflatten(theta), everyone) > 0).to(theta.dtype)
        alpha, sigma = message["proposal"].unbind(-1)
        given = {"fairness": alpha.clone(), STEP_FACTOR: sigma.clone()}
        model = clients.minimise(theta, problem.layout, Penalised(problem), given)
        return {**self._reply(clients, model), "rows": here.sum(-1), "positive": sums(decisions, here)}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        counts = (2, setting.comparison.groups if setting.comparison else 0)
        return {"train": {**super().reply_shapes(setting)["train"], "rows": counts, "positive": counts}}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        return {**super().reply_limits, "rows": (0.0, math.inf), "positive": (0.0, math.inf)}


@dataclass(frozen=True)
class Penalised:
    """L + α Σ_z (p_z − p_0)²: cross entropy, and how far each group's mean probability is from that of the first."""

    problem: GroupedProblem

    def __call__(self, parameters: Mapping[str, Tensor], batch: Batch, given: Message) -> Tensor:
        here = cells(self.problem, batch)
        probabilities = self.problem.logits(parameters, batch).sigmoid()
        gaps, _ = differences(sums(probabilities, here), here.sum(-1), self.problem.comparison)
        entropy = batch.mean(self.problem.entropies(parameters, batch))
        return entropy + given["fairness"] * gaps.square().sum((-2, -1))


def measured(positive: Tensor, rows: Tensor, comparison: Comparison) -> tuple[float, float]:
    """Balanced error and largest gap between groups, from counts `[2, groups]` by label and group.

    A label that nobody has counts as decided by a coin.
    """
    wrong, of_label = torch.stack([positive[0], (rows - positive)[1]]).sum(-1), rows.sum(-1)
    errors = torch.where(of_label > 0, wrong / of_label.clamp_min(1), torch.full_like(of_label, 0.5))
    gaps, _ = differences(positive, rows, comparison)
    return float(errors.mean()), float((gaps.amax(-1) - gaps.amin(-1)).max())
