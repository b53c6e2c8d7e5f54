"""From rows by column name to probabilities and decisions, with the name of the model that made each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fedpareto.errors import UserError
from fedpareto.serving.models import Point, Servable
from fedpareto.serving.preferences import checked


@dataclass(frozen=True)
class Predictions:
    """One entry for each row."""

    probabilities: np.ndarray
    """Of a positive decision, `[b]`."""
    decisions: np.ndarray
    """1 where the probability exceeds ½, else 0, `[b]`."""
    served_by: list[Point | None]
    """The model, where it was chosen among several; None where it was made for the row's preference."""
    unseen: dict[str, int]
    """By column, in how many rows its value is one that no training row had."""


def predict(model: Servable, rows: Sequence[Mapping[str, Any]], preference: Any) -> Predictions:
    """Asks a model about rows, under one preference or one for each row."""
    if not rows:
        raise UserError("there are no rows to predict")
    preferences = checked(preference, len(rows), len(model.card.objectives))
    encoded = model.card.inputs.encode(rows)
    logits = model.logits(encoded.features, preferences if len(preferences) > 1 else preferences[0]).double()
    if not torch.isfinite(logits).all():
        number = int((~torch.isfinite(logits)).nonzero()[0]) + 1
        raise UserError(f"row {number}: its numbers are so large that the model has no answer")
    chosen = np.broadcast_to(model.choice(torch.as_tensor(preferences)), len(rows))
    return Predictions(
        probabilities=torch.sigmoid(logits).numpy(),
        decisions=(logits > 0).int().numpy(),
        served_by=[None if place < 0 else model.points[place] for place in chosen.tolist()],
        unseen=encoded.unseen,
    )
