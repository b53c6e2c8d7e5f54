"""A small problem twice: as the library needs it, and in NumPy with gradients written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.groups import Comparison, GroupedProblem, cells, differences, sums
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Objective, Readout, SupervisedProblem
from fedpareto.learners.supervised import Supervised
from fedpareto.networks.mlp import MLP
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows, Splits

Table = Mapping[str, np.ndarray]
"""Rows of one client: "inputs" `[b, 3]` and "answers" `[b, m]`."""
SMALLEST, LARGEST = 5, 20
"""Rows of a client."""


@dataclass(frozen=True)
class Answers(SupervisedProblem):
    """A small MLP with an output for each objective: ½(o − y)², log(1 + exp(−y·o)), and so on in turn, y = ±1.

    Clients of 5 to 20 rows each have a truth of their own, near that of the others.
    """

    name: ClassVar[str] = "answers"

    goals: int = 2
    hidden: tuple[int, ...] = (4, 3)
    held: int = 0
    """Rows that the server holds; 0: none."""

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """The losses themselves."""
        return tuple(Objective(f"loss {j}", maximise=False, reference=3.0, lowest=0.0) for j in range(self.goals))

    @cached_property
    def network(self) -> MLP:
        return MLP(3, self.hidden, self.goals)

    @property
    def layout(self) -> Layout:
        return self.network.layout

    def initial(self, seed: int) -> Tensor:
        return self.network.initial(seed)

    def learner(self) -> Learner:
        """Up to 5 minibatches in each of 2 passes, the last of which may be smaller."""
        return Supervised(lr=0.1, batch_size=4, epochs=2)

    def data(self, clients: int, seed: int) -> Splits:
        streams = list(rng.generators([rng.Address(seed, client) for client in range(clients)], "rows"))
        counts = [int(stream.integers(SMALLEST, LARGEST + 1)) for stream in streams]
        parts: Splits = {"train": Rows.of([self._rows(*one) for one in zip(streams, counts, strict=True)])}
        return {**parts, **{name: Rows.of([self._rows(one, 6) for one in streams]) for name in ("validation", "test")}}

    def held_by_server(self, clients: int, seed: int) -> Rows | None:
        stream = rng.generator(rng.Address(seed), "server's rows")
        return Rows.of([self._rows(stream, self.held)]) if self.held else None

    def _rows(self, stream: np.random.Generator, count: int) -> dict[str, Tensor]:
        inputs = stream.standard_normal((count, 3))
        truth = np.eye(3)[:, np.arange(self.goals) % 3] + 0.7 * stream.standard_normal((3, self.goals))
        answers = np.where(inputs @ truth > 0, 1.0, -1.0)
        return {"inputs": torch.as_tensor(inputs), "answers": torch.as_tensor(answers)}

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self._of_outputs(self.network(parameters, batch.columns["inputs"]), batch)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.losses(parameters, batch)

    def readout(self) -> Readout:
        return Readout(self.network, lambda batch: batch.columns["inputs"], self._of_outputs)

    def _of_outputs(self, outputs: Tensor, batch: Batch) -> Tensor:
        answers, found = batch.columns["answers"], []
        for j in range(self.goals):
            output, answer = outputs[..., j], answers[..., j]
            each = torch.nn.functional.softplus(-answer * output) if j % 2 else 0.5 * (output - answer).square()
            found.append(batch.mean(each))
        return torch.stack(found, dim=-1)

    # -- the same in NumPy -------------------------------------------------------------------------------------------

    def plain_values(self, theta: np.ndarray, inputs: np.ndarray) -> list[np.ndarray]:
        """The inputs, the values of each hidden layer, and the outputs of a model θ `[d]`."""
        values, place = [inputs], 0
        for layer, units in enumerate((*self.hidden, self.goals)):
            fan_in = values[-1].shape[1]
            weight = theta[place : place + fan_in * units].reshape(fan_in, units)
            product = values[-1] @ weight + theta[place + fan_in * units : place + (fan_in + 1) * units]
            values.append(np.where(product.real > 0, product, 0) if layer < len(self.hidden) else product)
            place += (fan_in + 1) * units
        return values

    def plain_losses(self, theta: np.ndarray, rows: Table) -> np.ndarray:
        """f_j(θ) of some rows, `[m]`."""
        outputs, answers = self.plain_values(theta, rows["inputs"])[-1], rows["answers"]
        squares, logs = 0.5 * (outputs - answers) ** 2, np.log1p(np.exp(-answers * outputs))
        return np.where(np.arange(self.goals) % 2, logs, squares).mean(0)

    def plain_gradients(self, theta: np.ndarray, rows: Table) -> np.ndarray:
        """∇f_j(θ) of some rows, `[m, d]`."""
        outputs, answers = self.plain_values(theta, rows["inputs"])[-1], rows["answers"]
        slopes = np.where(np.arange(self.goals) % 2, -answers / (1 + np.exp(answers * outputs)), outputs - answers)
        by_goal = [self.plain_backwards(theta, rows, slopes * one / len(slopes)) for one in np.eye(self.goals)]
        return np.stack(by_goal)

    def plain_backwards(self, theta: np.ndarray, rows: Table, slopes: np.ndarray, last: bool = True) -> np.ndarray:
        """The gradient `[d]` of what has the slopes `[b, …]` in the outputs, or else in the last hidden layer.

        θ may be complex: with θ + i·ε·v the imaginary part is ε times the second derivative along v.
        """
        values, end = self.plain_values(theta, rows["inputs"]), len(theta)
        sizes = (3, *self.hidden, self.goals)
        parts: list[np.ndarray] = []
        for layer in reversed(range(len(self.hidden) + 1)):
            fan_in, units = sizes[layer], sizes[layer + 1]
            start = end - (fan_in + 1) * units
            if layer == len(self.hidden) and not last:
                parts, end = [np.zeros(end - start)], start
                continue
            if layer < len(self.hidden):
                slopes = np.where(values[layer + 1].real > 0, slopes, 0)
            parts += [slopes.sum(0), (values[layer].T @ slopes).ravel()]
            slopes, end = slopes @ theta[start : start + fan_in * units].reshape(fan_in, units).T, start
        return np.concatenate(parts[::-1])


@dataclass(frozen=True)
class Tasks(Answers):
    """The same network with a last layer for each objective, which come one after the other at the end of a model."""

    name: ClassVar[str] = "tasks"

    @property
    def layout(self) -> Layout:
        shapes = dict(zip(self.network.layout.names, self.network.layout.shapes, strict=True))
        last = len(self.hidden)
        units, _ = shapes.pop(f"{last}.weight")
        del shapes[f"{last}.bias"]
        heads = [(f"head {j}.weight", f"head {j}.bias") for j in range(self.goals)]
        shapes |= {name: shape for head in heads for name, shape in zip(head, ((units,), (1,)), strict=True)}
        return Layout.of(shapes, heads=heads)

    @cached_property
    def places(self) -> np.ndarray:
        """Where each entry of the network's own vector is in one of this layout, `[d]`."""
        units, size = self.hidden[-1] + 1, self.layout.size
        heads = np.arange(size - self.goals * units, size).reshape(self.goals, units)
        return np.concatenate([np.arange(size - self.goals * units), heads[:, :-1].T.ravel(), heads[:, -1]])

    def initial(self, seed: int) -> Tensor:
        return super().initial(seed)[torch.as_tensor(np.argsort(self.places))]

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        last, heads = len(self.hidden), range(self.goals)
        whole = {name: tensor for name, tensor in parameters.items() if not name.startswith("head")}
        whole[f"{last}.weight"] = torch.stack([parameters[f"head {j}.weight"] for j in heads], dim=-1)
        whole[f"{last}.bias"] = torch.cat([parameters[f"head {j}.bias"] for j in heads], dim=-1)
        return super().losses(whole, batch)

    def readout(self) -> None:
        """The library finds gradients by itself here."""

    def plain_losses(self, theta: np.ndarray, rows: Table) -> np.ndarray:
        return super().plain_losses(theta[self.places], rows)

    def plain_gradients(self, theta: np.ndarray, rows: Table) -> np.ndarray:
        found = np.empty((self.goals, len(theta)))
        found[:, self.places] = super().plain_gradients(theta[self.places], rows)
        return found


