"""Raw rows as a model reads them: enough to predict without the data or the problem."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedpareto.config.errors import UserError, reading
from fedpareto.config.parameters import build

NUMBER, VALUE, MISSING = "number", "value", "missing"
MISSING_TEXTS = frozenset(
    {
        *("", "?", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "NULL", "null", "None"),
        *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
    }
)
"""Texts that a table of the fairness problems takes for a missing value when it is read from a CSV."""
TRUTHS = {"true": 1.0, "false": 0.0}
GROUPS = {
    ".": re.compile(r"[-+]?[1-9]\d{0,2}([,' \u00a0\u202f])\d{3}(\1\d{3})*(\.\d+)?"),
    ",": re.compile(r"[-+]?[1-9]\d{0,2}([.' \u00a0\u202f])\d{3}(\1\d{3})*(,\d+)?"),
}
"""Numbers whose thousands are separated, by the decimal mark."""
MOST_COMPARED = 1000
"""Names among which the one is sought that may be meant."""
LONGEST_SHOWN = 40
"""Characters of a wrong value that a message shows."""


@dataclass(frozen=True)
class Marks:
    """Marks of values in the table on which a model was trained, and so in texts that it is asked about."""

    missing: tuple[str, ...] = ()
    """Texts that mean a missing value beside the usual ones, such as unknown or -999."""
    decimal: str = "."

    @cached_property
    def gaps(self) -> frozenset[str]:
        return MISSING_TEXTS | frozenset(self.missing)

    @cached_property
    def gap_numbers(self) -> frozenset[float]:
        return frozenset(number for text in self.missing if (number := as_number(text)) is not None)


PLAIN = Marks()


@dataclass(frozen=True)
class Input:
    """One of the numbers that a model reads, and from which column it comes."""

    column: str
    kind: str
    """NUMBER: (x − mean) · scale; VALUE: `scale` where the column has this value; MISSING: 1 where it has none."""
    mean: float = 0.0
    scale: float = 1.0
    """Factor; of a value 1, or 0 if no training row had it, so that nothing was learnt about it."""
    value: str = ""


@dataclass(frozen=True)
class Encoded:
    """Rows as a model reads them."""

    features: np.ndarray
    """`[rows, inputs]`."""
    strange: dict[str, np.ndarray]
    """Rows by column whose value is one that no training row had, `[rows]`; the model reads it as none of them.
    Columns without any are left out."""

    @property
    def unseen(self) -> dict[str, int]:
        return {column: int(rows.sum()) for column, rows in self.strange.items()}

    def of(self, rows: slice) -> dict[str, int]:
        """`unseen`, of some rows."""
        counts = {column: int(marked[rows].sum()) for column, marked in self.strange.items()}
        return {column: count for column, count in counts.items() if count}


@dataclass(frozen=True)
class InputSchema:
    """A model's inputs in their order."""

    kind: ClassVar[str] = "table"
    inputs: tuple[Input, ...]
    marks: Marks = PLAIN

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.inputs),)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns that a row needs, each NUMBER or VALUE."""
        return {entry.column: entry.kind for entry in self.inputs if entry.kind != MISSING} | {
            entry.column: NUMBER for entry in self.inputs if entry.kind == NUMBER
        }

    def require(self, names: Iterable[str], where: str) -> None:
        """Raises UserError if a column is missing, with the closest of the names that are there."""
        given = dict.fromkeys(str(name) for name in names)
        for column in self.columns:
            if column not in given:
                spare = [name for name in given if name not in self.columns]
                closest = difflib.get_close_matches(column, spare[:MOST_COMPARED], n=1, cutoff=0.4)
                hint = f"; is '{_short(closest[0])}' meant?" if closest else f"; needed are {', '.join(self.columns)}"
                raise UserError(f"{where} has no column '{column}'{hint}")

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> Encoded:
        """Rows by column name, as a model reads them; messages count rows from 1. Other columns are ignored."""
        for number, row in enumerate(rows, start=1):
            if not self.columns.keys() <= row.keys():
                self.require(row, f"row {number}")
        features = np.zeros((len(rows), len(self.inputs)))
        strange = self._fill_numbers(features, rows) | self._fill_values(features, rows)
        if not np.all(np.abs(features) <= np.finfo(np.float32).max):
            row, place = np.argwhere(np.abs(features) > np.finfo(np.float32).max)[0]
            raise UserError(f"row {row + 1}: '{self.inputs[place].column}' is too large a number")
        return Encoded(features.astype(np.float32), {column: rows for column, rows in strange.items() if rows.any()})

    def _fill_numbers(self, features: np.ndarray, rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        """Fill all columns of numbers at once; gives the rows of each whose number is missing, if training knew no
        such."""
        table = self._numbers
        if not table.columns:
            return {}
        found = np.array(
            [
                [number_of(row[column], column, number, self.marks) for column in table.columns]
                for number, row in enumerate(rows, 1)
            ]
        )
        gaps = np.isnan(found)
        here = found[:, table.of_number]
        # A missing number becomes the mean, which is 0 here.
        features[:, table.numbers] = np.where(gaps[:, table.of_number], 0.0, (here - table.mean) * table.scale)
        features[:, table.missing] = gaps[:, table.of_missing]
        return {column: gaps[:, place] for column, place in table.unforeseen.items()}

    def _fill_values(self, features: np.ndarray, rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
        strange = {}
        for column, (known, missing) in self._values.items():
            places = [place_of(row[column], known, missing, self.marks) for row in rows]
            for row, place in enumerate(places):
                if place is not None:
                    features[row, place] = self.inputs[place].scale
            marked = [place is None or not self.inputs[place].scale for place in places]
            if any(marked):
                strange[column] = np.array(marked)
        return strange

    @cached_property
    def _numbers(self) -> _Numbers:
        columns = [column for column, kind in self.columns.items() if kind == NUMBER]
        position = {column: place for place, column in enumerate(columns)}
        own = [(place, entry) for place, entry in enumerate(self.inputs) if entry.column in position]
        numbers = [(place, entry) for place, entry in own if entry.kind == NUMBER]
        missing = [(place, entry) for place, entry in own if entry.kind == MISSING]
        foreseen = {entry.column for _, entry in missing}
        return _Numbers(
            columns=columns,
            numbers=[place for place, _ in numbers],
            of_number=[position[entry.column] for _, entry in numbers],
            mean=np.array([entry.mean for _, entry in numbers]),
            scale=np.array([entry.scale for _, entry in numbers]),
            missing=[place for place, _ in missing],
            of_missing=[position[entry.column] for _, entry in missing],
            unforeseen={column: place for column, place in position.items() if column not in foreseen},
        )

    @cached_property
    def _values(self) -> dict[str, tuple[dict[str, int], int | None]]:
        """Input of each value by column of texts, and that of a missing one, if there is such."""
        found: dict[str, tuple[dict[str, int], int | None]] = {}
        for column in (column for column, kind in self.columns.items() if kind != NUMBER):
            own = [(place, entry) for place, entry in enumerate(self.inputs) if entry.column == column]
            known = {entry.value: place for place, entry in own if entry.kind == VALUE}
            found[column] = known, next((place for place, entry in own if entry.kind == MISSING), None)
        return found

    # -- files -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "inputs": [asdict(entry) for entry in self.inputs], "marks": asdict(self.marks)}

    @classmethod
    def from_json(cls, plain: Any, source: str) -> InputSchema:
        """Inverse of `to_json`; `source` is named if it is damaged."""
        with reading(source):
            inputs = tuple(build(Input, entry, f"{source}: input") for entry in plain["inputs"])
            marks = Marks(tuple(map(str, plain["marks"]["missing"])), str(plain["marks"]["decimal"]))
            if not inputs or any(entry.kind not in (NUMBER, VALUE, MISSING) for entry in inputs):
                raise ValueError("an input is a number, a value or a missing value")
            if not all(math.isfinite(entry.mean) and math.isfinite(entry.scale) for entry in inputs):
                raise ValueError("mean and scale are numbers")
            if marks.decimal not in GROUPS:
                raise ValueError("a decimal mark is . or ,")
        return cls(inputs, marks)


@dataclass(frozen=True)
class _Numbers:
    """Places of the columns of numbers."""

    columns: list[str]
    numbers: list[int]
    """The inputs that are numbers, and the place of each one's column in `columns`."""
    of_number: list[int]
    mean: np.ndarray
    scale: np.ndarray
    missing: list[int]
    """The inputs that say that a number is missing, and the place of each one's column."""
    of_missing: list[int]
    unforeseen: dict[str, int]
    """The columns that have no such input, with their places."""


