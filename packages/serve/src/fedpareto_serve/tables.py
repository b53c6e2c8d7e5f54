"""Rows of tables, texts and images, preferences and predictions in files. No pandas: a served model needs little."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config import limits
from fedpareto.config.errors import BadPreference, DamagedFile, UserError, in_words
from fedpareto.config.files import ARCHIVE_DAMAGE, must_be_ordinary, read_bytes
from fedpareto.inputs import dialect
from fedpareto.inputs.dialect import SEPARATORS, Dialect, Sent
from fedpareto.inputs.idx import parse_idx
from fedpareto.inputs.images_texts import ImageInputs, Inputs, TextInputs
from fedpareto.inputs.table import NUMBER, InputSchema, as_number
from fedpareto.record.servable import Card
from fedpareto_serve import answers
from fedpareto_serve.predictions import Predictions

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
OPTION = re.compile(r" \([^()]*=[^()]*\)$")
"""The part of a note that says what one could set at a training."""


def read_rows(
    path: Path | Sent, inputs: Inputs, say: Callable[[str], None] = lambda note: None
) -> list[dict[str, Any]]:
    """The rows of a file as a model reads them: a CSV with a header, lines of text, or images.

    `say` is told what is unusual about a table, a line each.
    """
    if isinstance(inputs, ImageInputs):
        if isinstance(path, Sent):
            raise UserError(f"{path} is a text; this model reads images")
        return [{inputs.kind: image} for image in read_images(path)]
    if isinstance(inputs, TextInputs) and path.suffix != ".csv":
        return [{inputs.kind: line} for line in _text(path).splitlines() if line.strip()]
    if isinstance(inputs, InputSchema):
        return _read_table(path, inputs, say)
    found = _lines(path)
    if not found:
        raise UserError(f"{path} is empty: it has no header and no rows")
    return _rows(path, inputs, [name.strip() for name in found[0]], found[1:])


def read_table(path: Path | Sent) -> tuple[Dialect, list[list[str]]]:
    """Recognise how a table is written, and read the fields of its rows, whatever model they are for."""
    try:
        if isinstance(path, Path):
            must_be_ordinary(path)
        found = dialect.recognised(path)
        with dialect.stream(path, found) as text:
            return found, _fields(text.read(), found.separator, path)
    except (OSError, *dialect.DAMAGED) as problem:
        raise UserError(f"{path} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    except UnicodeError:
        raise UserError(f"{path} cannot be read: its text has no encoding that is known") from None


def _read_table(path: Path | Sent, inputs: InputSchema, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The rows of a table, recognised as that which the model was trained on was."""
    found, lines = read_table(path)
    # What the training table's decimal mark was, it is in files of its kind, whatever their few rows show.
    own = inputs.marks.decimal == "," and found.separator != ","
    for column in inputs.columns:
        if f"{column} (2)" in found.names and f"{column} (2)" not in inputs.columns:
            raise UserError(f"{path} has the column '{column}' more than once")
    rows = _rows(path, inputs, list(found.names), lines)
    for note in found.notes:
        say(f"{path}: {OPTION.sub('', note)}")
    decimal = "," if own else found.decimal
    if decimal == inputs.marks.decimal:
        return rows
    numbers = [column for column, kind in inputs.columns.items() if kind == NUMBER]
    return [row | {name: _number(row[name], decimal) for name in numbers} for row in rows]


def _number(text: str, decimal: str) -> float | str:
    """Read a text as a number, whatever the decimal mark is elsewhere; else leave it as it is."""
    number = as_number(text, decimal)
    return text if number is None else number


def _rows(path: Path | Sent, inputs: Inputs, names: list[str], lines: list[list[str]]) -> list[dict[str, Any]]:
    """Rows by column name; all needed columns are there, and no row is longer or shorter than the header."""
    inputs.require(names, str(path))
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


def _text(path: Path | Sent) -> str:
    try:
        return (read_bytes(path) if isinstance(path, Path) else path.content).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} cannot be read: it is not UTF-8 text") from None


def _lines(path: Path | Sent) -> list[list[str]]:
    text = _text(path)
    header = next((line for line in text.splitlines() if line.strip()), "")
    return _fields(text, max(SEPARATORS, key=header.count), path)


def _fields(text: str, separator: str, path: Path | Sent) -> list[list[str]]:
    if separator == dialect.BLANKS:
        return [line.split() for line in text.splitlines() if line.strip()]
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True)
        return [line for line in reader if line]
    except csv.Error as problem:
        raise UserError(f"{path} cannot be read as CSV: {problem}") from None


def read_images(path: Path) -> Sequence[np.ndarray]:
    """The images of a file or folder, pixels from 0 to 255; of a folder in the order of their names."""
    try:
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix.lower() in ENDINGS)
            if not files:
                raise UserError(f"{path} holds no images: files that end with {', '.join(ENDINGS)}")
            return [_picture(file) for file in files]
        if path.suffix.lower() in ENDINGS:
            return [_picture(path)]
        if path.suffix == ".npy":
            return _each(np.load(path, allow_pickle=False), path)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                limits.must_unpack(arrays.zip, path.stat().st_size, str(path))
                return _each(arrays[arrays.files[0]], path)
        if path.suffix != ".gz":
            return list(parse_idx(read_bytes(path), str(path)))
        with gzip.open(path) as file:
            return list(parse_idx(limits.whole(file, limits.unpacked(path.stat().st_size), str(path)), str(path)))
    except DamagedFile:
        known = "name a folder of PNG files, a .npy, a .npz or an IDX file of bytes"
        raise UserError(f"{path} holds no images: {known}") from None
    except UserError:
        raise
    except ARCHIVE_DAMAGE as problem:
        why = getattr(problem, "strerror", "") or in_words(problem)
        raise UserError(f"{path} cannot be read as images: {why}") from None


def _each(images: np.ndarray, path: Path) -> list[np.ndarray]:
    """Take images one by one; a file of a few bytes can name billions that are empty."""
    if not images.size:
        raise UserError(f"{path} holds no images: its array has the shape {list(images.shape)}")
    return list(images)


def _picture(path: Path) -> np.ndarray:
    """Read a picture, grey as `[h, w]`, coloured as `[h, w, 3]`."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L", "LA", "I;16", "I")
            return np.asarray(image.convert("L" if grey else "RGB"))
    except Image.DecompressionBombError as problem:
        raise ValueError(str(problem)) from None
