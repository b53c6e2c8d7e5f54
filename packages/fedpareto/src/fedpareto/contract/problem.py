"""A problem knows data, model and objectives; it never knows which algorithm is used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.learner import Learner
from fedpareto.contract.outputs import Output
from fedpareto.contract.stack import Stack
from fedpareto.inputs.images_texts import Inputs
from fedpareto.networks.mlp import MLP
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows, Splits

ROWS_AT_ONCE = 128
"""Rows of a client that are measured at a time where a measure is a mean over rows."""


@dataclass(frozen=True)
class Objective:
    """One objective: its name, its direction, and its reference value for the hypervolume."""

    name: str
    maximise: bool = False
    reference: float = 1.0
    lowest: float | None = None
    """No model has a value below this; None: there is no such bound. A server refuses reported values outside."""
    highest: float | None = None
    """Upper end of its range."""
    fairness: bool = False
    """True if it is a notion of fairness, of which 1 is perfect: see SolutionSet.only."""


@dataclass(frozen=True)
class Readout:
    """Losses that are a function of an MLP's outputs."""

    network: MLP
    """The network whose parameters are the whole model."""
    inputs: Callable[[Batch], Tensor]
    """Inputs that it gets of a minibatch, `[n, b, in]`."""
    losses: Callable[[Tensor, Batch], Tensor]
    """Losses `[n, m]` of outputs `[n, b, out]`."""
    slopes: Callable[[Tensor, Batch, Tensor], Tensor] | None = None
    """Σ_j w_j·∂loss_j/∂outputs, `[n, b, out]`, for weights w `[n, m]`; None: autograd finds it. That takes as long as
    a small network's products.
    """


Judge = Callable[[Tensor], Tensor]
"""The objective values of models `[k, d]`, `[k, 3, m]`: on the splits for training, for selection and for
comparison.
"""


