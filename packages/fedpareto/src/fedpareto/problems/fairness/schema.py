"""The common schema of several parties' tables: agreed on beforehand, written to a JSON file, checked by each.

A party with the schema encodes its own table as all others do, without seeing theirs. So the schema holds
what would otherwise be estimated from all rows: mean and deviation of each number, the values of each text, the label's
values and the groups. It is made from one table, a public sample for instance; anyone with the schema learns these few
statistics of that table.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.config.errors import UserError, reading
from fedpareto.config.files import read_object
from fedpareto.config.parameters import build
from fedpareto.contract.outputs import Output
from fedpareto.inputs import table as inputs
from fedpareto.inputs.table import Input, InputSchema
from fedpareto.problems.fairness import tables
from fedpareto.problems.fairness.columns import as_text
from fedpareto.problems.fairness.encoding import MOST_TEXTS
from fedpareto.problems.fairness.tables import UNKNOWN, Choice, Groups, LabelledTable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FORMAT = 1
NUMBER, CATEGORY = "number", "category"
MOST_UNKNOWN = 0.5
"""Share of a text column's rows: with more values that the schema does not know, it is another column."""
FEWEST_ROWS = 30
"""With fewer rows a test split has only a handful, and results on it are noise."""


@dataclass(frozen=True)
class Column:
    """An input of the model."""

    name: str
    kind: str
    """NUMBER or CATEGORY."""
    mean: float = 0.0
    scale: float = 1.0
    """A number x is encoded as (x − mean) / scale."""
    categories: tuple[str, ...] = ()
    """Values of a text, in their order; any other value is encoded as none of them."""
    missing: bool = False
    """True if there is an input that says that the value is missing."""

    @property
    def width(self) -> int:
        return (1 if self.kind == NUMBER else len(self.categories)) + self.missing

    def inputs(self) -> list[Input]:
        own = [Input(self.name, inputs.VALUE, value=value) for value in self.categories]
        if self.kind == NUMBER:
            own = [Input(self.name, inputs.NUMBER, mean=self.mean, scale=1 / self.scale)]
        return own + ([Input(self.name, inputs.MISSING)] if self.missing else [])


@dataclass(frozen=True)
class Attribute:
    """A sensitive column: its groups are values, or the privileged by a rule and the rest."""

    name: str
    groups: tuple[str, ...]
    rule: str = ""

    def codes(self, table: LabelledTable) -> np.ndarray:
        """The group of each row, `[rows]`, UNKNOWN where the value is missing or no group's."""
        series = table.column(self.name)
        if not self.rule:
            return _positions(texts(series), self.groups)
        _, operator, value = tables.split_rule(self.rule)
        compare = tables.compared(table, self.name, operator, value) if operator != "=" else None
        chosen = tables.matches(series, value) if compare is None else compare
        return np.where(series.notna(), chosen.astype(int), UNKNOWN)


