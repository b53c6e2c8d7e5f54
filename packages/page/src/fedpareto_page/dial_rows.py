"""The rows at which the dial's model is shown: a table of plain values, and the groups that are counted in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.inputs.table import as_number

MOST_GROUPS = 8
"""Different values up to which a column's rows are counted by value."""
BOUND = re.compile(r"(?P<operator>>=|<=|<|>)\s*(?P<bound>[-+.\deE]+)$")
"""The end of a rule that compares numbers, such as age>=25."""
LONGEST_SHOWN = 200
"""Characters of a cell that are sent to the page."""
MISSING = "not given"


@dataclass(frozen=True)
class Table:
    """Rows and where they come from."""

    rows: Sequence[Mapping[str, Any]]
    """By column name."""
    name: str
    """In words, such as people.csv."""
    file: str | None
    """What `fedpareto predict` can read them from; None: they are in no file."""
    rules: Mapping[str, str]
    """The sensitive columns, with the rule for one of two groups where there is one."""

    @cached_property
    def columns(self) -> list[str]:
        """Those whose values can be shown; an image cannot."""
        return [name for name, value in self.rows[0].items() if value is None or isinstance(value, str | int | float)]

    @cached_property
    def cells(self) -> list[list[Any]]:
        """What the page shows of each row, in the order of `columns`."""
        return [[_shown(row.get(name)) for name in self.columns] for row in self.rows]

    @cached_property
    def groups(self) -> dict[str, Grouping]:
        """By column, sensitive ones first, then those with few values, then numbers in four bands."""
        named = [name for name in self.rules if name in self.columns]
        found, bands = {}, {}
        for name in (*named, *(column for column in self.columns if column not in named)):
            values = [row.get(name) for row in self.rows]
            grouping = _grouping(values, name, self.rules.get(name, ""))
            if grouping is not None:
                found[name] = grouping
            elif (quarters := _by_quarter(values)) is not None:
                bands[name] = quarters
        return found | bands

    def edited(self, edits: Sequence[tuple[int, str, Any]]) -> Table:
        """With other values in some cells: (row from 0, column, value)."""
        rows = list(self.rows)
        for row, column, value in edits:
            if not 0 <= row < len(rows):
                raise UserError(f"there is no row {row + 1}; there are {len(rows)}")
            if column not in rows[row]:
                raise UserError(f"row {row + 1} has no column '{column}'")
            rows[row] = {**rows[row], column: value}
        return replace(self, rows=rows)


@dataclass(frozen=True)
class Grouping:
    """Which group each row belongs to."""

    names: tuple[str, ...]
    codes: np.ndarray
    """`[rows]`, positions in `names`."""

    def counts(self, decisions: np.ndarray) -> dict[str, dict[str, int]]:
        """Of each group, how many rows it has and how many of them have the decision 1."""
        rows = np.bincount(self.codes, minlength=len(self.names))
        yes = np.bincount(self.codes[decisions == 1], minlength=len(self.names))
        return {name: {"rows": int(rows[i]), "yes": int(yes[i])} for i, name in enumerate(self.names)}


def _grouping(values: Sequence[Any], column: str, rule: str) -> Grouping | None:
    """By a rule that compares numbers, else by value, else by whether it is the rule's value; None: neither fits."""
    bound = BOUND.search(rule)
    if bound is not None:
        return _by_bound(values, column, bound["operator"], float(bound["bound"]))
    texts = [_text(value) for value in values]
    different = sorted(set(texts), key=_in_order)
    privileged = rule.partition("=")[2].strip()
    if len(different) > MOST_GROUPS and privileged in different:
        return Grouping((f"not {privileged}", privileged), np.array([int(text == privileged) for text in texts]))
    if not 2 <= len(different) <= MOST_GROUPS:
        return None
    place = {text: position for position, text in enumerate(different)}
    return Grouping(tuple(different), np.array([place[text] for text in texts]))


def _by_bound(values: Sequence[Any], column: str, operator: str, bound: float) -> Grouping | None:
    numbers = _numbers(values)
    reached = numbers >= bound if operator in (">=", "<") else numbers > bound
    below, above = ("<", "≥") if operator in (">=", "<") else ("≤", ">")
    names = [f"{column} {below} {bound:g}", f"{column} {above} {bound:g}", MISSING]
    codes = np.where(np.isnan(numbers), 2, reached.astype(int))
    present = np.unique(codes)
    if len(present) < 2:
        return None
    return Grouping(tuple(names[code] for code in present), np.searchsorted(present, codes))


def _by_quarter(values: Sequence[Any]) -> Grouping | None:
    """Numbers in up to four bands of about as many rows each; None: some are no numbers, or there is one band only."""
    numbers = _numbers(values)
    known = ~np.isnan(numbers)
    if any(_text(value) != MISSING for value, is_known in zip(values, known, strict=True) if not is_known):
        return None
    if not known.any():
        return None
    edges = np.unique(np.quantile(numbers[known], [0.25, 0.5, 0.75]))
    _, codes = np.unique(np.where(known, np.searchsorted(edges, numbers), len(edges) + 1), return_inverse=True)
    bands = [numbers[codes == code] for code in range(codes.max() + 1)]
    names = tuple(MISSING if np.isnan(band).all() else _span(band.min(), band.max()) for band in bands)
    return Grouping(names, codes) if len(set(names)) == len(bands) > 1 else None


def _span(low: float, high: float) -> str:
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """NaN where a value is none."""
    return np.array([np.nan if (number := as_number(value)) is None else number for value in values])


def _in_order(text: str) -> tuple[bool, float, str]:
    """Numbers by size, then texts by letter."""
    number = as_number(text)
    return number is None, number or 0.0, text


def _text(value: Any) -> str:
    """The name of a value's group; 1 and 1.0 are the same one."""
    if value is None or (isinstance(value, float) and np.isnan(value)) or value == "":
        return MISSING
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()[:LONGEST_SHOWN] or MISSING


def _shown(value: Any) -> Any:
    return value[:LONGEST_SHOWN] if isinstance(value, str) else value
