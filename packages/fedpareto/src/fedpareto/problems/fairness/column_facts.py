"""The columns of a table before training: what each holds, and what is odd about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.problems.fairness.columns import are_dates, quoted
from fedpareto.problems.fairness.encoding import MOST_TEXTS
from fedpareto.problems.fairness.goals import listed
from fedpareto.problems.fairness.reading import Table
from fedpareto.problems.fairness.tables import LabelledTable

if TYPE_CHECKING:
    from pandas import Series

SAME = 0.995
"""Share of its rows from which on a column is nearly constant."""
MOSTLY_MISSING = 0.5
TELLING = 0.999
"""Share of labels that a single column gets right from which on it repeats the label."""
LOOKED_AT = 50_000
"""Rows on which columns are compared with the label."""
NUMBERED = re.compile(r"^(id|nr|no|num|number|key|code)([^a-z]|$)|(id|nr|no|num|number|key|code)$")
"""Usual names of columns that number the rows."""
NEARLY_ALL = 0.8
"""Share of different values from which on such a column identifies whom a row is about, some of whom come again."""
FEW_NUMBERS = 20
"""A column with no more different whole numbers than this may hold codes."""

NUMBER, TRUTH, TEXT, DATE = "number", "true or false", "text", "date"
NAMES, ROW_NUMBER, CONSTANT, EMPTY, MIXED = "id", "row number", "constant", "empty", "numbers and texts"


@dataclass(frozen=True)
class ColumnFacts:
    """Facts about one column."""

    name: str
    kind: str
    values: int
    """Number of different values."""
    missing: int
    """Rows without a value."""


def facts_of(table: Table, name: str) -> ColumnFacts:
    series = table.frame[name]
    missing = int(series.isna().sum())
    if name in table.mixed:
        return ColumnFacts(name, MIXED, int(series.nunique()) + len(table.mixed[name].texts), missing)
    if name in table.names:
        return ColumnFacts(name, NAMES, table.names[name], 0)
    values = int(series.nunique())
    return ColumnFacts(name, _kind(series, values, missing), values, missing)


def _kind(series: Series[Any], values: int, missing: int) -> str:
    from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

    if not values:
        return EMPTY
    if values == 1 and not missing:
        return CONSTANT
    known = len(series) - missing
    all_differ = values == known and values > 20
    if is_bool_dtype(series):
        return TRUTH
    if is_numeric_dtype(series):
        if not is_integer_dtype(series):
            return NUMBER
        if all_differ and int(series.max() - series.min()) + 1 == values:
            return ROW_NUMBER
        is_named = NUMBERED.search(str(series.name).lower())
        return NAMES if is_named and values > max(NEARLY_ALL * known, 20) else NUMBER
    if are_dates(series.cat.categories if series.dtype == "category" else series.dropna().unique()):
        return DATE
    return NAMES if all_differ or values > MOST_TEXTS else TEXT


def column_warnings(table: Table, column: ColumnFacts) -> Iterator[str]:
    """Reasons why a column should perhaps not be an input."""
    name, rows = column.name, len(table.frame)
    if column.kind in (NAMES, ROW_NUMBER):
        what = "numbers the rows" if column.kind == ROW_NUMBER else "identifies rows"
        yield f"'{name}' {what}; leave it out: --set drop={quoted(name)}"
    elif column.kind in (CONSTANT, EMPTY):
        yield f"'{name}' is {column.kind}; it is left out"
    elif column.kind == DATE:
        yield f"'{name}' holds dates, and each is an input of its own; leave it out: --set drop={quoted(name)}"
    elif column.missing > MOSTLY_MISSING * rows:
        yield f"'{name}' is missing in {column.missing / rows:.0%} of the rows"
    elif _is_nearly_constant(table.frame[name]):
        yield f"'{name}' has the same value in more than {SAME:.1%} of the rows"


def may_be_codes(table: Table, column: ColumnFacts, problem: OwnTable) -> bool:
    """True if the numbers may stand for something else; two of them are the same as two texts."""
    from pandas.api.types import is_integer_dtype

    if column.kind != NUMBER or not 2 < column.values <= FEW_NUMBERS or column.name in listed(problem.numeric):
        return False
    known = table.frame[column.name].dropna()
    return is_integer_dtype(known) or bool((known.to_numpy(dtype=float) % 1 == 0).all())


def _is_nearly_constant(series: Series[Any]) -> bool:
    counts = series.value_counts(dropna=False)
    return len(counts) > 1 and int(counts.iloc[0]) > SAME * len(series)


def repeats(table: LabelledTable, name: str) -> bool:
    """True if a single column gets nearly all labels right: value by value, or by one bound on its numbers."""
    import pandas
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    step = max(len(table.label) // LOOKED_AT, 1)
    series, label = table.frame[name].iloc[::step], table.label[::step]
    most = max(label.mean(), 1 - label.mean())
    codes = pandas.factorize(series)[0] + 1
    if codes.max(initial=0) <= len(label) / 10:
        counts, ones = np.bincount(codes), np.bincount(codes, weights=label)
        right = np.maximum(ones, counts - ones).sum() / len(label)
    elif is_numeric_dtype(series) and not is_bool_dtype(series):
        known = series.notna().to_numpy()
        order = np.argsort(series.to_numpy(dtype=float, na_value=np.nan)[known], kind="stable")
        ones = np.concatenate([[0], np.cumsum(label[known][order])])
        zeros = np.arange(len(ones)) - ones
        below = np.maximum(zeros + (ones[-1] - ones), ones + (zeros[-1] - zeros))
        right = float(below.max()) / max(len(order), 1)
    else:
        return False
    return bool(right >= TELLING and most < TELLING - 0.01)