@dataclass(frozen=True)
class TableSchema:
    """The table that every party of a federation has, without its rows."""

    label: str
    labels: tuple[str, ...]
    """All values that the label may have."""
    positive: str
    """The value that counts as 1."""
    sensitive: tuple[Attribute, ...]
    columns: tuple[Column, ...]
    ignored: tuple[str, ...] = ()
    """Columns that a table may have and no model sees."""

    @property
    def width(self) -> int:
        return sum(column.width for column in self.columns)

    @property
    def output(self) -> Output:
        return tables.output_of(self.label, self.labels, self.positive)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def attribute(self, name: str) -> Attribute:
        for attribute in self.sensitive:
            if attribute.name == name:
                return attribute
        known = ", ".join(attribute.name for attribute in self.sensitive)
        raise UserError(f"the schema has no sensitive column '{name}'; it has {known}")

    # -- files -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, path: Path) -> TableSchema:
        """Read a schema from a file; a damaged one is refused."""
        entries = read_object(path)
        with reading(f"the schema {path}"):
            if entries.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT}")
            schema = build(cls, entries, f"the schema {path}")
            schema._check()
            return schema

    def _check(self) -> None:
        for column in self.columns:
            if column.kind not in (NUMBER, CATEGORY):
                raise ValueError(f"the kind of the column '{column.name}' is neither {NUMBER} nor {CATEGORY}")
            if not (math.isfinite(column.mean) and 0 < column.scale < math.inf and 1 / column.scale < math.inf):
                raise ValueError(f"the column '{column.name}' has no mean and scale that are numbers")
        names = [column.name for column in self.columns]
        if not names or len(set(names)) < len(names):
            raise ValueError("it needs columns, each with its own name")
        if self.positive not in self.labels:
            raise ValueError("its positive value is no value of the label")
        for attribute in self.sensitive:
            if attribute.rule and len(attribute.groups) != 2:
                raise ValueError(f"the rule '{attribute.rule}' makes two groups, not {len(attribute.groups)}")

    # -- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        label: str,
        sensitive: Sequence[str],
        positive: str = "",
        privileged: Mapping[str, str] | None = None,
        ignored: Collection[str] = (),
        source: str = "the table",
    ) -> TableSchema:
        """Make a schema from a table that represents all parties; `privileged` are rules by sensitive column."""
        table = tables.labelled(frame, label, positive, source)
        for name in (*sensitive, *ignored):
            tables.require(frame, name, source)
        rules = privileged or {}
        attributes = [
            Attribute(name, tables.groups(table, name, rules.get(name, "")).names, rules.get(name, ""))
            for name in sensitive
        ]
        of_label = texts(table.frame[label])
        columns = [
            _column(table.frame[name], name, source) for name in table.frame.columns if name not in (label, *ignored)
        ]
        if not columns:
            raise UserError(f"{source} has no column to learn from beside the label")
        return cls(
            label=label,
            labels=tuple(sorted(set(of_label.dropna()))),
            positive=str(of_label[table.label == 1].iloc[0]),
            sensitive=tuple(attributes),
            columns=tuple(columns),
            ignored=tuple(ignored),
        )

    # -- a party's table -------------------------------------------------------------------------------------------

    def problems(self, frame: DataFrame, ignored: Collection[str] = ()) -> list[str]:
        """Faults of a party's table, a line each; no line holds a value of it."""
        needed = {self.label, *(column.name for column in self.columns)}
        needed |= {attribute.name for attribute in self.sensitive}
        known = needed | set(self.ignored)
        found = [f"the column '{name}' is missing" for name in sorted(needed - set(frame.columns))]
        found += [
            f"the column '{name}' is not in the federation's schema; leave it out with --ignore '{name}'"
            for name in frame.columns
            if name not in known | set(ignored)
        ]
        if len(frame) < FEWEST_ROWS:
            found.append(f"it has {len(frame)} rows; at least {FEWEST_ROWS} are needed")
        for column in self.columns:
            if column.name in frame.columns:
                found += _column_problems(column, frame[column.name])
        if self.label in frame.columns:
            found += self._label_problems(texts(frame[self.label]))
        for attribute in self.sensitive:
            if attribute.name in frame.columns:
                found += self._group_problems(attribute, frame)
        return found

    def _label_problems(self, label: Series[Any]) -> list[str]:
        strange = label.notna() & ~label.isin(self.labels)
        allowed = " and ".join(f"'{value}'" for value in self.labels)
        if strange.any():
            return [f"the label '{self.label}' has values other than {allowed} {_where(strange)}"]
        if label.dropna().nunique() < 2:
            return [f"the label '{self.label}' has one value only; there is nothing to learn"]
        return []

    def _group_problems(self, attribute: Attribute, frame: DataFrame) -> list[str]:
        try:
            codes = attribute.codes(self._table(frame, np.zeros(len(frame)), "the table"))
        except UserError as problem:
            return [str(problem)]
        strange = frame[attribute.name].notna() & (codes == UNKNOWN)
        names = ", ".join(attribute.groups)
        if strange.any():
            return [f"the sensitive column '{attribute.name}' has values of no group ({names}) {_where(strange)}"]
        return []

    def _table(self, frame: DataFrame, label: np.ndarray, source: str) -> LabelledTable:
        choice = Choice(self.positive, "the schema says so", True)
        return LabelledTable(frame, label, (self.label,), source, self.output, choice)

    def labelled(self, frame: DataFrame, source: str) -> LabelledTable:
        tables.require(frame, self.label, source)
        frame = tables.with_value(frame, self.label)
        label = (texts(frame[self.label]) == self.positive).to_numpy(dtype=np.float32)
        return self._table(frame, label, source)

    def groups(self, table: LabelledTable, attribute: str) -> Groups:
        chosen = self.attribute(attribute)
        return Groups(chosen.groups, chosen.codes(table))

    def inputs(self) -> InputSchema:
        return InputSchema(tuple(entry for column in self.columns for entry in column.inputs()))

    def encode(self, frame: DataFrame) -> np.ndarray:
        """All rows as the model reads them, `[rows, width]`: the same numbers for every party."""
        return np.concatenate([_encoded(column, frame[column.name]) for column in self.columns], axis=1)


