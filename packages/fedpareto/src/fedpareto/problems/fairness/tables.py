"""Tables: reading them, and extracting the label and the groups.

A table is a pandas frame. pandas is imported where it is used, so that help and lists are fast.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract.outputs import Output
from fedpareto.problems.fairness.columns import as_text, quoted

if TYPE_CHECKING:
    from pandas import DataFrame, Series


UNKNOWN = -1
"""The group of a row whose sensitive attribute is missing: it belongs to none."""
MOST_GROUPS = 10
"""A sensitive column with more values than this is not one of groups; it needs a rule."""


@dataclass(frozen=True)
class Groups:
    """The group of each row by one sensitive attribute."""

    names: tuple[str, ...]
    codes: np.ndarray
    """`[rows]`, positions in `names`, UNKNOWN where the attribute is missing."""


@dataclass(frozen=True)
class LabelledTable:
    """A table whose rows all have a label."""

    frame: DataFrame
    label: np.ndarray
    """`[rows]`, 0 or 1."""
    not_features: tuple[str, ...]
    """Columns that no model may see: the label itself."""
    source: str
    """Name of the table in messages."""
    output: Output
    """Name of the label, and of its values 0 and 1."""
    positive: Choice
    """The value that counts as 1, and why."""

    def column(self, name: str) -> Series[Any]:
        return self.frame[require(self.frame, name, self.source)]


def require(frame: DataFrame, name: str, source: str) -> str:
    """The column's name without surrounding spaces; UserError if there is none."""
    plain = name if name in frame.columns else " ".join(name.split())
    if plain not in frame.columns:
        raise UnknownName(f"column of {source}", name, [str(column) for column in frame.columns])
    return plain


def labelled(frame: DataFrame, label: str, positive: str, source: str) -> LabelledTable:
    """The rows of `frame` that have a label.

    Label 1 is the value `positive`; if none is given, the one of the column's two values with the usual positive
    meaning (1 of 0 and 1, "yes" of "no" and "yes"), else the last in ascending order.
    """
    label = require(frame, label, source)
    frame = with_value(frame, label)
    values = sorted(frame[label].unique().tolist())
    shown = ", ".join(as_text(value) for value in values[:5]) + (", …" if len(values) > 5 else "")
    if len(values) < 2:
        raise UserError(f"the label '{label}' of {source} has one value only ({shown}); there is nothing to learn")
    must_be_written_alike(values, f"the label '{label}' of {source}")
    if not positive and len(values) > 2:
        example = as_text(values[-1])
        raise UserError(
            f"the label '{label}' of {source} has {len(values)} values ({shown}); say which one is label 1, such as "
            f"--set positive={quoted(example)}"
        )
    chosen = matches(frame[label], positive) if positive else None
    choice = choose(values) if chosen is None else Choice(positive, "you say so", True)
    ones = (frame[label] == choice.value).to_numpy() if chosen is None else chosen
    if ones.all() or not ones.any():
        # What a spec's author wrote is no longer known.
        hint = "; YAML reads yes and no as true and false: put them in quotes" if positive in ("True", "False") else ""
        raise UserError(f"positive is '{positive}', but the label '{label}' of {source} has the values {shown}{hint}")
    first = frame[label].to_numpy()[int(ones.argmax())]
    output = output_of(label, [as_text(value) for value in values], as_text(first))
    return LabelledTable(frame, ones.astype(np.float32), (label,), source, output, choice)


def must_be_written_alike(values: Sequence[Any], whose: str) -> None:
    """Raises UserError if two values of a label differ only in case, spaces or a full stop: one of them would be 0."""
    for one, other in spellings(values):
        raise UserError(f"{whose} has '{one}' and '{other}', which would be two answers; write them alike in the table")


def spellings(values: Sequence[Any]) -> list[tuple[str, str]]:
    """Pairs of texts that are probably the same value, written in two ways."""
    seen: dict[str, str] = {}
    found = []
    for text in map(as_text, values):
        plain = " ".join(text.casefold().rstrip(". ").split())
        if plain in seen:
            found.append((seen[plain], text))
        seen.setdefault(plain, text)
    return found


def with_value(frame: DataFrame, name: str) -> DataFrame:
    """The rows that have a value in a column; the frame itself, not a copy, if all have."""
    known = frame[name].notna()
    return frame if known.all() else frame[known].reset_index(drop=True)


def output_of(label: str, values: Sequence[str], positive: str) -> Output:
    """The class names of a model of this label; for several other values, "not" the positive one."""
    others = [value for value in values if value != positive]
    return Output(label, (others[0] if len(others) == 1 else f"not {positive}", positive))


