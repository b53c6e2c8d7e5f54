"""A report on a table before training: columns, label, groups, clients, and warnings.

print("
".join(data_report(OwnTable(file="people.csv", label="hired", sensitive=("gender",))).lines()))
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.contract.solutions import tested_on
from fedpareto.moo.tested import FEWEST_ROWS
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.problems.fairness.columns import are_dates, quoted
from fedpareto.problems.fairness.encoding import MOST_TEXTS
from fedpareto.problems.fairness.goals import listed
from fedpareto.problems.fairness.partitions import Partition
from fedpareto.problems.fairness.reading import Table
from fedpareto.problems.fairness.tables import MOST_GROUPS, UNKNOWN, Groups, LabelledTable, spellings
from fedpareto.tensors.rows import tested_on_all

if TYPE_CHECKING:
    pass
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


# -- the report ----------------------------------------------------------------------------------------------------

FEWEST_OF_GROUP = 50
"""A group with fewer rows than this has hardly any in a client's test split."""
RARE = 0.05
"""A label value with a smaller share is rare."""
WIDTH = 80
MOST_NAMED = 40
"""Clients that are listed with name and test rows."""

LABELS = re.compile(
    r"\b(label|target|class|outcome|income|hired|approved|accepted|default|risk|y|churn|survived|recid\w*|pass\w*|"
    r"credit|admitted|response|status|result)\b"
)
SENSITIVES = re.compile(
    r"(^|[^a-z])(sex|gender|race|ethnic\w*|age|religion|national\w*|marital|married|disab\w*|native|foreign\w*|"
    r"orientation|caste|skin|geschlecht|alter)([^a-z]|$)"
)


@dataclass(frozen=True)
class LabelFacts:
    """Facts about the label."""

    column: str
    positive: str
    negative: str
    why: str
    """Reason why this value counts as positive."""
    is_plain: bool
    """True if the values, or the user, make it clear."""
    rows: int
    """Rows that have a label."""
    rate: float
    """Share of them that are positive."""


@dataclass(frozen=True)
class GroupFacts:
    """One group of a sensitive column."""

    attribute: str
    group: str
    rows: int
    rate: float
    """Share of its rows that are positive."""


@dataclass(frozen=True)
class ConstantFacts:
    """The score of a constant prediction, without any model."""

    answer: str
    values: dict[str, float]
    """The objectives, mean over clients."""
    hypervolume: float
    """Hypervolume of all clients' points, as a run reports it."""


@dataclass(frozen=True)
class DataReport:
    """Report on a table."""

    source: str
    rows: int
    columns: tuple[ColumnFacts, ...]
    notes: tuple[str, ...]
    """Facts recognised in the file."""
    label: LabelFacts | None
    groups: tuple[GroupFacts, ...]
    inputs: int
    """Number of the model's inputs; 0 where it is not known yet."""
    clients: tuple[str, ...]
    """Name of each client, in order; empty where they are only numbers."""
    test_rows: tuple[int, ...]
    """Number of each client's own test rows."""
    test_rate: float
    """Share of all test rows that are positive."""
    constant: ConstantFacts | None
    todo: tuple[str, ...]
    """Obstacles to a run, and how to remove them."""
    warnings: tuple[str, ...]
    suggestions: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self, whole: bool = True) -> list[str]:
        """The report in words, no line wider than a terminal; without `whole` the columns are only counted."""
        found = [f"{self.source}: {self.rows:,} rows, {self._counted()}"]
        found += list(self._of_columns()) if whole else []
        for head, texts in self._facts():
            # Before a run, what prevents it is the error that follows.
            for text in texts if whole or head != "to do" else ():
                found += textwrap.wrap(text, WIDTH, initial_indent=f"{head:<10}", subsequent_indent=" " * 10)
        return found

    def _counted(self) -> str:
        kinds = Counter(column.kind for column in self.columns)
        parts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        gaps = sum(column.missing for column in self.columns)
        return f"{len(self.columns)} columns ({parts}), {f'{gaps:,}' if gaps else 'no'} missing values"

    def _of_columns(self) -> Iterator[str]:
        widest = min(max(len(column.name) for column in self.columns), 32)
        for column in self.columns:
            name = column.name if len(column.name) <= widest else f"{column.name[: widest - 1]}…"
            values = f"{column.values:,} value{'' if column.values == 1 else 's'}"
            gaps = f", {column.missing:,} missing" if column.missing else ""
            yield f"  {name:<{widest}}  {column.kind:<17}  {values}{gaps}"

    def _facts(self) -> Iterator[tuple[str, Sequence[str]]]:
        yield "file", self.notes
        if self.label is not None:
            yield "label", [self._of_label(self.label)]
        for attribute in dict.fromkeys(group.attribute for group in self.groups):
            mine = [group for group in self.groups if group.attribute == attribute]
            told = "; ".join(f"{group.group} {group.rows:,} rows, {group.rate:.1%} positive" for group in mine)
            yield "groups", [f"{attribute}: {told}"]
        if self.test_rows:
            few, many = min(self.test_rows), max(self.test_rows)
            rows = f"{few:,}" if few == many else f"{few:,} to {many:,}"
            each = f"{len(self.test_rows)}, with {rows} test rows each, {sum(self.test_rows):,} in all"
            yield "clients", [f"{each}, {self.test_rate:.1%} positive; the model has {self.inputs} inputs"]
            if self.clients:
                listed = zip(self.clients[:MOST_NAMED], self.test_rows, strict=False)
                named = ", ".join(f"{i} {name} ({count:,})" for i, (name, count) in enumerate(listed))
                yield "", [named + (", …" if len(self.clients) > MOST_NAMED else "")]
        if self.constant is not None:
            values = ", ".join(f"{name} {value:.3f}" for name, value in self.constant.values.items())
            yield (
                "constant",
                [f"always '{self.constant.answer}' scores {values}: hypervolume {self.constant.hypervolume:.3f}"],
            )
        yield "to do", self.todo
        yield "warning", self.warnings
        yield "maybe", self.suggestions

    def _of_label(self, label: LabelFacts) -> str:
        told = f"{label.column}: {label.positive} counts as positive because {label.why}"
        told = told if label.why != "you say so" else f"{label.column}: {label.positive} counts as positive, as you say"
        other = "" if label.is_plain else f"; the other way: --set positive={quoted(label.negative)}"
        return f"{told}{other}; {label.rate:.1%} of {label.rows:,} rows are"


