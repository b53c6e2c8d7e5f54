"""Adult, which the fairness problems have too, as AFL reads it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.contract.outputs import Output
from fedpareto.inputs.table import VALUE, Input, InputSchema
from fedpareto.problems.fairness.datasets import ADULT
from fedpareto.problems.images_text.examples import Examples

if TYPE_CHECKING:
    from fedpareto.problems.fairness.tables import LabelledTable


CATEGORIES: Mapping[str, int] = {
    "workclass": 8,
    "education": 16,
    "marital-status": 7,
    "occupation": 14,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "native-country": 41,
}
"""The categorical columns of Adult, and their numbers of values; missing is not one of them."""


def people() -> Examples:
    """Adult as in AFL (Mohri et al. 2019): one-hot encoding of the 99 values; people with and without a doctorate."""
    return _people(ADULT.stamps())


@lru_cache(maxsize=1)
def _people(stamps: tuple[tuple[str, int], ...]) -> Examples:
    table = ADULT.table()
    encoded = _dummies(table).to_numpy(dtype=np.uint8)
    without = (table.frame["education"] != "Doctorate").to_numpy().astype(np.int64)
    tested = np.arange(len(encoded)) >= ADULT_TRAINING_ROWS
    return Examples(encoded, table.label.astype(np.int64), tested, without)


def people_schema() -> tuple[InputSchema, Output]:
    """Encoding of a row of Adult as AFL reads it, and the label."""
    table = ADULT.table()
    # A column's name is that of the table, and after a "_" the value.
    places = [next(name for name in CATEGORIES if place.startswith(f"{name}_")) for place in _dummies(table)]
    values = [place[len(name) + 1 :] for place, name in zip(_dummies(table), places, strict=True)]
    inputs = tuple(Input(name, VALUE, value=value) for name, value in zip(places, values, strict=True))
    return InputSchema(inputs), table.output


def _dummies(table: LabelledTable) -> Any:
    import pandas

    return pandas.get_dummies(table.frame[list(CATEGORIES)])


ADULT_TRAINING_ROWS = 32_561