def groups(table: LabelledTable, column: str, rule: str = "") -> Groups:
    """The groups of a sensitive column: its values, or by a rule the privileged (group 1) and the rest.

    A rule is a value ("White"), a column with a value ("race=White"), or a bound ("age>=25").
    """
    import pandas
    from pandas.api.types import is_numeric_dtype

    _, operator, value = split_rule(rule)
    series = table.column(column)
    if not rule:
        codes, values = pandas.factorize(series, sort=True)
        if len(values) > MOST_GROUPS:
            example = f"{column}{'>=' if is_numeric_dtype(series) else '='}{values[len(values) // 2]}"
            raise UserError(
                f"the sensitive column '{column}' of {table.source} has {len(values)} values; say who is privileged, "
                f"such as privileged={example}"
            )
        names = tuple(as_text(value) for value in values.tolist())
    else:
        chosen = matches(series, value) if operator == "=" else compared(table, column, operator, value)
        names = tuple(f"{column}{sign}{value}" for sign in (_OPPOSITE[operator], operator))
        codes = np.where(series.notna(), chosen.astype(int), UNKNOWN)
    if len(set(codes.tolist()) - {UNKNOWN}) < 2:
        raise UserError(
            f"the sensitive '{rule or column}' puts all rows of {table.source} into one group; fairness needs two"
        )
    return Groups(names, np.asarray(codes))


_OPPOSITE = {"=": "≠", ">=": "<", "<": ">=", ">": "<=", "<=": ">"}
_RULE = re.compile(r"^(?P<column>.*?)\s*(?P<operator>>=|<=|=|<|>)\s*(?P<value>.+)$")


def split_rule(rule: str) -> tuple[str, str, str]:
    """Column ("" if the rule names none), operator and value of "race=White", "age>=25" or "White"."""
    found = _RULE.match(rule)
    if found is None:
        return "", "=", rule
    return found["column"], found["operator"], found["value"]


def matches(series: Series[Any], text: str) -> np.ndarray:
    """True for rows that hold the value that a user writes as `text`; 1 is "1" whether the column is whole or not."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if is_bool_dtype(series):
        series = series.astype(str).str.lower()
        text = {"1": "true", "0": "false"}.get(text, text.lower())
    elif is_numeric_dtype(series):
        try:
            return np.asarray(series == float(text))
        except ValueError:
            return np.zeros(len(series), dtype=bool)
    if series.dtype != "category":
        series = series.astype(object)
    return np.asarray(series == text)


def compared(table: LabelledTable, column: str, operator: str, value: str) -> np.ndarray:
    """True for rows with a number on this side of a bound."""
    from pandas.api.types import is_numeric_dtype

    series = table.column(column)
    try:
        bound = float(value)
    except ValueError:
        raise UserError(f"the rule {column}{operator}{value} compares with '{value}', which is no number") from None
    if not is_numeric_dtype(series):
        raise UserError(
            f"the rule {column}{operator}{value} compares numbers, but '{column}' of {table.source} has none"
        )
    numbers = series.to_numpy(dtype=float, na_value=np.nan)
    compare = {">=": np.greater_equal, "<=": np.less_equal, "<": np.less, ">": np.greater}[operator]
    return np.asarray(compare(numbers, bound))


def parse_csv(text: bytes, separator: str = ",", **options: Any) -> DataFrame:
    """A published CSV; an empty field, "NA" and the like, and "?" are missing values."""
    import pandas

    source = io.BytesIO(text)
    return pandas.read_csv(source, sep=separator, skipinitialspace=True, na_values=["?"], low_memory=False, **options)


# -- which of a label's values counts as 1 -------------------------------------------------------------------------


OPPOSITES = (
    *(("0", "1"), ("-1", "1"), ("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("-", "+")),
    *(("negative", "positive"), ("neg", "pos"), ("bad", "good"), ("low", "high"), ("fail", "pass")),
    *(("failed", "passed"), ("failure", "success"), ("loss", "win"), ("lost", "won"), ("rejected", "accepted")),
    *(("rejected", "approved"), ("refused", "accepted"), ("denied", "approved"), ("denied", "granted")),
    *(("absent", "present"), ("off", "on")),
)
"""Pairs of values with a usual meaning: the second is positive."""


@dataclass(frozen=True)
class Choice:
    """The value of a label that counts as 1."""

    value: Any
    """The value as it is in the column."""
    why: str
    is_plain: bool
    """True if the user, or the values themselves, make it clear; else it is a convention to be reported."""


def choose(values: Sequence[Any]) -> Choice:
    """Choose the positive one of a label's two values in ascending order."""
    words = [as_text(value).strip().lower() for value in values]
    for negative, positive in OPPOSITES:
        if sorted(words) == sorted((negative, positive)):
            return Choice(values[words.index(positive)], f"of the usual meaning of {negative} and {positive}", True)
    without = [re.sub(r"^(not?|non|un)[ _-]?", "", word) for word in words]
    if without[0] == without[1] != "":
        positive = min(words, key=len)
        return Choice(values[words.index(positive)], "the other one is its negation", True)
    signs = [word[:1] for word in words]
    if sorted(signs) in (["<", ">"], ["≤", ">"], ["<", "≥"], [">", "≤"]):
        return Choice(values[next(i for i, sign in enumerate(signs) if sign in ">≥")], "it is the larger one", True)
    return Choice(values[-1], "it comes last in ascending order, and neither value has a usual meaning", False)