def data_report(problem: OwnTable, clients: int | None = None, seed: int = 0) -> DataReport:
    """Report on a table, as far as the problem's parameters go; raises UserError only if it cannot be read at all."""
    table = problem.read()
    columns = tuple(facts_of(table, str(name)) for name in table.frame.columns)
    todo, label, groups, inputs = [], None, [], 0
    labelled: LabelledTable | None = None
    attributes: dict[str, Groups] = {}
    names: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    test_rate, constant = 0.0, None
    try:
        labelled = problem.labelled() if problem.label else None
        if labelled is not None:
            label = _label_facts(labelled)
            attributes = problem.all_groups if all(problem.attributes) else {}
            groups = [fact for name, found in attributes.items() for fact in _group_facts(name, found, labelled)]
            inputs = problem.inputs_known()
        if attributes:
            count = problem.default_clients() if clients is None else clients
            names = tuple(problem.client_names(count))
            rows, test_rate, constant = _of_clients(problem, count, seed, label)
    except UserError as trouble:
        todo.append(str(trouble))
    return DataReport(
        source=table.source,
        rows=len(table.frame),
        columns=columns,
        notes=table.notes,
        label=label,
        groups=tuple(groups),
        inputs=inputs,
        clients=names,
        test_rows=rows,
        test_rate=test_rate,
        constant=constant,
        todo=tuple(todo + _more_to_do(problem, table, todo)),
        warnings=tuple(_warnings(problem, table, columns, labelled, label, groups, attributes, rows)),
        suggestions=tuple(_suggestions(problem, columns, table)),
    )


# -- facts ---------------------------------------------------------------------------------------------------------


def _label_facts(table: LabelledTable) -> LabelFacts:
    negative, positive = table.output.classes
    why, rate = table.positive, float(table.label.mean())
    return LabelFacts(table.output.name, positive, negative, why.why, why.is_plain, len(table.label), rate)


def _group_facts(attribute: str, groups: Groups, table: LabelledTable) -> Iterator[GroupFacts]:
    for code, name in enumerate(groups.names):
        mine = table.label[groups.codes == code]
        yield GroupFacts(attribute, name, len(mine), float(mine.mean()) if len(mine) else 0.0)


def _of_clients(
    problem: OwnTable, clients: int, seed: int, label: LabelFacts | None
) -> tuple[tuple[int, ...], float, ConstantFacts]:
    """Each client's number of test rows, the share of positive ones, and the score of the better constant prediction
    on what a run is tested on.
    """
    assert label is not None, "groups are known only with a label"
    splits = {"test": problem.held_out(clients, seed)}
    tested = tested_on(problem, tested_on_all(splits) if problem.test == "common" else splits, None)
    assert tested is not None, "there are rows"
    found = tested.constant(problem.objectives)
    assert found is not None, "there are two labels"
    names = [objective.name for objective in problem.objectives]
    values = dict(zip(names, found.values.tolist(), strict=True))
    told = ConstantFacts((label.negative, label.positive)[found.answer], values, found.hypervolume)
    return tuple(splits["test"].counts.tolist()), float(splits["test"].columns["label"].mean()), told


# -- warnings -----------------------------------------------------------------------------------------------------


def _more_to_do(problem: OwnTable, table: Table, known: Sequence[str]) -> list[str]:
    dropped = problem.dropped
    found = [
        mixed.question(name, table.source)
        for name, mixed in table.mixed.items()
        if name not in dropped or name == problem.label
    ]
    return [line for line in found if line not in known]


