"""A pandas or polars frame as a model reads it: column by column, so that a hundred thousand rows take no time.

Neither library is imported: a frame only needs to have columns by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.inputs.table import MISSING, NUMBER, VALUE, InputSchema, Marks, number_of, place_of


def is_frame(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in ("pandas", "polars") and hasattr(value, "columns")


def features_of(schema: InputSchema, frame: Any) -> tuple[np.ndarray, dict[str, int]]:
    """The inputs `[rows, inputs]`, and by column how many rows hold a value that no training row had.

    The same numbers as `InputSchema.encode` gives for the same rows; messages count rows from 1.
    """
    schema.require([str(name) for name in frame.columns], "the frame")
    names = {str(name): name for name in frame.columns}
    features = np.zeros((len(frame), len(schema.inputs)))
    unseen = {}
    for column, kind in schema.columns.items():
        values = frame[names[column]].to_numpy()
        fill = _fill_numbers if kind == NUMBER else _fill_values
        strange = fill(features, schema, column, values)
        if strange:
            unseen[column] = strange
    too_large = np.abs(features) > np.finfo(np.float32).max
    if too_large.any():
        row, place = np.argwhere(too_large)[0]
        raise UserError(f"row {row + 1}: '{schema.inputs[place].column}' is too large a number")
    return features.astype(np.float32), unseen


def _fill_numbers(features: np.ndarray, schema: InputSchema, column: str, values: np.ndarray) -> int:
    numbers = _numbers(values, column, schema.marks)
    gaps = ~np.isfinite(numbers)
    foreseen = False
    for place, entry in enumerate(schema.inputs):
        if entry.column == column and entry.kind == MISSING:
            features[:, place], foreseen = gaps, True
        elif entry.column == column:
            features[:, place] = np.where(gaps, 0.0, (np.where(gaps, 0.0, numbers) - entry.mean) * entry.scale)
    return 0 if foreseen else int(gaps.sum())


def _numbers(values: np.ndarray, column: str, marks: Marks) -> np.ndarray:
    if values.dtype.kind in "biuf":
        numbers = values.astype(float)
        return np.where(np.isin(numbers, list(marks.gap_numbers)), np.nan, numbers)
    table: dict[Any, float] = {}
    for row, value in enumerate(values.tolist(), start=1):
        if value not in table:
            table[value] = number_of(value, column, row, marks)
    return np.array([table[value] for value in values.tolist()], dtype=float)


def _fill_values(features: np.ndarray, schema: InputSchema, column: str, values: np.ndarray) -> int:
    own = [(place, entry) for place, entry in enumerate(schema.inputs) if entry.column == column]
    known = {entry.value: place for place, entry in own if entry.kind == VALUE}
    missing = next((place for place, entry in own if entry.kind == MISSING), None)
    nowhere = len(schema.inputs)
    table: dict[Any, int] = {}
    for value in values.tolist():
        if value not in table:
            place = place_of(value, known, missing, schema.marks)
            table[value] = nowhere if place is None else place
    places = np.array([table[value] for value in values.tolist()], dtype=int)
    scales = np.array([*(entry.scale for entry in schema.inputs), 0.0])
    here = places < nowhere
    features[np.flatnonzero(here), places[here]] = scales[places[here]]
    return int((scales[places] == 0).sum())
