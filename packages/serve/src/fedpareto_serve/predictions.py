"""From rows by column name to probabilities and decisions, with the name of the model that made each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedpareto.config.errors import UserError
from fedpareto.inputs.table import Encoded
from fedpareto_serve.models import Point, Servable
from fedpareto_serve.preferences import checked


@dataclass(frozen=True)
class Request:
    """Rows to predict."""

    rows: Sequence[Mapping[str, Any]]
    """Values by column name."""
    preference: Any
    """Preference for all rows, or one for each."""


@dataclass(frozen=True)
class Predictions:
    """One entry for each row."""

    probabilities: np.ndarray
    """Probabilities of a positive decision, `[b]`; of models with other outputs, the value of each class, `[b, h, k]`.
    """
    decisions: np.ndarray
    """1 where the probability exceeds ½, else 0, `[b]`; of other outputs the class with the largest, `[b, h]`."""
    served_by: list[Point | None]
    """The model, where it was chosen among several; None where it was made for the row's preference."""
    unseen: dict[str, int]
    """Number of rows, by column, with a value that no training row had."""


def predict(model: Servable, rows: Sequence[Mapping[str, Any]], preference: Any) -> Predictions:
    return _together(model, [Request(rows, preference)])[0]


@dataclass(frozen=True)
class Prepared:
    """Rows as a model reads them, so that it can be asked about them under many preferences."""

    model: Servable
    encoded: Encoded

    def under(self, preference: Any) -> Predictions:
        """The predictions under one preference or one for each row."""
        count = len(self.encoded.features)
        wanted = checked(preference, count, len(self.model.card.objectives))
        return _answered(self.model, self.encoded, wanted, [count])[0]


def prepared(model: Servable, rows: Sequence[Mapping[str, Any]]) -> Prepared:
    """Read the rows; a UserError tells what a model cannot read."""
    if not rows:
        raise UserError("there are no rows to predict")
    return Prepared(model, model.card.inputs.encode(rows))


def predict_each(model: Servable, requests: Sequence[Request]) -> Sequence[Predictions | UserError]:
    """Predict for many requests at once, each answered as if alone: with its predictions, or with its error."""
    try:
        return _together(model, requests)
    except UserError as problem:
        if len(requests) == 1:
            return [problem]
    return [predict_each(model, [request])[0] for request in requests]


def _together(model: Servable, requests: Sequence[Request]) -> list[Predictions]:
    """Predict for all rows in one pass; the first error in any request is raised."""
    if not all(request.rows for request in requests):
        raise UserError("there are no rows to predict")
    objectives = len(model.card.objectives)
    given = [checked(request.preference, len(request.rows), objectives) for request in requests]
    encoded = model.card.inputs.encode([row for request in requests for row in request.rows])
    counts = [len(request.rows) for request in requests]
    preferences = given[0]
    if len(requests) > 1:
        repeated = [count if len(one) == 1 else 1 for one, count in zip(given, counts, strict=True) for _ in one]
        preferences = np.concatenate(given).repeat(repeated, axis=0)
    return _answered(model, encoded, preferences, counts)


def _answered(model: Servable, encoded: Encoded, preferences: np.ndarray, counts: Sequence[int]) -> list[Predictions]:
    """Predictions for rows that follow one another, so many of each request; preferences are `[1, m]` or one for each
    row.
    """
    logits = model.unchecked(torch.from_numpy(encoded.features), preferences).numpy().astype(float)
    finite = np.isfinite(logits).reshape(len(logits), -1).all(1)
    if not finite.all():
        raise UserError(f"row {int(finite.argmin()) + 1}: its numbers are so large that the model has no answer")
    probabilities = model.measured(logits)
    decisions = (logits > 0).astype(int) if model.problem is None else logits.argmax(-1)
    points = [
        None if place < 0 else model.points[place] for place in model.choice(torch.as_tensor(preferences)).tolist()
    ]
    points = points * sum(counts) if len(points) == 1 else points
    found, start = [], 0
    for count in counts:
        place = slice(start, start + count)
        start += count
        found.append(Predictions(probabilities[place], decisions[place], points[place], encoded.of(place)))
    return found
