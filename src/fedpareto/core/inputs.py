"""How raw rows become what a model reads: enough to predict without the data or the problem."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedpareto.errors import DamagedFile, UserError

NUMBER, VALUE, MISSING = "number", "value", "missing"
MISSING_TEXTS = frozenset(
    {
        *("", "?", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    }
)
"""What a table of the fairness problems takes for a missing value when it is read from a CSV."""
TRUTHS = {"true": 1.0, "false": 0.0}
GROUPS = {
    ".": re.compile(r"[-+]?[1-9]\d{0,2}([,' \u00a0\u202f])\d{3}(\1\d{3})*(\.\d+)?"),
    ",": re.compile(r"[-+]?[1-9]\d{0,2}([.' \u00a0\u202f])\d{3}(\1\d{3})*(,\d+)?"),
}
"""Numbers whose thousands are separated, by the decimal mark."""
LONGEST_SHOWN = 40
"""Characters of a wrong value that a message shows."""


@dataclass(frozen=True)
class Input:
    """One of the numbers that a model reads, and from which column it comes."""

    column: str
    kind: str
    """NUMBER: (x − mean) · scale; VALUE: `scale` where the column has this value; MISSING: 1 where it has none."""
    mean: float = 0.0
    scale: float = 1.0
    """Of a value: 1, or 0 if no training row had it, so that nothing was learnt about it."""
    value: str = ""


@dataclass(frozen=True)
class Encoded:
    """Rows as a model reads them."""

    features: np.ndarray
    """`[rows, inputs]`."""
    unseen: dict[str, int]
    """By column, the number of rows whose value no training row had; the model reads it as none of the known ones."""


@dataclass(frozen=True)
class InputSchema:
    """A model's inputs in their order."""

    inputs: tuple[Input, ...]

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns that a row needs, each NUMBER or VALUE."""
        return {entry.column: entry.kind for entry in self.inputs if entry.kind != MISSING} | {
            entry.column: NUMBER for entry in self.inputs if entry.kind == NUMBER
        }

    def require(self, names: Iterable[str], where: str) -> None:
        """Raises UserError if a column is missing, with the closest of the names that are there."""
        given = [str(name) for name in names]
        for column in self.columns:
            if column not in given:
                spare = [name for name in given if name not in self.columns]
                closest = difflib.get_close_matches(column, spare, n=1, cutoff=0.4)
                hint = f"; is '{_short(closest[0])}' meant?" if closest else f"; needed are {', '.join(self.columns)}"
                raise UserError(f"{where} has no column '{column}'{hint}")

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Encoded:
        """Rows by column name, as a model reads them; messages count rows from 1. Other columns are ignored."""
        for number, row in enumerate(rows, start=1):
            if not self.columns.keys() <= row.keys():
                self.require(row, f"row {number}")
        features = np.zeros((len(rows), len(self.inputs)))
        unseen = {}
        for column, places in self._places.items():
            values = [row[column] for row in rows]
            fill = self._fill_number if self.columns[column] == NUMBER else self._fill_value
            strange = fill(features, places, column, values)
            if strange:
                unseen[column] = strange
        if not np.all(np.abs(features) <= np.finfo(np.float32).max):
            row, place = np.argwhere(np.abs(features) > np.finfo(np.float32).max)[0]
            raise UserError(f"row {row + 1}: '{self.inputs[place].column}' is too large a number")
        return Encoded(features.astype(np.float32), unseen)

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Positions of each column's inputs."""
        places: dict[str, list[int]] = {}
        for place, entry in enumerate(self.inputs):
            places.setdefault(entry.column, []).append(place)
        return places

    def _fill_number(self, features: np.ndarray, places: list[int], column: str, values: list[Any]) -> int:
        numbers = np.array([number_of(value, column, row) for row, value in enumerate(values, start=1)])
        gaps = np.isnan(numbers)
        for place in places:
            entry = self.inputs[place]
            # A missing number becomes the mean, which is 0 here.
            filled = np.where(gaps, 0.0, (numbers - entry.mean) * entry.scale)
            features[:, place] = gaps if entry.kind == MISSING else filled
        return 0 if any(self.inputs[place].kind == MISSING for place in places) else int(gaps.sum())

    def _fill_value(self, features: np.ndarray, places: list[int], column: str, values: list[Any]) -> int:
        known = {self.inputs[place].value: place for place in places if self.inputs[place].kind == VALUE}
        missing = next((place for place in places if self.inputs[place].kind == MISSING), None)
        strange = 0
        for row, value in enumerate(values):
            place = place_of(value, known, missing)
            if place is not None:
                features[row, place] = self.inputs[place].scale
            strange += place is None or not self.inputs[place].scale
        return strange

    # -- files -----------------------------------------------------------------------------------------------------

    def to_json(self) -> list[dict[str, Any]]:
        """As plain values."""
        return [asdict(entry) for entry in self.inputs]

    @classmethod
    def from_json(cls, entries: Any, source: str) -> InputSchema:
        """The inverse of `to_json`; `source` is named if it is damaged."""
        try:
            inputs = tuple(Input(**entry) for entry in entries)
            if not inputs or any(entry.kind not in (NUMBER, VALUE, MISSING) for entry in inputs):
                raise ValueError("an input is a number, a value or a missing value")
            if not all(math.isfinite(entry.mean) and math.isfinite(entry.scale) for entry in inputs):
                raise ValueError("mean and scale are numbers")
        except (TypeError, ValueError) as problem:
            raise DamagedFile(f"{source} is damaged: its inputs cannot be read ({problem})") from None
        return cls(inputs)


def numbers(names: Iterable[str]) -> InputSchema:
    """Of a model that reads columns of numbers as they are."""
    return InputSchema(tuple(Input(name, NUMBER) for name in names))


def as_number(value: Any, decimal: str = ".") -> float | None:
    """A value as a number, also a text such as 1,234.5 (with a decimal comma: 1.234,5); None if it is none."""
    if isinstance(value, str):
        text = value.strip()
        if not text or text[-1].isalpha() or "_" in text:  # "nan", "infinity" and 1_000 are texts here.
            return None
        if GROUPS[decimal].fullmatch(text):
            text = re.sub(r"[' \u00a0\u202f]", "", text)
            text = text.replace("." if decimal == "," else ",", "")
        value = text.replace(",", ".") if decimal == "," else text
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def number_of(value: Any, column: str, row: int) -> float:
    """A value as a number; NaN if it is missing or infinite, as in training."""
    if value is None:
        return math.nan
    try:
        if isinstance(value, str):
            text = value.strip()
            value = math.nan if text in MISSING_TEXTS else TRUTHS.get(text.lower(), text)
        number = float(value)
    except OverflowError:  # A whole number too large for a float.
        return math.nan
    except (TypeError, ValueError):
        raise UserError(f"row {row}: '{column}' is '{_short(value)}', not a number") from None
    return number if math.isfinite(number) else math.nan


def place_of(value: Any, known: Mapping[str, int], missing: int | None) -> int | None:
    """The input that a value of a text column sets, if there is one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return missing
    text = str(value)
    for spelling in (text, text.strip(), *_other_spellings(text)):
        if spelling in known:
            return known[spelling]
    return missing if text.strip() in MISSING_TEXTS else None


def _other_spellings(text: str) -> list[str]:
    """A code is the same whether it was written 2 or 2.0, a Boolean whether true or True."""
    if text.lower() in TRUTHS:
        return [text.capitalize()]
    try:
        number = float(text)
    except ValueError:
        return []
    return [str(int(number))] if number.is_integer() else []


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
