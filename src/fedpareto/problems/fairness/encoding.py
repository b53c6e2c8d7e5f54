"""From a table to numbers that a model can read.

The columns of the encoding are a codebook that all parties agree on beforehand: one input for a number, one for each
value of a text, and one more where values are missing. They follow from the whole table, so that every seed has the
same model. What is *estimated* comes from the training rows alone, pooled over all clients (counts, sums and sums of
squares, which secure aggregation could add up): mean and deviation of each number, what stands in for a missing one,
and which texts there are to learn from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpareto.core.inputs import MISSING, NUMBER, VALUE, Input, InputSchema
from fedpareto.errors import UserError

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_TEXTS = 100
"""A column with more different texts than this is a name or a number of something, not a category."""


@dataclass(frozen=True)
class Encoder:
    """How a table is encoded, and the table's own values in a form that is quick to encode."""

    names: tuple[str, ...]
    """Of the inputs: "age", "age is missing", "sex=Male"."""
    numbers: np.ndarray
    """The numeric columns, `[rows, k]`, NaN where missing."""
    gaps: tuple[int, ...]
    """Those numeric columns that have missing values."""
    texts: tuple[np.ndarray, ...]
    """For each text column the position of a row's value among its values, `[rows]`."""
    counts: tuple[int, ...]
    """How many values each text column has, the missing one included."""
    origins: tuple[Input, ...]
    """What each input stands for; what is estimated is not in it."""

    @property
    def width(self) -> int:
        """The number of inputs."""
        return len(self.names)

    @classmethod
    def of(cls, frame: DataFrame, left_out: Collection[str], source: str) -> Encoder:
        """For the columns of `frame`, without those left out and those with the same value in every row."""
        import pandas
        from pandas.api.types import is_bool_dtype, is_numeric_dtype

        numeric, numbers, codes, counts = [], [], [], []
        of_texts: list[Input] = []
        for name in frame.columns:
            column = frame[name]
            if name in left_out or column.nunique(dropna=False) < 2:
                continue
            if is_bool_dtype(column) or is_numeric_dtype(column):
                values = column.to_numpy(dtype=float, na_value=np.nan)
                numeric.append(name)
                numbers.append(np.where(np.isfinite(values), values, np.nan))
                continue
            positions, values = pandas.factorize(column, sort=True)
            if len(values) > MOST_TEXTS:
                raise UserError(
                    f"the column '{name}' of {source} has {len(values):,} different texts; leave it out: drop={name}"
                )
            missing = bool((positions < 0).any())
            codes.append(np.where(positions < 0, len(values), positions))
            counts.append(len(values) + missing)
            of_texts += [Input(str(name), VALUE, value=str(value)) for value in values]
            of_texts += [Input(str(name), MISSING)] if missing else []
        if not numeric and not codes:
            raise UserError(
                f"{source} has no column to learn from beside the label; every other is left out or constant"
            )
        stacked = np.stack(numbers, axis=1) if numbers else np.zeros((len(frame), 0))
        gaps = tuple(np.flatnonzero(np.isnan(stacked).any(axis=0)).tolist())
        of_numbers = [Input(str(name), NUMBER) for name in numeric] + [Input(str(numeric[i]), MISSING) for i in gaps]
        origins = (*of_numbers, *of_texts)
        return cls(tuple(map(_name, origins)), stacked, gaps, tuple(codes), tuple(counts), origins)

    def encode(self, training: np.ndarray) -> np.ndarray:
        """All rows, `[rows, width]`, as estimated on the rows where `training` `[rows]` is true.

        A number is shifted and scaled to mean 0 and deviation 1; a missing one becomes the mean, 0, and says so in an
        input of its own. A text is 1 in the input of its value; one that no training row has is 0 everywhere. A number
        that is the same in every training row is 0 everywhere.
        """
        rows, k = self.numbers.shape
        encoded = np.zeros((rows, self.width), dtype=np.float32)
        mean, scale = _statistics(self.numbers, training)
        encoded[:, :k] = np.nan_to_num((self.numbers - mean) * scale, nan=0.0)
        encoded[:, k : k + len(self.gaps)] = np.isnan(self.numbers[:, list(self.gaps)])
        start = k + len(self.gaps)
        for codes, count in zip(self.texts, self.counts, strict=True):
            seen = np.bincount(codes[training], minlength=count) > 0
            encoded[np.arange(rows), start + codes] = seen[codes]
            start += count
        return encoded

    def input_schema(self, training: np.ndarray) -> InputSchema:
        """The same encoding for rows of anybody, without this table."""
        mean, scale = (values.tolist() for values in _statistics(self.numbers, training))
        inputs = list(self.origins)
        for place in range(len(mean)):
            inputs[place] = replace(inputs[place], mean=mean[place], scale=scale[place])
        place = len(mean) + len(self.gaps)
        for codes, count in zip(self.texts, self.counts, strict=True):
            for seen in np.bincount(codes[training], minlength=count) > 0:
                inputs[place] = replace(inputs[place], scale=float(seen))
                place += 1
        return InputSchema(tuple(inputs))


def _name(origin: Input) -> str:
    """How an input is called in a message: "age", "age is missing", "sex=Male"."""
    ending = {NUMBER: "", MISSING: " is missing", VALUE: f"={origin.value}"}
    return origin.column + ending[origin.kind]


def _statistics(numbers: np.ndarray, training: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean, and 1 / deviation, of each column over the training rows that have a number, `[k]` each."""
    known = ~np.isnan(numbers[training])
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, numbers[training], 0).sum(axis=0) / count
    deviation = np.sqrt((np.where(known, numbers[training] - mean, 0) ** 2).sum(axis=0) / count)
    largest = np.abs(np.where(known, numbers[training], 0)).max(axis=0, initial=0)
    # The deviation of a constant is not exactly 0 when its mean is rounded.
    scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 1e-9 * largest)
    return mean, scale
