"""The SYNTHETIC fairness data set, generated on the fly: no download."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import AtLeast, Count, Positive, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.groups import Comparison
from fedpareto.contract.learner import Learner
from fedpareto.contract.outputs import Output
from fedpareto.contract.problem import Objective
from fedpareto.inputs.table import InputSchema, numbers
from fedpareto.learners.supervised import Supervised
from fedpareto.networks.mlp import MLP
from fedpareto.problems import partitions
from fedpareto.problems.fairness.classifier import FairClassifier
from fedpareto.problems.fairness.gaps import CONDITIONS, SENSITIVE
from fedpareto.problems.fairness.goals import ACCURACY, Criteria, Goal
from fedpareto.tensors import rng
from fedpareto.tensors.rows import OWN_TEST, Batch, Rows, Splits, tested_on_all

SHARES = {"train": 0.7, "test": 0.3}
"""Shares of all rows."""

FEDFB_SHARES = {
    "fedfb-low": ((0.33, 0.33, 0.34), (0.33, 0.33, 0.34)),
    "fedfb": ((0.2, 0.4, 0.4), (0.5, 0.3, 0.2)),
    "fedfb-high": ((0.1, 0.8, 0.1), (0.7, 0.1, 0.2)),
}
"""Shares of three clients in the sensitive groups 0 and 1 (figure 8 of PraFFL). That the first client has half of group
1, not of group 0, is from the code that FedFB and PraFFL share."""


@dataclass(frozen=True)
class Synthetic(FairClassifier):
    """Accuracy against group fairness on two-dimensional Gaussians whose sensitive group is correlated with the label.

    As in FedFB (Zeng et al., 2021), also used by PraFFL: y ~ Bernoulli(0.6), x | y is Gaussian, and the sensitive
    attribute follows the class densities at x rotated by π/4. 3,500 rows to train, 1,500 to test, or as many as wanted.
    """

    name: ClassVar[str] = "synthetic"

    fairness: Literal["demographic-parity", "equal-opportunity"] = "demographic-parity"
    """The second objective."""
    hidden: tuple[Count, ...] = (64, 32)
    """Widths of the classifier's hidden layers."""
    partition: Literal["iid", "dirichlet", "fedfb", "fedfb-low", "fedfb-high"] = "iid"
    """Partition of the rows: at random, by Dirichlet shares of each sensitive group, or to FedFB's three clients,
    also with less and with more heterogeneity."""
    alpha: Positive = 1.0
    """α of the Dirichlet partition; smaller is more uneven."""
    rows: Annotated[int, AtLeast(10)] = 5000
    """Rows of all clients together, 7 of 10 to train and 3 to test; many clients need more."""
    test: Literal["common", "own"] = "common"
    """Test rows of a model: those of all clients, with each client's own as a second evaluation, or the latter only."""
    server_rows: Whole = 0
    """Rows that the server draws for itself, for algorithms that evaluate models at the server."""
    sees_group: bool = False
    """Give the classifier the sensitive attribute too, as in PraFFL's experiments."""
    relaxation: Literal["tanh", "tanh-halved", "tanh-masked", "covariance"] = "tanh"
    """Relaxation that turns a gap into a loss: see the fairness problems."""
    regularisation: float = 0.1
    """Share of cross entropy added to the fairness loss so that it can start to learn (eq. A.1 of the thesis)."""

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """Accuracy and 1 − |gap|, with the reference point (0, 0) of the thesis's chapter 5."""
        return self._criteria.objectives()

    @cached_property
    def _criteria(self) -> Criteria:
        goals = (Goal(ACCURACY), Goal(self.fairness))
        return Criteria(goals, relaxation=self.relaxation, regularisation=self.regularisation)

    @cached_property
    def model(self) -> MLP:
        return MLP(3 if self.sees_group else 2, self.hidden, 1, sparsity=self._connected)

    def learner(self) -> Learner:
        """Found by a small search on local training alone."""
        return Supervised(lr=0.1, batch_size=64, epochs=5)

    @property
    def comparison(self) -> Comparison:
        return Comparison(groups=2, labels=CONDITIONS[self.fairness])

    def groups(self, batch: Batch) -> Tensor:
        return batch.columns[SENSITIVE]

    def input_schema(self, clients: int, seed: int) -> InputSchema:
        """The two coordinates as they are, and the sensitive attribute where the classifier sees it."""
        return numbers(["x1", "x2", *(["sensitive"] if self.sees_group else [])])

    def outputs(self) -> tuple[Output, ...]:
        return (Output("y", ("0", "1")),)

    def data(self, clients: int, seed: int) -> Splits:
        splits = {
            split: self._partitioned(self._draw(round(share * self.rows), seed, split), clients, seed, split)
            for split, share in SHARES.items()
        }
        return tested_on_all(splits) if self.test == "common" else splits

    def examples(self, clients: int, seed: int, client: int) -> list[dict[str, Any]]:
        splits = self.data(clients, seed)
        own = splits.get(OWN_TEST, splits["test"]).of_client(client)
        columns = (*own["features"].T[:2], own[SENSITIVE].int(), own["label"].int())
        names = ("x1", "x2", "sensitive", "y")
        return [
            dict(zip(names, row, strict=True)) for row in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def sensitive_columns(self) -> dict[str, str]:
        return {"sensitive": ""}

    def held_by_server(self, clients: int, seed: int) -> Rows | None:
        """Rows of the same distribution, beside those of the clients."""
        if not self.server_rows:
            return None
        drawn = self._draw(self.server_rows, seed, "server")
        return Rows.of([{name: torch.as_tensor(column).float() for name, column in drawn.items()}])

    def _draw(self, count: int, seed: int, split: str) -> dict[str, np.ndarray]:
        table = _draw(count, seed, split)
        if self.sees_group:
            table["features"] = np.column_stack([table["features"], table["sensitive"]])
        return table

    def _partitioned(self, table: dict[str, np.ndarray], clients: int, seed: int, split: str) -> Rows:
        stream = rng.generator(rng.Address(seed), f"deal {split}")
        owner = partitions.by_class(table["sensitive"], self._shares(clients, seed), stream)
        order, counts = partitions.client_by_client(owner, clients)
        if not counts.all():
            advice = "more rows, fewer clients" + (" or a larger alpha" if self.partition == "dirichlet" else "")
            raise UserError(f"client {counts.argmin()} would get no row of '{split}'; use {advice}")
        return Rows.end_to_end({name: torch.as_tensor(column[order]).float() for name, column in table.items()}, counts)

    def _shares(self, clients: int, seed: int) -> np.ndarray:
        """The clients' shares in the two sensitive groups, `[2, n]`; the same for training and test rows."""
        if self.partition in FEDFB_SHARES:
            if clients != 3:
                raise UserError(f"the partition '{self.partition}' has 3 clients, not {clients}; set clients to 3")
            return np.array(FEDFB_SHARES[self.partition])
        if self.partition == "dirichlet":
            return rng.generator(rng.Address(seed), "shares").dirichlet([self.alpha] * clients, size=2)
        return np.full((2, clients), 1 / clients)


def _draw(count: int, seed: int, split: str) -> dict[str, np.ndarray]:
    """Features, label and sensitive attribute of `count` rows."""
    stream = rng.generator(rng.Address(seed), f"rows {split}")
    label = (stream.random(count) < 0.6).astype(float)
    zeros = stream.multivariate_normal((-2, -2), [[10, 1], [1, 3]], count)
    ones = stream.multivariate_normal((2, 2), [[5, 1], [1, 5]], count)
    features = np.where(label[:, None] > 0, ones, zeros)
    turn = math.pi / 4
    turned = features @ np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    log_odds = _log_density(turned, (2, 2), [[5, 1], [1, 5]]) - _log_density(turned, (-2, -2), [[10, 1], [1, 3]])
    sensitive = (stream.random(count) < 1 / (1 + np.exp(-log_odds))).astype(float)
    return {"features": features, "label": label, "sensitive": sensitive}


def _log_density(points: np.ndarray, mean: tuple[float, float], covariance: list[list[float]]) -> np.ndarray:
    """Log-density of a Gaussian, up to the constant that all Gaussians of the plane share."""
    away, inverse = points - np.array(mean), np.linalg.inv(covariance)
    distance: np.ndarray = np.einsum("ki,ij,kj->k", away, inverse, away)
    return np.asarray(-0.5 * (distance + np.log(np.linalg.det(covariance))))