def numbers(names: Iterable[str]) -> InputSchema:
    """Schema of a model that reads columns of numbers as they are."""
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


def number_of(value: Any, column: str, row: int, marks: Marks = PLAIN) -> float:
    """A value as a number; NaN if it is missing or infinite, as in training."""
    if value is None:
        return math.nan
    try:
        if isinstance(value, str):
            text = value.strip()
            value = math.nan if text in marks.gaps else TRUTHS.get(text.lower(), text)
        number = _written(value, marks.decimal) if isinstance(value, str) else float(value)
    except OverflowError:  # A whole number too large for a float.
        return math.nan
    except (TypeError, ValueError):
        raise UserError(f"row {row}: '{column}' is '{_short(value)}', not a number") from None
    return number if math.isfinite(number) and number not in marks.gap_numbers else math.nan


def _written(text: str, decimal: str) -> float:
    if decimal != ".":
        number = as_number(text, decimal)
        if number is not None:
            return number
    return float(text)


def place_of(value: Any, known: Mapping[str, int], missing: int | None, marks: Marks = PLAIN) -> int | None:
    """The input that a value of a text column sets, if there is one."""
    if type(value) is str and value in known:  # As nearly always.
        return known[value]
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return missing
    text = str(value)
    for spelling in (text, text.strip(), *_other_spellings(text)):
        if spelling in known:
            return known[spelling]
    return missing if text.strip() in marks.gaps else None


def _other_spellings(text: str) -> list[str]:
    """Other spellings of a value: a code is the same whether written 2 or 2.0, a Boolean whether true or True."""
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
