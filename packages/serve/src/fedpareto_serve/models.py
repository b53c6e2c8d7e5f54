"""Models that take a preference: any preference, if the algorithm learnt that; else the best of the trained models.

model = fedpareto.load("runs/praffl-synthetic").conditioned(client=0)
model(x, [0.7, 0.3])         # x `[b, inputs]`: the probability of a positive decision, `[b]`
model(x, preferences)        # a preference for each row, `[b, m]`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import expit, softmax
from torch import Tensor
from torch.nn.functional import linear, pad

from fedpareto.config.errors import UserError, reading
from fedpareto.config.parameters import build
from fedpareto.contract.conditioned import Conditioned, tolerances
from fedpareto.contract.problem import Problem
from fedpareto.contract.registry import problem_class
from fedpareto.inputs.frames import features_of, is_frame
from fedpareto.inputs.table import InputSchema
from fedpareto.moo.dominance import is_nondominated
from fedpareto.networks.mlp import MLP
from fedpareto.record.servable import CONDITIONED, SOLUTIONS, Card
from fedpareto.tensors.layout import Layout
from fedpareto_serve.preferences import checked

WORTH_A_HEAD = 64
"""Rows under one preference from which on it is faster to make the head once."""


@dataclass(frozen=True)
class Point:
    """A model's objectives on held-out rows."""

    client: int
    preference: tuple[float, ...] | None
    """Preference that the model was made for; None: private to its client."""
    values: tuple[float, ...]
    on_front: bool
    """True if no other point is better."""


