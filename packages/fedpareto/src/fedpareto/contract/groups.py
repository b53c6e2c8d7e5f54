"""Group fairness as algorithms see it: decisions, counted and weighted by label y and group z."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from fedpareto.config.errors import UserError
from fedpareto.contract.problem import SupervisedProblem, of_each
from fedpareto.contract.stack import Stack
from fedpareto.tensors.rows import Batch, Rows


@dataclass(frozen=True)
class Comparison:
    """The groups, and the rows, for which group fairness compares the rates of positive decisions."""

    groups: int
    labels: tuple[int | None, ...]
    """Among the rows with these labels, each label separately; None: among all rows, which is demographic parity."""

    def among(self, counts: Tensor) -> Tensor:
        """The counts by label and group, `[..., 2, groups]`, that are compared: `[..., labels, groups]`."""
        parts = [counts.sum(-2) if label is None else counts[..., label, :] for label in self.labels]
        return torch.stack(parts, dim=-2)


class GroupedProblem(SupervisedProblem):
    """A problem of binary decisions about people of several groups."""

    @property
    @abstractmethod
    def comparison(self) -> Comparison:
        """The comparison of the first objective that is a notion of fairness."""

    @abstractmethod
    def groups(self, batch: Batch) -> Tensor:
        """Each row's group in that comparison, `[n, b]`: 0, 1, …; below 0: none."""

    @abstractmethod
    def labels(self, batch: Batch) -> Tensor:
        """The true labels, 0 or 1, `[n, b]`."""

    def classes(self) -> tuple[str, int] | None:
        """A binary label under the usual name."""
        return "label", 2

    @abstractmethod
    def logits(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The logits of n models for their rows, `[n, b]`; above 0 is positive."""

    def logits_each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The logits of k models for each client, `[n, k, b]`; they share some layers, see
        SupervisedProblem.losses_each.
        """
        return of_each(self.logits, shared, own, batch)

    @abstractmethod
    def values(self, logits: Tensor, batch: Batch) -> Tensor:
        """The objectives as they are reported, `[n, m]`, of the decisions that `logits` `[n, b]` make."""

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The objectives as they are reported, `[n, m]`, of n models."""
        return self.values(self.logits(parameters, batch), batch)

    def plain_inputs(self, batch: Batch) -> Tensor | None:
        """Inputs that an MLP reads, where the model is one."""
        found = self.readout()
        return None if found is None else found.inputs(batch)

    def said(self, scores: Tensor, batch: Batch) -> Tensor:
        return self.values(scores[..., 0, 0], batch)

    def constants(self, rows: Rows) -> np.ndarray:
        """Objectives of the two decisions that are the same for everybody, the negative one first."""
        found = []
        for client in range(1 if rows.are_shared else len(rows.counts)):
            columns = {name: column.unsqueeze(0) for name, column in rows.of_client(client).items()}
            ones = torch.ones_like(columns["label"])
            found.append([self.values(sign * ones, Batch(columns, ones))[0].tolist() for sign in (-1, 1)])
        return np.array(found, dtype=float).swapaxes(0, 1)

    def entropies(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The cross entropy of each row, `[n, b]`."""
        return binary_cross_entropy_with_logits(self.logits(parameters, batch), self.labels(batch), reduction="none")

    def score(self, clients: Stack, model: Tensor) -> Tensor:
        """Score one model of each client, `[n, d]`; k models, `[n, k, d]`, are evaluated as an ensemble."""
        if model.dim() == 2:
            return super().score(clients, model)
        voters = [self.layout.unflatten(own) for own in model.unbind(1)]
        with torch.no_grad():
            values = [self._of_vote(voters, clients.all_rows(split)) for split in clients.splits]
        return torch.stack(values, dim=1)

    def _of_vote(self, voters: list[dict[str, Tensor]], batch: Batch) -> Tensor:
        """The objectives of the ensemble's mean probabilities; one model after the other, to save memory."""
        votes = torch.zeros_like(batch.mask)
        for voter in voters:
            votes += self.logits(voter, batch).sigmoid()
        return self.values((votes / len(voters)).logit(), batch)


def grouped(clients: Stack, algorithm: str) -> GroupedProblem:
    """The clients' problem, if it is one with groups."""
    if not isinstance(clients.problem, GroupedProblem):
        raise _no_groups(algorithm)
    return clients.problem


class Public(Protocol):
    """The public part of a federation, as far as it is about groups; `contract.algorithm.Setting` is one."""

    @property
    def comparison(self) -> Comparison | None:
        """Comparison of groups; None without groups."""


def comparison_of(setting: Public, algorithm: str) -> Comparison:
    """The comparison of groups, as far as it is public; UserError if there is none."""
    if setting.comparison is None:
        raise _no_groups(algorithm)
    return setting.comparison


def _no_groups(algorithm: str) -> UserError:
    return UserError(f"{algorithm} needs a problem that compares groups of people, such as synthetic, adult or table")


def cells(problem: GroupedProblem, batch: Batch) -> Tensor:
    """1 where a row is real, has the label y and belongs to the group z, else 0; `[n, 2, groups, b]`."""
    codes = torch.arange(problem.comparison.groups, device=batch.mask.device).unsqueeze(-1)
    of_group = (problem.groups(batch).unsqueeze(-2) == codes) * batch.mask.unsqueeze(-2)
    label = problem.labels(batch)
    return torch.stack([1 - label, label], dim=1).unsqueeze(2) * of_group.unsqueeze(1)


def sums(values: Tensor, cells: Tensor) -> Tensor:
    """The sum of `values` `[n, b]` over each cell's rows, `[n, 2, groups]`."""
    return torch.einsum("nb,nyzb->nyz", values, cells)


def row_weights(weights: Tensor, cells: Tensor) -> Tensor:
    """Each row's weight, `[n, b]`, from those of the cells, `[n, 2, groups]`; 1 for a row of no group."""
    return torch.einsum("nyz,nyzb->nb", weights, cells) + 1 - cells.sum((1, 2))


def differences(positive: Tensor, rows: Tensor, comparison: Comparison) -> tuple[Tensor, Tensor]:
    """Difference of each group's rate of positive decisions from that of group 0, `[..., labels, groups]`.

    From counts by label and group, `[..., 2, groups]`. Also whether all of these are known, `[...]`: a difference to
    or from a group without rows is not, and given as 0.
    """
    counts = comparison.among(rows)
    rates = comparison.among(positive) / counts.clamp_min(1)
    present = counts > 0
    return (rates - rates[..., :1]) * (present & present[..., :1]), present.all(-1).all(-1)
