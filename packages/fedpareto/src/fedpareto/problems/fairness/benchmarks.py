"""The fairness problems by name: published data sets, and a user's own table.

What all have in common (the thesis says little of it, so these are our choices): texts are one-hot encoded and numbers
standardised, with statistics of the training rows of all clients (encoding.py); a missing number becomes the mean and
sets a separate input, a missing text is a value of its own; a row whose sensitive attribute is missing counts for
accuracy only; sensitive columns are inputs too, unless dropped. The files' own division into training and test rows is
not used.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.inputs.table import InputSchema, Marks
from fedpareto.problems.data import data_folder
from fedpareto.problems.fairness import datasets, reading, tables
from fedpareto.problems.fairness.columns import Reading
from fedpareto.problems.fairness.goals import listed
from fedpareto.problems.fairness.problem import Fairness
from fedpareto.problems.fairness.sources import Source


@dataclass(frozen=True)
class Published(Fairness):
    """A problem on a published data set."""

    dataset: ClassVar[datasets.TableSet]

    sensitive: tuple[str, ...] = ("gender",)
    """Sensitive attributes, of those that the problem's description names; a notion of fairness counts for each."""
    positive: str = ""
    """The value of the label that counts as 1; empty: the one that the problem's description asks for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for attribute in self.attributes or [""]:
            if attribute not in self.dataset.attributes:
                where = "sensitive" if attribute in listed(self.sensitive) or not attribute else "goals"
                raise UnknownName(f"attribute of {self.name} in {where}", attribute, self.dataset.attributes)

    def _read(self) -> tables.LabelledTable:
        table = self.dataset.table()
        if not self.positive:
            return table
        return tables.labelled(table.frame, self.dataset.label, self.positive, table.source)

    def _groups(self, attribute: str) -> tables.Groups:
        return self.dataset.groups(attribute)

    def examples(self, clients: int, seed: int, client: int) -> list[dict[str, Any]]:
        if None in self.dataset.paths():
            raise UserError(
                f"the data set {self.dataset.name} is not in the data folder {data_folder()}; get it with "
                f"'fedpareto data fetch {self.dataset.name}', or set FEDPARETO_DATA to a folder that holds it"
            )
        return super().examples(clients, seed, client)

    def sensitive_columns(self) -> dict[str, str]:
        rules = [self.dataset.attributes[attribute] for attribute in self.attributes]
        return {tables.split_rule(rule)[0]: rule for rule in rules}

    def _group_count(self, attribute: str) -> int:
        # The privileged group by the attribute's rule, and the rest; this needs no data.
        return 2

    def _inputs(self) -> int:
        # Known beforehand, so that a list of all problems need not read all data.
        return self.dataset.inputs if self.drop == type(self).drop else super()._inputs()


@dataclass(frozen=True)
class Adult(Published):
    """UCI Adult: does a person earn more than $50,000 a year? Gender (male or not), race (white or not).

    Both files together, 48,842 rows, 23.9 % of them positive. `fnlwgt`, the census's sampling weight, is dropped.
    """

    name: ClassVar[str] = "adult"
    dataset: ClassVar[datasets.TableSet] = datasets.ADULT

    drop: tuple[str, ...] = ("fnlwgt",)


@dataclass(frozen=True)
class LawSchool(Published):
    """Law School (22,407 rows): does a student ever pass the bar? Gender (male or not), race (white or not).

    This is the file whose 94.8 % of positive rows fit the accuracies in the thesis. Of its 38 columns the eleven that
    Le Quy et al. (2022) use are kept: decile1b, decile3, lsat, ugpa, zfygpa, zgpa, fulltime, fam_inc, male, tier and
    race1. The others number the student, repeat these, reveal the outcome (bar1, bar2, grad, …) or are predictions.
    """

    name: ClassVar[str] = "law-school"
    dataset: ClassVar[datasets.TableSet] = datasets.LAW_SCHOOL


@dataclass(frozen=True)
class LawSchoolClean(Published):
    """Law School (20,798 rows): does a student pass the bar at once? Gender (male or not), race (white or not).

    The cleaned file of the survey by Le Quy et al. (2022), 89.0 % positive, no missing values; all columns are used.
    """

    name: ClassVar[str] = "law-school-20798"
    dataset: ClassVar[datasets.TableSet] = datasets.LAW_SCHOOL_20798


@dataclass(frozen=True)
class CreditDefault(Published):
    """UCI Credit Default: does a customer fail to pay next month? Gender (male or not), age (25 and older or not).

    30,000 rows, 22.1 % positive, no missing values; all columns are used. SEX, EDUCATION and MARRIAGE are codes and
    are read as texts; the months in arrears (PAY_0 … PAY_6) are numbers.
    """

    name: ClassVar[str] = "credit-default"
    dataset: ClassVar[datasets.TableSet] = datasets.CREDIT_DEFAULT


@dataclass(frozen=True)
class Compas(Published):
    """COMPAS: is a person arrested again within two years? Race (Caucasian or not), gender (male or not).

    ProPublica's own selection, 6,172 of 7,214 rows, 45.5 % positive. Kept are sex, race, age, the counts of juvenile
    and prior offences and the degree of the charge. Names and dates of birth are never kept; COMPAS's own scores and
    what happened later are not used.
    """

    name: ClassVar[str] = "compas"
    dataset: ClassVar[datasets.TableSet] = datasets.COMPAS

    sensitive: tuple[str, ...] = ("race",)


@dataclass(frozen=True)
class Bank(Published):
    """UCI Bank Marketing: does a customer subscribe to a deposit? Age (25 and older or not), marital (married or not).

    45,211 rows, 11.7 % positive, "unknown" being a value like others. `duration`, the length of the call whose end is
    the label, is known only afterwards and dropped; keep it with drop=[]. (The thesis has no experiments on this set.)
    """

    name: ClassVar[str] = "bank"
    dataset: ClassVar[datasets.TableSet] = datasets.BANK

    sensitive: tuple[str, ...] = ("age",)
    drop: tuple[str, ...] = ("duration",)


@dataclass(frozen=True)
class OwnTable(Fairness):
    """Your own table: accuracy and fairness towards the groups of its sensitive columns.

    The label is a column with two values, or one of whose values is named as positive; rows without one are left out.
    Groups are the values of a sensitive column; with `privileged` there are two, privileged and not.
    Beside these, columns with the same value in every row are left out, texts are one-hot encoded (more than 100
    different ones are refused), numbers are standardised. An empty field, "NA" and the like, "?" and an infinite
    number are missing values. A few texts in a column of numbers are refused, with the options to resolve it.
    """

    name: ClassVar[str] = "table"

    file: str = ""
    """The table: .csv (also compressed; separated by comma, semicolon, tab, bar or spaces), .parquet, or a folder of
    .parquet files."""
    label: str = ""
    """The column to predict."""
    sensitive: tuple[str, ...] = ()
    """Columns with the sensitive attributes; a notion of fairness counts for each of them."""
    positive: str = ""
    """The value of the label that counts as 1; empty: the one with the usual positive meaning (1 of 0 and 1, yes of no
    and yes, good of bad and good), else the last of the two in ascending order.
    """
    privileged: tuple[str, ...] = ()
    """Rows that are group 1 of a sensitive column, the others being group 0: race=White or age>=25 (if there is one
    sensitive column, White or >=25 will do)."""
    categorical: tuple[str, ...] = ()
    """Columns of codes: their numbers are categories, one input for each."""
    numeric: tuple[str, ...] = ()
    """Columns of numbers: any text in them is a missing value."""
    missing: tuple[str, ...] = ()
    """Texts that mean a missing value beside the usual ones, such as unknown or -999."""
    encoding: str = ""
    """Encoding of a text file: utf-8, latin-1, cp1252, …; empty: recognised."""
    decimal: str = ""
    """The decimal mark of a text file, . or , ; empty: recognised."""
    sql: str = ""
    """Instead of a file, the URL of a database for SQLAlchemy, or env:NAME, the environment variable that holds it; a
    URL with a password in it is refused, since it is written to the spec.
    """
    query: str = ""
    """The database query, such as SELECT * FROM people."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._reading, self._source

    @property
    def _source(self) -> Source:
        return Source(self.file, self.sql, self.query)

    @property
    def _reading(self) -> Reading:
        columns = {name: tuple(self._listed(getattr(self, name))) for name in ("categorical", "numeric")}
        return Reading(self.encoding, self.decimal, tuple(listed(self.missing)), **columns)

    def read(self) -> reading.Table:
        self._need_source()
        return self._source.read(self._reading)

    def initial(self, seed: int) -> Tensor:
        self._need_source()
        return super().initial(seed)

    def _need_source(self) -> None:
        if not self._source:
            raise UserError("the problem 'table' needs file, the table to read, such as file=people.csv")

    def input_schema(self, clients: int, seed: int) -> InputSchema:
        marks = Marks(self._reading.missing, self.read().decimal)
        return replace(super().input_schema(clients, seed), marks=marks)

    def _listed(self, columns: tuple[str, ...]) -> list[str]:
        """Names of columns one by one; a name with a comma in it is one name if the table has such a column."""
        known: Collection[str] = ()
        if self._source and any("," in name for name in columns):
            with suppress(UserError):  # A file that cannot be read is reported later.
                known = self._source.read(Reading(self.encoding, self.decimal)).frame.columns
        plain = [" ".join(name.split()) for name in columns]
        if any(name in known for name in plain):
            return [part for name in plain for part in ([name] if name in known else listed((name,)))]
        return [" ".join(name.split()) for name in listed(columns)]

    def _read(self) -> tables.LabelledTable:
        table = self.read()
        for name, given, meaning, example in (
            ("label", self.label, "the column to predict", "income"),
            ("sensitive", all(self.attributes), "the sensitive columns", "gender,race"),
        ):
            if not given:
                raise UserError(f"the problem 'table' needs {name}, {meaning}, such as {name}={example}")
        label = table.require(self.label)
        for attribute in self.attributes:
            if table.require(attribute) == label:
                raise UserError(f"'{attribute}' is the label; it cannot be sensitive too")
        dropped = {table.require(name) for name in self.dropped}
        for column in table.frame.columns:
            if column not in dropped or column in (label, *self.attributes):
                table.ask_about(str(column))
        return tables.labelled(table.frame, label, self.positive, table.source)

    # -- for a report without all parameters of a run -----------------------------------------------------------------

    def labelled(self) -> tables.LabelledTable:
        """The rows that have a label, whether groups are known or not."""
        if all(self.attributes):
            return self._table
        table = self.read()
        label = table.require(self.label)
        table.ask_about(label)
        return tables.labelled(table.frame, label, self.positive, table.source)

    def inputs_known(self) -> int:
        """Number of the model's inputs; 0 if it is not known."""
        return self._inputs() if all(self.attributes) else 0

    def sensitive_columns(self) -> dict[str, str]:
        """Rule for the privileged group by sensitive column; empty where there is none."""
        return dict.fromkeys(self.attributes, "") | self._rules

    def _groups(self, attribute: str) -> tables.Groups:
        return tables.groups(self._table, attribute, self._rules.get(attribute, ""))

    @property
    def _rules(self) -> dict[str, str]:
        rules = {}
        for rule in listed(self.privileged):
            column, operator, value = tables.split_rule(rule)
            if not column and len(self.attributes) > 1:
                raise UserError(f"privileged is '{rule}'; say of which column, such as {self.attributes[0]}={value}")
            column = column or self.attributes[0]
            if column not in self.attributes:
                raise UnknownName("sensitive column in privileged", column, self.attributes)
            rules[column] = f"{column}{operator}{value}"
        return rules

    def _inputs(self) -> int:
        # Without a file, as in a list of all problems, what does not depend on it.
        return super()._inputs() if self._source else 0
