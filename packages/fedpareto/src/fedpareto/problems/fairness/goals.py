"""Goals: what a fairness problem measures and minimises, shared by all of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract.problem import Objective
from fedpareto.problems.fairness.gaps import CONDITIONS, SENSITIVE, gap, hard_decisions, relaxed_gap, relaxed_gap_slopes
from fedpareto.tensors.rows import Batch

ACCURACY = "accuracy"
FEWEST, MOST = 2, 6


@dataclass(frozen=True)
class Goal:
    """Accuracy, or a notion of fairness towards the groups of a sensitive attribute."""

    kind: str
    attribute: str = ""
    """Sensitive attribute; "" where there is only one."""

    @property
    def name(self) -> str:
        """Name of the objective: "demographic-parity:gender"."""
        return f"{self.kind}:{self.attribute}" if self.attribute else self.kind

    @property
    def is_fairness(self) -> bool:
        return self.kind != ACCURACY

    @property
    def column(self) -> str:
        return sensitive_column(self.attribute)


def sensitive_column(attribute: str) -> str:
    return f"{SENSITIVE}:{attribute}" if attribute else SENSITIVE


def parse(names: Sequence[str], attributes: Sequence[str]) -> tuple[Goal, ...]:
    """Goals by name; a notion of fairness without an attribute counts for each of `attributes`."""
    goals: list[Goal] = []
    for name in names:
        kind, colon, attribute = (part.strip() for part in name.partition(":"))
        if kind not in (ACCURACY, *CONDITIONS):
            raise UnknownName("goal", kind, (ACCURACY, *CONDITIONS))
        if kind == ACCURACY and colon:
            raise UserError(f"goals: accuracy has no attribute, but '{name}' gives it one")
        if kind == ACCURACY or attribute or not attributes:
            goals.append(Goal(kind, attribute))
        else:
            goals += [Goal(kind, each) for each in attributes]
    if not FEWEST <= len(goals) <= MOST:
        raise UserError(
            f"goals are {', '.join(goal.name for goal in goals) or 'none'}; there must be {FEWEST} to {MOST}"
        )
    twice = next((goal.name for goal in goals if goals.count(goal) > 1), None)
    if twice:
        raise UserError(f"goals: '{twice}' is listed twice")
    return tuple(goals)


@dataclass(frozen=True)
class Criteria:
    """The goals of a problem as losses and as reported values."""

    goals: tuple[Goal, ...]
    groups: Mapping[str, int] = field(default_factory=dict)
    """Number of groups of each attribute; 2 if it is not named here."""
    relaxation: str = "tanh"
    steepness: float = 0.0
    regularisation: float = 0.1

    def objectives(self) -> tuple[Objective, ...]:
        """Accuracy and 1 − gap, from 0 on, as in chapter 5 of the thesis."""
        return tuple(
            Objective(goal.name, maximise=True, reference=0.0, lowest=0.0, highest=1.0, fairness=goal.is_fairness)
            for goal in self.goals
        )

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """`[n, m]`: cross entropy, and each relaxed gap plus a little cross entropy (eq. A.1 of the thesis).

        Several models of each client have logits `[n, k, b]` and losses `[n, k, m]`; `batch` is then `for_each`.
        """
        labels = batch.columns["label"].expand_as(logits)
        entropy = batch.mean(binary_cross_entropy_with_logits(logits, labels, reduction="none"))
        return torch.stack(
            [
                self._relaxed(goal, logits, batch) + self.regularisation * entropy if goal.is_fairness else entropy
                for goal in self.goals
            ],
            dim=-1,
        )

    def _relaxed(self, goal: Goal, logits: Tensor, batch: Batch) -> Tensor:
        count = self.groups.get(goal.attribute, 2)
        return relaxed_gap(self.relaxation, goal.kind, logits, batch, goal.column, count, self.steepness)

    @property
    def has_slopes(self) -> bool:
        """True if `slopes` is written out for the relaxation in use."""
        return self.relaxation != "covariance"

    def slopes(self, logits: Tensor, batch: Batch, weights: Tensor) -> Tensor:
        """∂(Σ_j w_j·loss_j)/∂logits, `[n, b]`, for weights `[n, m]`."""
        missed = (torch.sigmoid(logits) - batch.columns["label"]) * batch.shares
        found = torch.zeros_like(logits)
        for goal, weight in zip(self.goals, weights.unsqueeze(-1).unbind(1), strict=True):
            rises = missed
            if goal.is_fairness:
                of_gap = (goal.kind, logits, batch, goal.column, self.groups.get(goal.attribute, 2), self.steepness)
                rises = relaxed_gap_slopes(self.relaxation, *of_gap).add_(missed, alpha=self.regularisation)
            found.addcmul_(weight, rises)
        return found

    def values(self, logits: Tensor, batch: Batch) -> Tensor:
        """`[n, m]`: accuracy, and 1 − gap; 0 where a gap is unknown, so that no model is called fair unmeasured.

        As `losses`, also for several models of each client.
        """
        decisions = hard_decisions(logits)
        values = []
        for goal in self.goals:
            if goal.is_fairness:
                size, known = gap(goal.kind, decisions, batch, goal.column, self.groups.get(goal.attribute, 2))
                values.append((1 - size) * known)
            else:
                values.append(batch.mean((decisions == batch.columns["label"]).to(decisions.dtype)))
        return torch.stack(values, dim=-1)

    def known(self, batch: Batch) -> Tensor:
        """True for goals that can be measured on these rows, `[n, m]`."""
        nothing = torch.zeros_like(batch.mask)
        return torch.stack(
            [
                gap(goal.kind, nothing, batch, goal.column, self.groups.get(goal.attribute, 2)).known
                if goal.is_fairness
                else batch.mask.sum(-1) > 0
                for goal in self.goals
            ],
            dim=-1,
        )


def listed(names: tuple[str, ...]) -> list[str]:
    """Names given one by one, or in one text as "gender,race"; there, one with a comma in it is in quotes."""
    if len(names) != 1:
        return [name.strip() for name in names if name.strip()]
    (parts,) = csv.reader([names[0].replace("\n", " ")], skipinitialspace=True) if names[0].strip() else ([],)
    return [part.strip() for part in parts if part.strip()]
