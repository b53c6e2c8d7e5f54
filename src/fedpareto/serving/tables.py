"""Rows and preferences from CSV files, predictions to one. No pandas: a served model needs little."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from fedpareto.core.raw_inputs import ImageInputs, Inputs, TextInputs
from fedpareto.errors import BadPreference, UserError
from fedpareto.experiments.servable import Card
from fedpareto.serving import answers, images
from fedpareto.serving.predictions import Predictions

SEPARATORS = ",;\t|"


def read_rows(path: Path, inputs: Inputs) -> list[dict[str, Any]]:
    """The rows of a file as a model reads them: a CSV with a header, lines of text, or images."""
    if isinstance(inputs, ImageInputs):
        return [{inputs.kind: image} for image in images.read(path)]
    if isinstance(inputs, TextInputs) and path.suffix != ".csv":
        return [{inputs.kind: line} for line in _text(path).splitlines() if line.strip()]
    return _read_columns(path, inputs)


def _read_columns(path: Path, inputs: Inputs) -> list[dict[str, Any]]:
    """The rows of a CSV, separated by comma, semicolon, tab or bar; all needed columns are there."""
    found = _lines(path)
    if not found:
        raise UserError(f"{path} is empty: it has no header and no rows")
    header, *lines = found
    names = [name.strip() for name in header]
    inputs.require(names, str(path))
    for column in inputs.columns:
        if names.count(column) > 1:
            raise UserError(f"{path} has the column '{column}' {names.count(column)} times")
    for number, line in enumerate(lines, start=1):
        if len(line) != len(names):
            raise UserError(f"{path}, row {number} has {len(line)} fields; the header has {len(names)}")
    if not lines:
        raise UserError(f"{path} has no rows")
    return [dict(zip(names, line, strict=True)) for line in lines]


def read_preferences(path: Path, objectives: list[str]) -> list[list[float]]:
    """One preference per line; a header may name the objectives, in their order."""
    lines = _lines(path)
    if lines and [name.strip() for name in lines[0]] == objectives:
        lines = lines[1:]
    preferences = []
    for number, line in enumerate(lines, start=1):
        try:
            preferences.append([float(field) for field in line])
        except ValueError:
            raise BadPreference(f"{path}, row {number}: '{','.join(line)}' is not a list of numbers") from None
    return preferences


def written(card: Card, predictions: Predictions) -> str:
    """Predictions as CSV; with the client whose model it was, where models were chosen."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    chosen = any(point is not None for point in predictions.served_by)
    writer.writerow([*answers.header(card), *(["client"] if chosen else [])])
    for row, point in enumerate(predictions.served_by):
        writer.writerow([*answers.fields(card, predictions, row), *([] if point is None else [point.client])])
    return text.getvalue()


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} cannot be read: it is not UTF-8 text") from None


def _lines(path: Path) -> list[list[str]]:
    """The fields of every line that is not empty."""
    text = _text(path)
    header = next((line for line in text.splitlines() if line.strip()), "")
    separator = max(SEPARATORS, key=header.count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
        return [line for line in reader if line]
    except csv.Error as problem:
        raise UserError(f"{path} cannot be read as CSV: {problem}") from None
