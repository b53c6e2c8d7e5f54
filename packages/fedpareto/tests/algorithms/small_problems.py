"""Problems for the algorithms' tests: objectives that are all the same, and a network with any number of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.algorithm import Setting
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import Replies
from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.learners.supervised import Supervised
from fedpareto.networks.mlp import MLP
from fedpareto.problems.convex import Convex
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows, Splits


@dataclass(frozen=True)
class Twins(Convex):
    """The first objective of the convex problem, over and over."""

    name: ClassVar[str] = "twins"

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return super().losses(parameters, batch)[:, :1].expand(-1, self.goals)


@dataclass(frozen=True)
class Labels(SupervisedProblem):
    """An MLP 64-32 with one output and m labels that it cannot all predict."""

    name: ClassVar[str] = "labels"

    goals: int = 2
    inputs: int = 100
    hidden: tuple[int, ...] = (64, 32)
    rows: int = 64

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return tuple(Objective(f"label {j + 1}") for j in range(self.goals))

    @cached_property
    def model(self) -> MLP:
        return MLP(self.inputs, self.hidden, 1)

    @property
    def layout(self) -> Layout:
        return self.model.layout

    def initial(self, seed: int) -> Tensor:
        return self.model.initial(seed)

    def learner(self) -> Learner:
        return Supervised(lr=0.05, batch_size=32)

    def data(self, clients: int, seed: int) -> Splits:
        tables = []
        for client in range(clients):
            stream = rng.generator(rng.Address(seed, client), "rows")
            features = torch.as_tensor(stream.standard_normal((self.rows, self.inputs))).float()
            truth = torch.as_tensor(rng.generator(rng.Address(0), "truth").standard_normal((self.inputs, 6))).float()
            tables.append({"features": features, "labels": (features @ truth > 0).float()[:, : self.goals]})
        return {"train": Rows.of(tables)}

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        logits = self.model(parameters, batch.columns["features"])
        each = torch.nn.functional.binary_cross_entropy_with_logits(
            logits.expand_as(batch.columns["labels"]), batch.columns["labels"], reduction="none"
        )
        return torch.stack([batch.mean(column) for column in each.unbind(-1)], dim=-1)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.losses(parameters, batch)


def setting_of(clients, layout, goals=2):
    """A setting for an algorithm that is told replies by hand, from a model of zeros."""
    return Setting(
        seed=0,
        clients=tuple(clients),
        rounds=10,
        layout=layout,
        objectives=tuple(Objective(f"objective {j}") for j in range(goals)),
        initial=torch.zeros(layout.size, dtype=torch.float64),
    )


def replies_with(state, updates):
    """The replies of clients that moved from where the state has them by `updates`, `{client id: update}`."""
    rows = state.setting.rows(np.array(sorted(updates)))
    moved = {
        client: {"model": state.models[row] + torch.as_tensor(updates[client]).double()}
        for row, client in zip(rows, sorted(updates), strict=True)
    }
    return Replies.of(moved, round=state.round + 1)
