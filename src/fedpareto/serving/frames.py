"""Predictions for a pandas or polars frame, as a frame of the same library; neither is imported here."""

from __future__ import annotations

from typing import Any

import torch

from fedpareto.errors import UserError
from fedpareto.inputs.frames import features_of, is_frame
from fedpareto.inputs.table import InputSchema
from fedpareto.serving.answers import decided
from fedpareto.serving.models import Servable


def predict(model: Servable, frame: Any, preference: Any) -> Any:
    """A frame with a row for each of `frame`: `probability` of the positive label, and `decision`, that label
    above ½ and else the other one.

    `preference` is one for all rows, or one for each. Other columns of `frame` than the model's are ignored.
    """
    if not is_frame(frame):
        raise UserError(f"predict takes a pandas or polars DataFrame, not {type(frame).__name__}")
    if not len(frame):
        raise UserError("there are no rows to predict")
    if model.problem is not None or not isinstance(model.card.inputs, InputSchema):
        raise UserError(f"a frame works for binary models; for {model.card.problem} use model(x, preference)")
    features, _ = features_of(model.card.inputs, frame)
    logits = model.logits(features, preference).double()
    negative, positive = decided(model.card)
    decisions = [positive if is_positive else negative for is_positive in (logits > 0).tolist()]
    answers = {"probability": torch.sigmoid(logits).numpy(), "decision": decisions}
    index = {"index": frame.index} if hasattr(frame, "index") else {}
    return type(frame)(answers, **index)