class Servable(ABC):
    """`model(x, preference)` of one client."""

    kind: ClassVar[str]

    def __init__(self, card: Card) -> None:
        self.card = card
        self.problem = _problem(card)
        if self.problem is None and (self.network.inputs,) != card.inputs.shape:
            raise UserError(f"the model reads {self.network.inputs} inputs, its schema has {card.inputs.shape[0]}")

    @cached_property
    def network(self) -> MLP:
        """The layers of a binary classifier."""
        return network_of(self.card.layout)

    def __call__(self, x: Any, preference: Any) -> Tensor:
        """The probability of a positive decision `[b]` for rows `[b, inputs]`, under one preference or one for each.

        Of other models, for each of `card.outputs` the probability (or value) of each class, `[b, h, k]`.
        """
        return torch.as_tensor(self.measured(self.logits(x, preference).numpy()))

    def measured(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities of logits, or the raw outputs."""
        if self.problem is None:
            return np.asarray(expit(logits))
        said = [
            softmax(logits[:, head], axis=-1) if output.is_probable else logits[:, head]
            for head, output in enumerate(self.card.outputs)
        ]
        return np.stack(said, axis=1)

    def predict(self, frame: Any, preference: Any) -> Any:
        """For each row of a pandas or polars DataFrame its `probability` of the positive label and the `decision`, that
        label above ½ and else the other one, as a frame of the same library.

        `preference` is one for all rows, or one for each. Other columns of `frame` than the model's are ignored.
        """
        if not is_frame(frame):
            raise UserError(f"predict takes a pandas or polars DataFrame, not {type(frame).__name__}")
        if not len(frame):
            raise UserError("there are no rows to predict")
        if self.problem is not None or not isinstance(self.card.inputs, InputSchema):
            raise UserError(f"a frame works for binary models; for {self.card.problem} use model(x, preference)")
        features, _ = features_of(self.card.inputs, frame)
        logits = self.logits(features, preference).double()
        negative, positive = decided(self.card)
        decisions = [positive if is_positive else negative for is_positive in (logits > 0).tolist()]
        answers = {"probability": torch.sigmoid(logits).numpy(), "decision": decisions}
        index = {"index": frame.index} if hasattr(frame, "index") else {}
        return type(frame)(answers, **index)

    def logits(self, x: Any, preference: Any) -> Tensor:
        """The log-odds of a positive decision, `[b]`; of other models the scores of each output's classes."""
        rows = self._rows(x)
        return self.unchecked(rows, checked(preference, len(rows), len(self.card.objectives)))

    def unchecked(self, rows: Tensor, preferences: np.ndarray) -> Tensor:
        """As `logits`, for validated rows, under preferences `[1, m]` or `[b, m]`."""
        with torch.no_grad():
            wanted = torch.as_tensor(preferences)
            if self.problem is not None:
                return self._by_problem(rows, wanted)
            return self._logits(rows.to(self.dtype), wanted)

    def _by_problem(self, rows: Tensor, preferences: Tensor) -> Tensor:
        """Score all rows that share a model at once."""
        assert self.problem is not None, "without a problem it is an MLP"
        # Whole numbers, such as pixels and words, are what the network expects; numbers are in its own precision.
        rows = rows.to(self.dtype) if isinstance(self.card.inputs, InputSchema) else rows
        distinct, place = np.unique(preferences.numpy(), axis=0, return_inverse=True)
        whose = torch.as_tensor(place.reshape(-1)).expand(len(rows))
        found: list[Tensor] = [torch.empty(0)] * len(rows)
        for number, preference in enumerate(distinct):
            mine = (whose == number).nonzero().flatten()
            parameters = self.card.layout.unflatten(self.at(preference)[None])
            answers = self.problem.answers(parameters, rows[mine][None])[0]
            for row, answer in zip(mine.tolist(), answers, strict=True):
                found[row] = answer
        return torch.stack(found)

    def _rows(self, x: Any) -> Tensor:
        """`x` as the model computes, if it is rows of finite numbers."""
        try:
            rows = torch.as_tensor(x)
            rows = rows.to(self.dtype) if isinstance(self.card.inputs, InputSchema) else rows
        except (TypeError, ValueError, RuntimeError) as problem:
            raise UserError(f"x is not a table of numbers ({problem})") from None
        shape = self.card.inputs.shape
        if tuple(rows.shape[1:]) != shape:
            raise UserError(f"x has the shape {list(rows.shape)}; it should be [rows, {', '.join(map(str, shape))}]")
        # A sum is fast; only if it is not finite, which large numbers can cause too, each number is checked.
        if not torch.isfinite(rows.sum()) and not torch.isfinite(rows).all():
            number = int((~torch.isfinite(rows)).any(1).nonzero()[0]) + 1
            raise UserError(f"x has a number that is not finite, first in row {number}")
        return rows

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The precision of the model."""

    @abstractmethod
    def _logits(self, rows: Tensor, preferences: Tensor) -> Tensor:
        """The log-odds `[b]` under preferences `[1, m]` or `[b, m]`."""

    @abstractmethod
    def at(self, preference: Any) -> Tensor:
        """The whole model for one preference, `[d]`, laid out as `card.layout`."""

    @abstractmethod
    def choice(self, preferences: Tensor) -> np.ndarray:
        """Places in `points` that serve preferences `[k, m]`, `[k]`; -1: a model made for the preference alone."""

    @property
    @abstractmethod
    def points(self) -> list[Point]:
        """The trade-off as it was measured on held-out rows."""

    @abstractmethod
    def describe(self, preference: Any) -> str:
        """The model that serves a preference, in words."""

    def shown(self, numbers: Sequence[float]) -> str:
        named = zip(self.card.objectives, numbers, strict=True)
        return ", ".join(f"{objective.name} {number:.4g}" for objective, number in named)


class AnyPreference(Servable):
    """A body and a hypernetwork: a separate model for every preference."""

    kind = CONDITIONED

    def __init__(
        self, card: Card, anatomy: Conditioned, body: Tensor, hypernetwork: Tensor, lattice: Tensor, front: Tensor
    ) -> None:
        super().__init__(card)
        if card.client is None:
            raise UserError("a hypernetwork is some client's, and no client is named")
        self.client: int = card.client
        self.anatomy, self.body, self.hypernetwork = anatomy, body, hypernetwork
        self.lattice, self.front = lattice, front
        fits = body.shape == (anatomy.body.size,) and hypernetwork.shape == (anatomy.hypernetwork.layout.size,)
        if not fits or Layout.of({**anatomy.body.to_json(), **anatomy.head.to_json()}) != card.layout:
            raise UserError("body and hypernetwork do not fit the model's layout")
        m = len(card.objectives)
        if anatomy.objectives != m or lattice.shape != front.shape or lattice.shape[1:] != (m,):
            raise UserError("the trade-off does not fit the model's objectives")
        _must_be_numbers(body, hypernetwork)
        _must_be_numbers(lattice)
        _must_be_numbers(front)
        if not (torch.isfinite(body).all() and torch.isfinite(hypernetwork).all()):
            raise UserError(f"client {self.client} has no model: its training diverged")

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the model."""
        return self.body.dtype

    def at(self, preference: Any) -> Tensor:
        preferences = torch.as_tensor(checked(preference, 1, self.anatomy.objectives)).to(self.dtype)
        return self.anatomy.models(self.body[None], self.hypernetwork[None], preferences[None])[0, 0]

    def _logits(self, rows: Tensor, preferences: Tensor) -> Tensor:
        if len(preferences) == 1 and len(rows) >= WORTH_A_HEAD:
            return forward(layers_of(self.network, self.card.layout.unflatten(self.at(preferences[0]))), rows)[:, 0]
        return self.coded(rows, preferences)

    def coded(self, rows: Tensor, preferences: Tensor) -> Tensor:
        """The log-odds `[b]` under preferences `[1, m]` or `[b, m]`, without a model for each."""
        features = forward(self._body, rows)
        code = self._code(preferences.to(self.dtype))
        for number, layer in enumerate(self.head, start=1):
            features = layer(features, code)
            features = features.relu_() if number < len(self.head) else features
        return features[:, 0]

    def _code(self, preferences: Tensor) -> Tensor:
        """The hypernetwork's values before its last layer, and a 1 for its bias, `[k, q + 1]`."""
        return pad(forward(self._first, tolerances(preferences, self.anatomy.margin)), (0, 1), value=1.0)

    @cached_property
    def _body(self) -> list[Layer]:
        return layers_of(self.network, self.anatomy.body.unflatten(self.body))

    @cached_property
    def _first(self) -> list[Layer]:
        network = self.anatomy.hypernetwork
        last = f"{len(network.hidden)}."
        parts = {name: tensor for name, tensor in self._hypernetwork.items() if not name.startswith(last)}
        return layers_of(network, parts)

    @cached_property
    def _hypernetwork(self) -> dict[str, Tensor]:
        return self.anatomy.hypernetwork.layout.unflatten(self.hypernetwork)

    @cached_property
    def head(self) -> list[CodedLinear]:
        """The layers that the hypernetwork makes, without making them."""
        last = len(self.anatomy.hypernetwork.hidden)
        parts = torch.cat([self._hypernetwork[f"{last}.weight"], self._hypernetwork[f"{last}.bias"][None]])
        tensors = self.anatomy.head.unflatten(parts)
        return [CodedLinear.of(tensors[f"{i}.weight"], tensors[f"{i}.bias"]) for i in self.anatomy.head.layers]

    def choice(self, preferences: Tensor) -> np.ndarray:
        return np.full(len(preferences), -1)

    @cached_property
    def points(self) -> list[Point]:
        """The trade-off at the preferences of the lattice."""
        return _points([self.client] * len(self.lattice), self.lattice.numpy(), self.front.numpy(), self.card)

    def describe(self, preference: Any) -> str:
        """The model that serves a preference, in words."""
        wanted = checked(preference, 1, self.anatomy.objectives)[0]
        card = self.card
        return (
            f"client {self.client}'s model for the preference {_written(wanted)} ({card.algorithm}, seed {card.seed})"
        )


class OneOfMany(Servable):
    """The clients' models of a run: the one whose preference is nearest, or which fits the preference best.

    A client's preference may be private. Then the objectives decide, those on the rows for selection (never on test
    rows), each scaled between its worst and best value over the models: the largest weighted sum wins. Ties go to the
    client's own model, then to the smallest id.
    """

    kind = SOLUTIONS

    def __init__(
        self,
        card: Card,
        clients: Sequence[int],
        models: Tensor,
        values: np.ndarray,
        preferences: np.ndarray | None,
        chosen_by: np.ndarray | None = None,
    ) -> None:
        super().__init__(card)
        chosen_by = values if chosen_by is None else chosen_by
        if models.ndim != 2 or models.shape[1] != card.layout.size:
            raise UserError(f"{card.algorithm} makes no models of the problem's own layout; they cannot be served")
        if not len(models) == len(clients) == len(values) or values.shape[1:] != (len(card.objectives),):
            raise UserError("the models do not fit their clients and objectives")
        if not clients or any(one is not None and one.shape != values.shape for one in (chosen_by, preferences)):
            raise UserError("the models do not fit their clients and objectives")
        _must_be_numbers(models)
        if not torch.isfinite(models).all():
            raise UserError("a model holds a number that is not finite")
        order = sorted(range(len(clients)), key=lambda row: (clients[row] != card.client, clients[row]))
        self.clients = [clients[row] for row in order]
        self.models, self.values, self.chosen_by = models[order], values[order], chosen_by[order]
        self.preferences = None if preferences is None else preferences[order]
        self._made: dict[int, list[Layer]] = {}

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the models."""
        return self.models.dtype

    @cached_property
    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """A `[m, n]` and c `[n]`: the model with the largest w·A + c serves the preference w.

        For the nearest preference p this is 2 w·p − |p|², which is |w|² less the squared distance.
        """
        if self.preferences is not None:
            return 2 * self.preferences.T, -(self.preferences**2).sum(1)
        signs = np.array([1.0 if objective.maximise else -1.0 for objective in self.card.objectives])
        good = self.chosen_by * signs
        lowest, spread = good.min(0), np.ptp(good, axis=0)
        scaled = np.divide(good - lowest, spread, out=np.zeros_like(good), where=spread > 0)
        return scaled.T, np.zeros(len(good))

    def choice(self, preferences: Tensor) -> np.ndarray:
        """Places in `points` that serve preferences `[k, m]`, `[k]`; -1: a model made for the preference alone."""
        slopes, offsets = self.scores
        return np.asarray((preferences.double().numpy() @ slopes + offsets).argmax(1))

    def at(self, preference: Any) -> Tensor:
        return self.models[self._chosen(preference)]

    def _chosen(self, preference: Any) -> int:
        wanted = checked(preference, 1, len(self.card.objectives))
        return int(self.choice(torch.as_tensor(wanted))[0])

    def _logits(self, rows: Tensor, preferences: Tensor) -> Tensor:
        chosen = torch.as_tensor(self.choice(preferences)).expand(len(rows))
        logits = rows.new_empty(len(rows))
        for number in sorted(set(chosen.tolist())):
            mine = chosen == number
            logits[mine] = forward(self._layers_of(number), rows[mine])[:, 0]
        return logits

    def _layers_of(self, number: int) -> list[Layer]:
        if number not in self._made:
            self._made[number] = layers_of(self.network, self.card.layout.unflatten(self.models[number]))
        return self._made[number]

    @cached_property
    def points(self) -> list[Point]:
        return _points(self.clients, self.preferences, self.values, self.card)

    def describe(self, preference: Any) -> str:
        """The model that serves a preference, in words."""
        point = self.points[self._chosen(preference)]
        wanted = checked(preference, 1, len(self.card.objectives))[0]
        if len(self.points) == 1:
            why = "is the only one here"
        elif point.preference is not None:
            why = f"has the nearest preference, {_written(point.preference)}"
        else:
            why = "serves it best"
        return (
            f"for the preference {_written(wanted)} client {point.client}'s model, which {why}: "
            f"{self.shown(point.values)} ({self.card.algorithm}, seed {self.card.seed})"
        )


# -- the layers of one network, as fast as one network can be --------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A linear layer of one network."""

    weight: Tensor
    """Transposed, `[out, in]`."""
    bias: Tensor
    relu: bool


@dataclass(frozen=True)
class CodedLinear:
    """A linear layer whose parameters are themselves linear in a code z `[q]`, which may differ from row to row.

    W = Σ_k z_k W_k, so x·W = Σ_k z_k (x·W_k): a product with matrices that all rows share, instead of a matrix for each
    row, which would have to be written to memory and read again.
    """

    weight: Tensor
    """All W_k, transposed and one below the other, `[q · out, in]`."""
    bias: Tensor
    """`[q, out]`."""

    @classmethod
    def of(cls, weights: Tensor, biases: Tensor) -> CodedLinear:
        """Make it from W_k as `[q, in, out]`."""
        return cls(weights.mT.reshape(-1, weights.shape[1]).contiguous(), biases.contiguous())

    def __call__(self, inputs: Tensor, code: Tensor) -> Tensor:
        """`[b, in]` and `[b, q]` to `[b, out]`."""
        each = linear(inputs, self.weight, self.bias.view(-1)).view(-1, *self.bias.shape)
        return each.mul_(code.unsqueeze(-1)).sum(1)


def forward(layers: Sequence[Layer], inputs: Tensor) -> Tensor:
    """Outputs `[b, outputs]` of one network, or of some layers of it, for `[b, inputs]`."""
    for layer in layers:
        inputs = linear(inputs, layer.weight, layer.bias)
        inputs = inputs.relu_() if layer.relu else inputs
    return inputs


def layers_of(network: MLP, parameters: Mapping[str, Tensor]) -> list[Layer]:
    """The layers of a network whose parameters are given.

    They compute as the stacked network does; but for one network, a product with transposed weights is faster on some
    machines.
    """
    return [
        Layer(parameters[f"{i}.weight"].t().contiguous(), parameters[f"{i}.bias"], network.has_relu(i))
        for i in range(len(network.hidden) + 1)
        if f"{i}.weight" in parameters
    ]


def network_of(layout: Layout) -> MLP:
    """The network that a layout belongs to, an MLP with one output."""
    shapes = [shape for name, shape in zip(layout.names, layout.shapes, strict=True) if name.endswith(".weight")]
    if shapes and all(len(shape) == 2 for shape in shapes):
        network = MLP(shapes[0][0], tuple(shape[1] for shape in shapes[:-1]), shapes[-1][1])
        if network.layout == layout and network.outputs == 1:
            return network
    raise UserError(
        "the model is not a multilayer perceptron with one output, and its problem does not say how it is used"
    )


def is_yes_or_no(card: Card) -> bool:
    """Return whether the one output is the probability of a positive decision."""
    return card.network is None


def decided(card: Card) -> tuple[Any, Any]:
    """The negative and the positive decision in the label's own values; 0 and 1 where those are not known.

    Whole numbers are numbers: a label of 1 and 2 has decisions of 1 and 2.
    """
    classes = next((output.classes for output in card.outputs if len(output.classes) == 2), ("0", "1"))
    negative, positive = (int(name) if name.isdecimal() else name for name in classes)
    return negative, positive


def _must_be_numbers(*tensors: Tensor) -> None:
    """Raises UserError unless they are all of single or all of double precision."""
    kinds = {tensor.dtype for tensor in tensors}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        raise UserError(f"a model holds numbers of the type {', '.join(sorted(map(str, kinds)))}")


def _problem(card: Card) -> Problem | None:
    """The problem whose network it is, rebuilt; None where the layout is enough."""
    if card.network is None:
        return None
    with reading("the description of the network"):
        name, parameters = str(card.network["problem"]), card.network["parameters"]
        problem: Problem = build(problem_class(name), parameters, f"problem {name}")
    if not problem.rebuilt_by_name or problem.layout != card.layout:
        raise UserError(f"the network of {name} has another layout here; it was made by another version")
    return problem


def _points(clients: Sequence[int], preferences: np.ndarray | None, values: np.ndarray, card: Card) -> list[Point]:
    finite = np.isfinite(values).all(1)
    on_front = np.zeros(len(values), dtype=bool)
    if finite.any():
        maximise = [objective.maximise for objective in card.objectives]
        on_front[finite] = is_nondominated(values[finite], maximise=maximise)
    return [
        Point(
            client=client,
            preference=None if preferences is None else tuple(preferences[row].tolist()),
            values=tuple(values[row].tolist()),
            on_front=bool(on_front[row]),
        )
        for row, client in enumerate(clients)
    ]


def _written(preference: Sequence[float] | np.ndarray) -> str:
    return ",".join(f"{weight:.4g}" for weight in preference)
