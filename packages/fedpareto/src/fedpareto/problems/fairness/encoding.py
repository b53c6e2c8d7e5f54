"""From a table to numbers that a model can read.

The inputs are fixed beforehand for all parties: one input for a number, one for each
value of a text, and one more where values are missing. They follow from the whole table, so that every seed has the
same model. What is *estimated* comes from the training rows alone, pooled over all clients (counts, sums and sums of
squares, which secure aggregation could add up): mean and deviation of each number, the replacement of a missing one,
and the known texts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.inputs.table import MISSING, NUMBER, VALUE, Input, InputSchema
from fedpareto.problems.fairness.columns import are_dates, quoted

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_TEXTS = 100
"""A column with more different texts than this is an identifier, not a category."""


@dataclass(frozen=True)
class Encoder:
    """Encoding of a table, and the table's own values in a form that is quick to encode."""

    names: tuple[str, ...]
    """Names of the inputs: "age", "age is missing", "sex=Male"."""
    numbers: tuple[np.ndarray, ...]
    """The numeric columns, `[rows]` each, not finite where missing."""
    gaps: tuple[int, ...]
    """Places of the numeric columns that have missing values."""
    texts: tuple[np.ndarray, ...]
    """Position of each row's value among the values of each text column, `[rows]`."""
    counts: tuple[int, ...]
    """Number of values of each text column, the missing one included."""
    origins: tuple[Input, ...]
    """Meaning of each input, without estimated statistics."""

    @property
    def width(self) -> int:
        return len(self.names)

    @classmethod
    def of(cls, frame: DataFrame, left_out: Collection[str], source: str) -> Encoder:
        """Encoder for the columns of `frame`, without those left out and those with the same value in every row."""
        import pandas
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        numeric, numbers, codes, counts = [], [], [], []
        of_texts: list[Input] = []
        for name in frame.columns:
            column = frame[name]
            if name in left_out or column.nunique(dropna=False) < 2:
                continue
            if is_bool_dtype(column) or is_numeric_dtype(column):
                numeric.append(name)
                is_plain = isinstance(column.dtype, np.dtype)
                numbers.append(column.to_numpy() if is_plain else column.to_numpy(dtype=float, na_value=np.nan))
                continue
            positions, values = pandas.factorize(column, sort=True)
            if len(values) > MOST_TEXTS:
                raise UserError(too_many(name, values, source))
            missing = bool((positions < 0).any())
            smallest = np.min_scalar_type(len(values) + 1)
            codes.append(np.where(positions < 0, len(values), positions).astype(smallest))
            counts.append(len(values) + missing)
            of_texts += [Input(str(name), VALUE, value=str(value)) for value in values]
            of_texts += [Input(str(name), MISSING)] if missing else []
        if not numeric and not codes:
            raise UserError(
                f"{source} has no column to learn from beside the label; every other is left out or constant"
            )
        gaps = tuple(place for place, column in enumerate(numbers) if not np.isfinite(column).all())
        of_numbers = [Input(str(name), NUMBER) for name in numeric] + [Input(str(numeric[i]), MISSING) for i in gaps]
        origins = (*of_numbers, *of_texts)
        return cls(tuple(map(_name, origins)), tuple(numbers), gaps, tuple(codes), tuple(counts), origins)

    def fitted(self, training: np.ndarray) -> Fitted:
        """Estimate an encoding on the rows where `training` `[rows]` is true."""
        seen = [
            np.bincount(codes[training], minlength=count) > 0
            for codes, count in zip(self.texts, self.counts, strict=True)
        ]
        return Fitted(self, tuple(_statistics(column, training) for column in self.numbers), tuple(seen))


@dataclass(frozen=True)
class Fitted:
    """An encoding with what was estimated on training rows."""

    encoder: Encoder
    statistics: tuple[tuple[float, float], ...]
    """Mean, and 1 / deviation, of each number."""
    seen: tuple[np.ndarray, ...]
    """Values of each text column that a training row has, as booleans."""

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """The rows at these places, `[len(rows), width]`.

        A number is shifted and scaled to mean 0 and deviation 1; a missing one becomes the mean, 0, and sets a
        separate input. A text is 1 in the input of its value; one that no training row has is 0 everywhere. A number
        that is the same in every training row is 0 everywhere.
        """
        encoder = self.encoder
        encoded = self._numbers(rows, encoder.width)
        start = len(encoder.numbers) + len(encoder.gaps)
        for codes, count, seen in zip(encoder.texts, encoder.counts, self.seen, strict=True):
            mine = codes[rows]
            encoded[np.arange(len(rows)), start + mine.astype(np.intp)] = seen[mine]
            start += count
        return encoded

    def compact(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compact rows: numbers with their gaps, `[k, numbers + gaps]`, and of each text column the
        input that is 1, `[k, texts]`; it is `width`, one beyond the last, where none is."""
        encoder = self.encoder
        start = len(encoder.numbers) + len(encoder.gaps)
        numbers = self._numbers(rows, start)
        codes = np.empty((len(rows), len(encoder.texts)), dtype=np.int16 if encoder.width < 2**15 else np.int32)
        for place, (own, count, seen) in enumerate(zip(encoder.texts, encoder.counts, self.seen, strict=True)):
            mine = own[rows]
            codes[:, place] = np.where(seen, start + np.arange(count), encoder.width)[mine]
            start += count
        return numbers, codes

    def _numbers(self, rows: np.ndarray, width: int) -> np.ndarray:
        """Zeros of that width, except for the numbers and their missing indicators."""
        encoder = self.encoder
        encoded = np.zeros((len(rows), width), dtype=np.float32)
        for place, ((mean, scale), column) in enumerate(zip(self.statistics, encoder.numbers, strict=True)):
            values = column[rows].astype(float)
            known = np.isfinite(values)
            encoded[:, place] = np.where(known, (values - mean) * scale, 0.0)
            if place in encoder.gaps:
                encoded[:, len(encoder.numbers) + encoder.gaps.index(place)] = ~known
        return encoded

    def input_schema(self) -> InputSchema:
        """Encoding for any rows, without this table."""
        inputs = list(self.encoder.origins)
        for place, (mean, scale) in enumerate(self.statistics):
            inputs[place] = replace(inputs[place], mean=mean, scale=scale)
        place = len(self.statistics) + len(self.encoder.gaps)
        for was_seen in np.concatenate([np.zeros(0, dtype=bool), *self.seen]):
            inputs[place] = replace(inputs[place], scale=float(was_seen))
            place += 1
        return InputSchema(tuple(inputs))


def too_many(name: str, values: Collection[str], source: str) -> str:
    without = f"leave it out: --set drop={quoted(str(name))}"
    if are_dates(values):
        return f"the column '{name}' of {source} holds dates; {without} (or write a number for each)"
    return f"the column '{name}' of {source} has {len(values):,} different texts; {without}"


def _name(origin: Input) -> str:
    ending = {NUMBER: "", MISSING: " is missing", VALUE: f"={origin.value}"}
    return origin.column + ending[origin.kind]


def _statistics(column: np.ndarray, training: np.ndarray) -> tuple[float, float]:
    """Mean, and 1 / deviation, of a column `[rows]` over the training rows that have a number."""
    values = column[training].astype(float)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 0.0
    mean = float(values.mean())
    deviation = float(np.sqrt(((values - mean) ** 2).mean()))
    # The deviation of a constant is not exactly 0 when its mean is rounded.
    return mean, 1 / deviation if deviation > 1e-9 * float(np.abs(values).max()) else 0.0
