"""Classifiers that are trained for accuracy and group fairness."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from fedpareto.contract.groups import GroupedProblem
from fedpareto.contract.problem import Readout
from fedpareto.networks.mlp import MLP
from fedpareto.problems.fairness.goals import Criteria
from fedpareto.problems.sparse import SparseProblem
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch


@dataclass(frozen=True)
class FairClassifier(SparseProblem, GroupedProblem):
    """A problem whose model is an MLP with one output: the logit of the label 1."""

    @property
    @abstractmethod
    def model(self) -> MLP:
        """The classifier."""

    @property
    @abstractmethod
    def _criteria(self) -> Criteria:
        """The goals as losses and as reported values."""

    @property
    def layout(self) -> Layout:
        return self.model.layout

    def initial(self, seed: int) -> Tensor:
        return self.model.initial(seed)

    def labels(self, batch: Batch) -> Tensor:
        return batch.columns["label"]

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Cross entropy, and relaxed gaps plus a little cross entropy (eq. A.1)."""
        return self._scaled(self._criteria.losses(self.logits(parameters, batch), batch), batch)

    def readout(self) -> Readout:
        return Readout(
            self.model,
            lambda batch: self._features(batch.columns),
            lambda outputs, batch: self._scaled(self._criteria.losses(outputs.squeeze(-1), batch), batch),
            self._slopes if self._criteria.has_slopes else None,
        )

    def _slopes(self, outputs: Tensor, batch: Batch, weights: Tensor) -> Tensor:
        return self._criteria.slopes(outputs.squeeze(-1), batch, self._scaled(weights, batch)).unsqueeze(-1)

    def losses_each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], batch: Batch) -> Tensor:
        each = batch.for_each()
        return self._scaled(self._criteria.losses(self.logits_each(shared, own, batch), each), each)

    def _scaled(self, losses: Tensor, batch: Batch) -> Tensor:
        """Losses `[n, m]` times a factor of each client and goal."""
        return losses

    def values(self, logits: Tensor, batch: Batch) -> Tensor:
        """Accuracy and 1 − gap; 0 where a client lacks a group, so that there is no gap to measure."""
        return self._criteria.values(logits, batch)

    def evaluate_each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self._criteria.values(self.logits_each(shared, own, batch), batch.for_each())

    def logits(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.model(parameters, self._features(batch.columns)).squeeze(-1)

    def logits_each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.model.each(shared, own, self._features(batch.columns)).squeeze(-1)

    def _features(self, columns: Mapping[str, Tensor]) -> Tensor:
        """Inputs of the classifiers, `[n, b, inputs]`."""
        return columns["features"]