def _warnings(
    problem: OwnTable,
    table: Table,
    columns: Sequence[ColumnFacts],
    labelled: LabelledTable | None,
    label: LabelFacts | None,
    groups: Sequence[GroupFacts],
    attributes: Mapping[str, Groups],
    test_rows: Sequence[int],
) -> Iterator[str]:
    yield from _few_rows(test_rows, problem.test == "common")
    if label is not None and not RARE <= label.rate <= 1 - RARE:
        rare = label.positive if label.rate < 0.5 else label.negative
        share = min(label.rate, 1 - label.rate)
        yield f"only {share:.1%} of the rows have the label '{rare}'; accuracy says little about them"
    if label is not None and label.rows < len(table.frame):
        yield f"{len(table.frame) - label.rows:,} rows have no label and are left out"
    for group in groups:
        if group.rows < FEWEST_OF_GROUP:
            yield (
                f"the group {group.group} of '{group.attribute}' has {group.rows} rows, so a gap to it is noise; join "
                "groups with privileged=…, or leave its rows out"
            )
        for one, other in spellings([one.group for one in groups if one.attribute == group.attribute]):
            if group.group == other:
                yield f"the groups {one} and {other} of '{group.attribute}' may be one; write them alike in the table"
    yield from _lacking(attributes)
    used = [column for column in columns if column.name not in {problem.label, *problem.dropped}]
    codes = [column.name for column in used if may_be_codes(table, column, problem)]
    if codes:
        names = ",".join(codes)
        have = "has few whole numbers" if len(codes) == 1 else "have few whole numbers each"
        yield (
            f"{', '.join(map(repr, codes))} {have}, read as amounts; if they are codes: --set "
            f"categorical={quoted(names)}, else --set numeric={quoted(names)}"
        )
    holder = Partition.parse(problem.partition).column
    if holder and holder in {column.name for column in used}:
        without = f"--set drop={quoted(holder)}"
        yield f"'{holder}' says who holds a row, and the model reads it; if it is not to decide: {without}"
    for column in used:
        yield from column_warnings(table, column)
    for column in used if labelled is not None else ():
        if column.name not in table.mixed and labelled is not None and repeats(labelled, column.name):
            without = f"--set drop={quoted(column.name)}"
            yield f"'{column.name}' alone predicts the label; if it is not known in advance: {without}"


def _lacking(attributes: Mapping[str, Groups]) -> Iterator[str]:
    for attribute, found in attributes.items():
        lacking = int((found.codes == UNKNOWN).sum())
        if lacking:
            rows = "1 row has" if lacking == 1 else f"{lacking:,} rows have"
            yield f"{rows} no value in the sensitive column '{attribute}': accuracy counts them, no fairness goal does"


def _few_rows(test_rows: Sequence[int], is_common: bool) -> Iterator[str]:
    few, total = sum(count < FEWEST_ROWS for count in test_rows), sum(test_rows)
    if is_common and 0 < total < FEWEST_ROWS:
        yield f"there are only {total} test rows in all: results are mostly noise; a larger share may help: split=…"
    elif few:
        have = "client has" if len(test_rows) == 1 else "clients have"
        told = f"{few} of {len(test_rows)} {have} fewer than {FEWEST_ROWS} test rows (the smallest {min(test_rows)}): "
        if is_common:
            yield f"{told}what is measured on their own is mostly noise; results are measured on all {total:,}"
        else:
            yield f"{told}results there are mostly noise; take fewer clients, or test=common"


def _suggestions(problem: OwnTable, columns: Sequence[ColumnFacts], table: Table) -> Iterator[str]:
    """Columns that could be the label and the sensitive ones, where the user does not name them."""
    if not problem.label:
        two = [column.name for column in columns if column.values == 2 and column.kind not in (CONSTANT, EMPTY)]
        likely = [name for name in two if LABELS.search(name.lower().replace("_", " "))]
        unlikely = [name for name in reversed(two) if name not in likely and not SENSITIVES.search(name.lower())]
        found = [*likely, *unlikely][:5]
        if found:
            yield f"the label may be {_either(found)}: --label {quoted(found[0])}"
        else:
            yield "no column has two values; name one as the label and its positive value: --label … --set positive=…"
    if not all(problem.attributes):
        named = [
            column for column in columns if SENSITIVES.search(column.name.lower()) and column.name != problem.label
        ]
        few = [column.name for column in named if column.values <= MOST_GROUPS]
        many = [column.name for column in named if column.values > MOST_GROUPS and column.kind == NUMBER]
        if few:
            yield f"sensitive may be {_either(few)}: --sensitive {quoted(few[0])}"
        if many:
            middle = table.frame[many[0]].median()
            rule = f"{many[0]}>={middle:g}"
            yield f"so may {_either(many)}, by a bound: --sensitive {quoted(many[0])} --set privileged={quoted(rule)}"
        if not named:
            groups = [
                column.name for column in columns if column.kind in (TEXT, TRUTH) and column.values <= MOST_GROUPS
            ]
            groups = [name for name in groups if name != problem.label][:5]
            if groups:
                yield f"columns with few groups are {_either(groups)}; the sensitive ones: --sensitive COL"


def _either(names: Sequence[str]) -> str:
    return " or ".join(f"'{name}'" for name in names)
