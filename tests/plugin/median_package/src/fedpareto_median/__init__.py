"""A third party's package: one algorithm in one short class, and one problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.learners.supervised import Supervised
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Rows


@dataclass(frozen=True)
class Median(FedAvg):
    """The coordinate-wise median of the clients' models, moved by a server step."""

    name: ClassVar[str] = "median"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "outside", "single-objective comparison", "linearised preferences, median", "arbitrary"
    )

    server_step: float = 1.0
    """How far the global model moves towards the median."""

    def tell(self, state, replies):
        median = replies["model"].median(dim=0).values
        model = state.model + self.server_step * (median - state.model)
        return replace(state, model=model, round=state.round + 1)


@dataclass(frozen=True)
class Ridge(SupervisedProblem):
    """Linear regression: squared error against the size of the coefficients."""

    name: ClassVar[str] = "ridge"

    features: int = 4
    """Number of inputs."""

    @property
    def objectives(self):
        return Objective("squared error", reference=5.0), Objective("size", reference=5.0)

    @property
    def layout(self):
        return Layout.of({"linear.weight": (self.features,)})

    def initial(self, seed):
        return torch.zeros(self.features)

    def learner(self):
        return Supervised(lr=0.05, batch_size=8)

    def data(self, clients, seed):
        stream = torch.Generator().manual_seed(seed)
        truth = torch.linspace(-1, 1, self.features)
        tables = []
        for client in range(clients):
            x = torch.randn(10 + client, self.features, generator=stream)
            tables.append({"x": x, "y": x @ truth})
        return {"train": Rows.of(tables)}

    def losses(self, parameters, batch):
        weight = parameters["linear.weight"]
        error = (torch.einsum("nbf,nf->nb", batch.columns["x"], weight) - batch.columns["y"]).square()
        return torch.stack([batch.mean(error), weight.square().sum(-1)], dim=-1)

    def evaluate(self, parameters, batch):
        return self.losses(parameters, batch)