@dataclass(frozen=True)
class Groups(Answers, GroupedProblem):
    """Decisions about people of some groups, few of whom belong to none; small clients lack a group."""

    name: ClassVar[str] = "groups"

    goals: int = 1
    """Outputs of the network, which is the logit."""
    many: int = 2
    among: tuple[int | None, ...] = (None,)
    """Among the rows of which labels groups are compared."""

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """How many decisions are right, and how alike groups fare."""
        return Objective("right", maximise=True, reference=0.0), Objective("alike", True, 0.0, fairness=True)

    @property
    def comparison(self) -> Comparison:
        return Comparison(self.many, self.among)

    def _rows(self, stream: np.random.Generator, count: int) -> dict[str, Tensor]:
        rows = super()._rows(stream, count)
        drawn = stream.random(count) + 0.4 * (rows["inputs"][:, 0].numpy() > 0)
        return {**rows, "group": torch.as_tensor(np.digitize(drawn, np.linspace(0.05, 1.4, self.many + 1)[:-1]) - 1.0)}

    def groups(self, batch: Batch) -> Tensor:
        return batch.columns["group"]

    def labels(self, batch: Batch) -> Tensor:
        return (batch.columns["answers"][..., 0] > 0).to(batch.mask)

    def logits(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.network(parameters, batch.columns["inputs"]).squeeze(-1)

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """½(o − y)² and log(1 + exp(−y·o)) of the one output."""
        output, answer = self.logits(parameters, batch), batch.columns["answers"][..., 0]
        each = 0.5 * (output - answer).square(), torch.nn.functional.softplus(-answer * output)
        return torch.stack([batch.mean(one) for one in each], dim=-1)

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return GroupedProblem.evaluate(self, parameters, batch)

    def readout(self) -> None:
        """The library finds gradients by itself here."""

    def values(self, logits: Tensor, batch: Batch) -> Tensor:
        decisions = (logits > 0).to(batch.mask)
        right = batch.mean((decisions == self.labels(batch)).to(batch.mask))
        here = cells(self, batch)
        gaps, _ = differences(sums(decisions, here), here.sum(-1), self.comparison)
        return torch.stack([right, 1 - gaps.abs().amax((-1, -2))], dim=-1)

    # -- the same in NumPy -------------------------------------------------------------------------------------------

    def plain_logits(self, theta: np.ndarray, rows: Table) -> np.ndarray:
        """`[b]`."""
        return self.plain_values(theta, rows["inputs"])[-1][:, 0]

    def plain_cells(self, rows: Table) -> np.ndarray:
        """Whether a row has the label y and belongs to the group z, `[2, groups, b]`."""
        label, group = rows["answers"][:, 0] > 0, rows["group"]
        return np.array([[(label == y) & (group == z) for z in range(self.many)] for y in (0, 1)]).astype(float)

    def plain_compared(self, counts: np.ndarray) -> np.ndarray:
        """Of counts `[2, groups]` by label and group those that are compared, `[labels, groups]`."""
        return np.stack([counts.sum(0) if label is None else counts[label] for label in self.among])

    def plain_losses(self, theta: np.ndarray, rows: Table) -> np.ndarray:
        output, answer = self.plain_logits(theta, rows), rows["answers"][:, 0]
        return np.array([(0.5 * (output - answer) ** 2).mean(), np.log1p(np.exp(-answer * output)).mean()])

    def plain_gradients(self, theta: np.ndarray, rows: Table) -> np.ndarray:
        output, answer = self.plain_logits(theta, rows), rows["answers"][:, 0]
        slopes = np.stack([output - answer, -answer / (1 + np.exp(answer * output))]) / len(answer)
        return np.stack([self.plain_backwards(theta, rows, one[:, None]) for one in slopes])