class Problem(ABC):
    """A federated multi-objective problem: a frozen dataclass whose fields are its parameters.

    Most problems are a SupervisedProblem. This is the interface for clients that learn without a loss on rows, in an
    environment for example.
    """

    name: ClassVar[str]
    models: ClassVar[tuple[str, ...]] = ()
    """The networks to choose from by name, where a parameter `model` does so."""

    @property
    def validates(self) -> bool:
        """True if clients set validation rows aside, on which something can be chosen."""
        return False

    @property
    @abstractmethod
    def objectives(self) -> tuple[Objective, ...]:
        """The objectives that are measured, in the order of all `[m]` vectors of this problem."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """The shape of the model."""

    @abstractmethod
    def initial(self, seed: int) -> Tensor:
        """The model from which every client starts, `[d]`."""

    @abstractmethod
    def learner(self) -> Learner:
        """The way in which clients learn on this problem unless the user says otherwise."""

    @abstractmethod
    def score(self, clients: Stack, model: Tensor) -> Tensor:
        """The objectives of `model` `[n, d]` as they are reported, `[n, parts, m]`, each in its own direction."""

    def data(self, clients: int, seed: int) -> Splits:
        """Every client's data; nothing where clients have none."""
        return {}

    def parts(self, splits: Splits) -> list[str]:
        """The splits on which `score` measures, by name; comparisons use "test" if it is there, else the last."""
        return list(splits)

    def judge(self, clients: int, seed: int) -> Judge | None:
        """The server's own measurement of models; None where it has nothing to measure them on."""
        return None

    def known_front(self) -> np.ndarray | None:
        """The true Pareto front, `[k, m]`, where it is known."""
        return None

    def constants(self, rows: Rows) -> np.ndarray:
        """The objectives of each constant answer at each client, `[a, n, m]`; n = 1 where all hold the same rows.

        Without such answers a is 0.
        """
        return np.zeros((0, 1, len(self.objectives)))

    def by_chance(self, addresses: rng.Addresses) -> np.ndarray | None:
        """The objectives of who acts at random, at each client `[n, m]`; None where nobody acts."""
        return None

    def default_clients(self) -> int:
        """Number of clients of a run unless the user says otherwise."""
        return 10

    def client_names(self, clients: int) -> list[str]:
        """The name of each client, such as a branch; empty where they are only numbers."""
        return []

    rebuilt_by_name: ClassVar[bool] = False
    """True if a model needs its problem to be used, made again from name and parameters: see `answers`."""

    def input_schema(self, clients: int, seed: int) -> Inputs | None:
        """The way from raw rows, images or texts to the inputs of the model; None where the model cannot be used later.

        Unless the problem is `rebuilt_by_name`, the model is an MLP whose one output is the log-odds of a positive
        decision.
        """
        return None

    def dense(self) -> Problem:
        """The problem with all connections of its network, if it has some of them only: that of models as they are
        kept.
        """
        return self

    def answers(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Answers of n models to inputs `[n, b, ...]`: for each of `outputs` the scores of its classes, `[n, b, h, k]`.

        They are log-odds or values; of an output without classes it is the number itself, k = 1. No data are needed.
        """
        raise NotImplementedError(f"{self.name} is not rebuilt by name")

    def outputs(self) -> tuple[Output, ...]:
        """Outputs of the model, one entry for each head; none where a problem does not say."""
        return ()

    def examples(self, clients: int, seed: int, client: int) -> list[dict[str, Any]]:
        """A client's own test rows by the names of their columns, those that no model sees among them.

        None where a problem has no such columns; nothing is downloaded, data that are not here are a UserError.
        """
        return []

    def sensitive_columns(self) -> dict[str, str]:
        """The columns of rows by which fairness is measured, each with the rule for one of two groups, such as
        "age>=25"; empty: its values are the groups. No data are needed.
        """
        return {}

    @property
    def maximise(self) -> list[bool]:
        """The direction of each objective."""
        return [objective.maximise for objective in self.objectives]

    @property
    def reference(self) -> list[float]:
        """The reference point of the hypervolume."""
        return [objective.reference for objective in self.objectives]


class SupervisedProblem(Problem):
    """A problem whose clients hold rows and minimise differentiable losses on them."""

    row_by_row: ClassVar[bool] = False
    """True if losses and reported objectives are means over rows, so that many rows need not be in memory at once."""

    @abstractmethod
    def data(self, clients: int, seed: int) -> Splits:
        """Every client's rows: "train", and what else there is."""

    @abstractmethod
    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Differentiable losses `[n, m]`, smaller is better, of n models (each tensor `[n, ...]`) on their batches.

        A function of these two and nothing else that changes: on a GPU its kernels are recorded once and replayed. A
        network with dropout or running statistics is called with `batch.training`.
        """

    @abstractmethod
    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The objectives as they are reported, `[n, m]`, of n models on all rows of a split."""

    def readout(self) -> Readout | None:
        """The readout by which `losses` follow from the outputs of an MLP, if that is the whole model: training is
        faster.
        """
        return None

    def classes(self) -> tuple[str, int] | None:
        """The column of rows that holds a class, 0, 1 and so on, and how many there are; None where there is none."""
        return None

    def plain_inputs(self, batch: Batch) -> Tensor | None:
        """Inputs of a plain model from rows, `[n, b, f]`: see `contract.plain`. None: the problem has no plain model.

        With f = 0 it is the most frequent class.
        """
        return None

    def said(self, scores: Tensor, batch: Batch) -> Tensor:
        """The objectives, `[n, m]`, of the answers with these scores of a plain model, `[n, b, heads, k]`.

        Of two classes there are only the log-odds of the second, k = 1. Unless `values` knows better, they are the
        accuracy of each head.
        """
        found = self.classes()
        assert found is not None, "a plain model has classes to choose from"
        column = batch.columns[found[0]].view(*scores.shape[:-1])
        answers = scores.argmax(-1) if scores.shape[-1] > 1 else scores.squeeze(-1) > 0
        right = (answers == column).to(batch.mask.dtype)
        return torch.stack([batch.mean(head) for head in right.unbind(-1)], dim=-1)

    def held_by_server(self, clients: int, seed: int) -> Rows | None:
        """Rows that the server of a federation holds and none of its clients does, as one table; None: it has none."""
        return None

    def judge(self, clients: int, seed: int) -> Judge | None:
        """The server's own rows are validation rows: no client trains on them, and no result is tested on them."""
        rows = self.held_by_server(clients, seed)
        return None if rows is None else OnRows(self, rows)

    def losses_each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Losses `[n, k, m]` of k models for each client, which share some layers (`[n, ...]`) and own the others.

        Those are `[n, k, ...]`. A problem that computes what is shared only once overrides this.
        """
        return of_each(self.losses, shared, own, batch)

    def evaluate_each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The objectives as they are reported, `[n, k, m]`, of k models for each client; see losses_each."""
        return of_each(self.evaluate, shared, own, batch)

    def score(self, clients: Stack, model: Tensor) -> Tensor:
        """`evaluate` on every split."""
        with torch.no_grad():
            found = []
            for split in clients.splits:
                found.append(self._score(clients, model, split))
            return torch.stack(found, dim=1)

    def _score(self, clients: Stack, model: Tensor, split: str) -> Tensor:
        """Score models on one split; only once, if all clients have the same model in the same memory, and the same
        rows.
        """
        if len(model) > 1 and model.stride(0) == 0 and clients.share(split):
            return self._score(clients.first, model[:1], split).expand(len(model), -1)
        return self.over_rows(partial(self.evaluate, self.layout.unflatten(model)), clients, split)

    def over_rows(self, measure: Callable[[Batch], Tensor], clients: Stack, split: str) -> Tensor:
        """`measure`, `[n, m]`, of all rows of a split; by slices where it is a mean over rows."""
        if not self.row_by_row:
            return measure(clients.all_rows(split))
        slices = clients.slices(split, ROWS_AT_ONCE)
        first = next(slices)
        rows = first.mask.sum(1, keepdim=True)
        total = measure(first) * rows
        for batch in slices:
            here = batch.mask.sum(1, keepdim=True)
            total, rows = total + measure(batch) * here, rows + here
        return total / rows.clamp_min(1)


def most_frequent(rows: Rows, column: str) -> np.ndarray:
    """Share of rows for which the most frequent class of each head is right at each client, `[1, n, heads]`; see
    `constants`.
    """
    clients = range(1 if rows.are_shared else len(rows.counts))
    labels = [rows.of_client(client)[column].view(int(rows.counts[client]), -1) for client in clients]
    best = torch.stack([head.bincount().argmax() for head in torch.cat(labels).long().unbind(-1)])
    return np.array([[(own == best).double().mean(0).tolist() for own in labels]])


@dataclass(frozen=True)
class OnRows:
    """A judge that has rows: a value, so that two servers with the same ones are alike."""

    problem: SupervisedProblem
    rows: Rows
    """Rows of one table."""

    def __call__(self, models: Tensor) -> Tensor:
        """`evaluate` of each model on all rows, the same for training, selection and comparison: `[k, 3, m]`."""
        here = self.rows.to(models.device, models.dtype)
        whole = Batch(
            {name: column.unsqueeze(0) for name, column in here.columns.items()},
            models.new_ones(1, int(self.rows.counts.sum())),
        )
        layout, evaluate = self.problem.layout, self.problem.evaluate
        with torch.no_grad():
            # One by one: a stack of many candidates on many rows would not fit into memory.
            each = [evaluate(layout.unflatten(model.unsqueeze(0)), whole) for model in models]
        return torch.cat(each).unsqueeze(1).expand(-1, 3, -1)


def of_each(
    measure: Callable[[Mapping[str, Tensor], Batch], Tensor],
    shared: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    batch: Batch,
) -> Tensor:
    """`measure` of k models for each client, `[n, k, ...]`, as if they were n·k clients."""
    n, k = next(iter(own.values())).shape[:2]

    def repeated(tensor: Tensor) -> Tensor:
        return tensor.repeat_interleave(k, dim=0)

    parameters = {name: repeated(tensor) for name, tensor in shared.items()}
    parameters |= {name: tensor.flatten(0, 1) for name, tensor in own.items()}
    columns = {name: repeated(column) for name, column in batch.columns.items()}
    training = None if batch.training is None else batch.training.repeated(k)
    values = measure(parameters, Batch(columns, repeated(batch.mask), training)).view(n, k, -1)
    if batch.training is not None and training is not None:
        # The k models of a client see the same rows, so what they share has the same statistics.
        first = {name.removeprefix(training.prefix): new[::k] for name, new in training.buffers.items()}
        batch.training.wrote({name: new for name, new in first.items() if name in shared})
    return values
