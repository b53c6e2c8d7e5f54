"""A convex problem whose Pareto front is known in closed form: the truth for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import AtLeast, Bounded, NotNegative
from fedpareto.config.errors import UserError
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.learners.supervised import Supervised
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows, Splits


@dataclass(frozen=True)
class Convex(SupervisedProblem, Bounded):
    """Client i minimises f_ij(θ) = ½‖θ − c_j − δ_i‖² for j = 1 … m, with orthonormal centres c_j.

    Under the preference w the optimum is θ = Σ_j w_j c_j + δ_i, where f_ij = ½‖w − e_j‖², whatever the client: every
    client has the same front, reached at different parameters. A row is a noisy observation of the centres whose mean
    over a client's rows is exact, so minibatches disagree but a full pass does not.
    """

    name: ClassVar[str] = "convex"

    dimension: Annotated[int, AtLeast(2)] = 8
    """d, the number of parameters (at least m)."""
    goals: Annotated[int, AtLeast(2)] = 2
    """m, the number of objectives."""
    heterogeneity: NotNegative = 0.1
    """Standard deviation of the clients' shifts δ_i; 0: all clients are alike."""
    noise: NotNegative = 0.1
    """Standard deviation of a single row around its centre."""
    rows: Annotated[int, AtLeast(3)] = 40
    """Rows of the largest client."""
    unequal: bool = True
    """Unequal clients hold between a third and all of `rows`; else all hold equally many."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension < self.goals:
            raise UserError(f"dimension is {self.dimension}; it must be at least the number of goals, {self.goals}")

    @cached_property
    def objectives(self) -> tuple[Objective, ...]:
        """½‖θ − c_j − δ_i‖²; no preference makes it worse than 1 at the optimum."""
        return tuple(
            Objective(f"distance {j + 1}", maximise=False, reference=1.1, lowest=0.0) for j in range(self.goals)
        )

    @cached_property
    def layout(self) -> Layout:
        """The parameters in two layers, for layer-wise methods; there are no hidden units."""
        half = self.dimension // 2
        return Layout.of({"first.weight": (half,), "second.weight": (self.dimension - half,)}, hidden=())

    def centres(self) -> Tensor:
        """c_1 … c_m, orthonormal and dense, `[m, d]`; the same for every seed."""
        stream = np.random.default_rng(20_240_601)
        basis, _ = np.linalg.qr(stream.standard_normal((self.dimension, self.dimension)))
        return torch.as_tensor(basis[: self.goals].copy())

    def shifts(self, clients: int, seed: int) -> Tensor:
        """δ_1 … δ_n, `[n, d]`."""
        streams = rng.generators([rng.Address(seed, client) for client in range(clients)], "shift")
        drawn = [self.heterogeneity * stream.standard_normal(self.dimension) for stream in streams]
        return torch.as_tensor(np.stack(drawn))

    def data(self, clients: int, seed: int) -> Splits:
        """Every client's noisy observations of its own centres; the test split is the exact centres."""
        centres = self.centres() + self.shifts(clients, seed)[:, None]  # [n, m, d]
        train = []
        addresses = [rng.Address(seed, client) for client in range(clients)]
        for centre, stream in zip(centres, rng.generators(addresses, "rows"), strict=True):
            count = int(stream.integers(self.rows // 3, self.rows + 1)) if self.unequal else self.rows
            noise = torch.as_tensor(self.noise * stream.standard_normal((count, *centre.shape)))
            train.append({"centres": centre + noise - noise.mean(0)})
        test = [{"centres": centre[None]} for centre in centres]
        return {"train": Rows.of(train), "test": Rows.of(test)}

    def held_by_server(self, clients: int, seed: int) -> Rows:
        """The centres themselves, of which every client has shifted and noisy observations."""
        return Rows.of([{"centres": self.centres()[None]}])

    def initial(self, seed: int) -> Tensor:
        return torch.zeros(self.dimension)

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        theta = torch.cat([parameters["first.weight"], parameters["second.weight"]], dim=-1)
        weights = batch.mask / batch.mask.sum(-1, keepdim=True).clamp_min(1)
        centres = torch.einsum("nb,nbmd->nmd", weights, batch.columns["centres"])
        return 0.5 * (theta[:, None] - centres).square().sum(-1)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.losses(parameters, batch)

    def learner(self) -> Learner:
        """Plain SGD; the problem's curvature is 1."""
        return Supervised(lr=0.1, batch_size=16)

    def known_front(self) -> np.ndarray:
        """f_j(w) = ½‖w − e_j‖² over a lattice of preferences w."""
        from fedpareto.moo.preferences import equidistant

        weights = equidistant(101 if self.goals == 2 else 105, self.goals)
        return np.asarray(0.5 * ((weights[:, None] - np.eye(self.goals)) ** 2).sum(-1))