def texts(series: Series[Any]) -> Series[Any]:
    """A column's values as a user would write them: 1 is "1" whether the column is whole or not."""
    return series.astype(object).where(series.notna(), None).map(as_text, na_action="ignore")


def _plain(series: Series[Any]) -> Series[Any]:
    return series.astype(object) if series.dtype == "category" else series


def _positions(values: Series[Any], known: Sequence[str]) -> np.ndarray:
    """Position of each value in `known`, `[rows]`; UNKNOWN if it is not there."""
    place = {value: index for index, value in enumerate(known)}
    return np.asarray(values.map(place).fillna(UNKNOWN).to_numpy(dtype=int))


def _column(series: Series[Any], name: str, source: str) -> Column:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    missing = bool(series.isna().any())
    if is_numeric_dtype(series) and not is_bool_dtype(series):
        numbers = _numbers(series)
        known = numbers[np.isfinite(numbers)]
        if not len(known):
            raise UserError(f"the column '{name}' of {source} is empty; leave it out: --drop {name}")
        deviation = float(known.std())
        # A constant's deviation is rounding. Another party's values may still differ, so the column stays.
        scale = deviation if deviation > 1e-9 * float(np.abs(known).max()) else 1.0
        missing = len(known) < len(numbers)
        return Column(name, NUMBER, mean=float(known.mean()), scale=scale, missing=missing)
    values = sorted(set(texts(series).dropna()))
    if len(values) > MOST_TEXTS:
        raise UserError(
            f"the column '{name}' of {source} has {len(values):,} different texts; leave it out: --drop {name}"
        )
    return Column(name, CATEGORY, categories=tuple(values), missing=missing)


def _numbers(series: Series[Any]) -> np.ndarray:
    import pandas

    numbers = pandas.to_numeric(_plain(series), errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _column_problems(column: Column, series: Series[Any]) -> list[str]:
    if column.kind == NUMBER:
        # What is infinite counts as missing, as everywhere; what is text does not.
        import pandas

        bad = series.notna() & pandas.to_numeric(_plain(series), errors="coerce").isna()
        if not bad.any():
            return []
        what = "1 value that is not a number" if bad.sum() == 1 else f"{int(bad.sum())} values that are not numbers"
        return [f"the column '{column.name}' has {what} {_where(bad)}"]
    values = texts(series)
    unknown = values.notna() & ~values.isin(column.categories)
    if unknown.sum() <= MOST_UNKNOWN * len(values):
        return []
    share = unknown.mean()
    return [f"{share:.0%} of the values of '{column.name}' are not in the federation's schema {_where(unknown)}"]


def unknown_values(schema: TableSchema, frame: DataFrame) -> dict[str, int]:
    """Number of rows in which each text column has a value that the schema does not know."""
    counts = {}
    for column in schema.columns:
        if column.kind == CATEGORY:
            values = texts(frame[column.name])
            counts[column.name] = int((values.notna() & ~values.isin(column.categories)).sum())
    return {name: count for name, count in counts.items() if count}


def _where(rows: Series[bool]) -> str:
    """The first row of those that are true, counted as an editor counts the lines of a CSV with a header."""
    return f"(first in line {int(np.flatnonzero(rows.to_numpy())[0]) + 2})"


def _encoded(column: Column, series: Series[Any]) -> np.ndarray:
    """One column's inputs, `[rows, column.width]`."""
    encoded = np.zeros((len(series), column.width), dtype=np.float32)
    if column.kind == NUMBER:
        numbers = _numbers(series)
        encoded[:, 0] = np.nan_to_num((numbers - column.mean) / column.scale, nan=0.0)
        gaps = np.isnan(numbers)
    else:
        codes = _positions(texts(series), column.categories)
        known = np.flatnonzero(codes != UNKNOWN)
        encoded[known, codes[known]] = 1
        gaps = series.isna().to_numpy()
    if column.missing:
        encoded[:, -1] = gaps
    return encoded
