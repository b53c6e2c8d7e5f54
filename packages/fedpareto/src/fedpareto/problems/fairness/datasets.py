"""The published data sets of the fairness problems: files, columns, label, sensitive attributes and counts.

Nothing heavy is imported here, so that `fedpareto data list` is fast. The docstring of each problem (benchmarks.py)
says how its set is prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpareto.problems.data import GITHUB, DataFile, DataSet, kept_until_changed
from fedpareto.problems.fairness import tables

if TYPE_CHECKING:
    from pandas import DataFrame

UCI = "https://archive.ics.uci.edu"
SURVEY = f"{GITHUB}/tailequy/fairness_dataset/abb5a18b822ba56a221c5311082e192e85000b95/experiments/data"
"""The files of the survey of fairness data sets by Le Quy et al. (2022)."""


@dataclass(frozen=True)
class TableSet(DataSet):
    """A published table with a label and sensitive attributes."""

    read: Callable[[list[bytes]], DataFrame]
    """Reads the rows and columns that are used from the contents of the files."""
    label: str
    positive: str
    attributes: Mapping[str, str]
    """Each sensitive attribute by the rule for the privileged group (group 1), such as "sex=Male"."""
    inputs: int
    """Inputs of a model that sees all columns but those that the problem drops by default."""

    @kept_until_changed
    def table(self) -> tables.LabelledTable:
        """The rows that have a label."""
        return tables.labelled(self.read(self.contents()), self.label, self.positive, f"the data set {self.name}")

    def groups(self, attribute: str) -> tables.Groups:
        rule = self.attributes[attribute]
        return tables.groups(self.table(), tables.split_rule(rule)[0], rule)

    def census(self) -> dict[str, int]:
        table = self.table()
        counts = {"rows": len(table.label), f"{self.label}={self.positive}": int(table.label.sum())}
        for attribute in self.attributes:
            groups = self.groups(attribute)
            for code, name in enumerate(groups.names):
                counts[f"{attribute}: {name}"] = int((groups.codes == code).sum())
        return counts


# -- Adult ---------------------------------------------------------------------------------------------------------

_ADULT_COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
]


def _read_adult(contents: list[bytes]) -> DataFrame:
    import pandas

    training, test = (
        tables.parse_csv(content, names=_ADULT_COLUMNS, skiprows=skipped)
        for content, skipped in zip(contents, (0, 1), strict=True)
    )
    test["income"] = test["income"].str.removesuffix(".")
    return pandas.concat([training, test], ignore_index=True)


ADULT = TableSet(
    name="adult",
    about="UCI Adult: income above $50,000, US census of 1994 (Becker & Kohavi 1996, doi 10.24432/C5XW20)",
    terms="CC BY 4.0",
    folder="adult",
    files=(
        DataFile.at(
            3_974_305,
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            f"{UCI}/ml/machine-learning-databases/adult/adult.data",
            f"{UCI}/static/public/2/adult.zip#adult.data",
        ),
        DataFile.at(
            2_003_153,
            "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            f"{UCI}/ml/machine-learning-databases/adult/adult.test",
            f"{UCI}/static/public/2/adult.zip#adult.test",
        ),
    ),
    published={
        "rows": 48_842,
        "income=>50K": 11_687,
        "gender: sex≠Male": 16_192,
        "gender: sex=Male": 32_650,
        "race: race≠White": 7_080,
        "race: race=White": 41_762,
    },
    read=_read_adult,
    label="income",
    positive=">50K",
    attributes={"gender": "sex=Male", "race": "race=White"},
    inputs=107,
)


# -- Law School ----------------------------------------------------------------------------------------------------

_LAW_COLUMNS = ["decile1b", "decile3", "lsat", "ugpa", "zfygpa", "zgpa", "fulltime", "fam_inc", "male", "tier"]


_LAW_TERMS = "no licence given; LSAC study, freely used in research"

LAW_SCHOOL = TableSet(
    name="law-school",
    about="Law School, 22,407 rows: passing the bar ever, LSAC bar passage study (Wightman 1998), the Kaggle file",
    terms=_LAW_TERMS,
    folder="law_school",
    files=(
        DataFile.at(
            3_512_800,
            "76ebfdb0427ce8db038d53fa5943180ac77096bffb8264f000ed21e9f0ec82f2",
            f"{GITHUB}/TheRohanVerma/CMPUT622_FairSMOTE_vs_FairClassBal/a895803f7e2a09010dc2185653081b790a164096/data/bar_pass_prediction.csv",
        ),
    ),
    published={
        "rows": 22_407,
        "pass_bar=1": 21_238,
        "gender: male≠1": 9_826,
        "gender: male=1": 12_576,
        "race: race1≠white": 3_675,
        "race: race1=white": 18_716,
    },
    read=lambda contents: tables.parse_csv(contents[0])[[*_LAW_COLUMNS, "race1", "pass_bar"]],
    label="pass_bar",
    positive="1",
    attributes={"gender": "male=1", "race": "race1=white"},
    inputs=24,
)

LAW_SCHOOL_20798 = TableSet(
    name="law-school-20798",
    about="Law School, 20,798 rows: passing the bar at the first try, the same study cleaned by Le Quy et al. (2022)",
    terms=_LAW_TERMS,
    folder="law_school",
    files=(
        DataFile.at(
            1_135_557,
            "23c1b173f3480beb7afc4957b107a9917dfc4a8dc9d87ea6034ec35222152452",
            f"{SURVEY}/law_school_clean.csv",
        ),
    ),
    published={
        "rows": 20_798,
        "pass_bar=1": 18_505,
        "gender: male≠1": 9_123,
        "gender: male=1": 11_675,
        "race: race≠White": 3_307,
        "race: race=White": 17_491,
    },
    read=lambda contents: tables.parse_csv(contents[0])[[*_LAW_COLUMNS, "race", "pass_bar"]],
    label="pass_bar",
    positive="1",
    attributes={"gender": "male=1", "race": "race=White"},
    inputs=12,
)


# -- Credit Default ------------------------------------------------------------------------------------------------


CREDIT_DEFAULT = TableSet(
    name="credit-default",
    about="UCI Default of Credit Card Clients, Taiwan 2005 (Yeh & Lien 2009, UCI 350), as CSV",
    terms="CC BY 4.0",
    folder="default_credit",
    files=(
        DataFile.at(
            2_728_301,
            "7cfc3bb35b6986be40cccb5d490806f082b46f93afafdce27fd7f409eb5abb02",
            f"{SURVEY}/credit-card-clients.csv",
        ),
    ),
    published={
        "rows": 30_000,
        "default payment=1": 6_636,
        "gender: SEX≠1": 18_112,
        "gender: SEX=1": 11_888,
        "age: AGE<25": 2_685,
        "age: AGE>=25": 27_315,
    },
    read=lambda contents: tables.parse_csv(contents[0], dtype=dict.fromkeys(("SEX", "EDUCATION", "MARRIAGE"), str)),
    label="default payment",
    positive="1",
    attributes={"gender": "SEX=1", "age": "AGE>=25"},
    inputs=33,
)


# -- COMPAS --------------------------------------------------------------------------------------------------------

_COMPAS_COLUMNS = [
    *("sex", "race", "age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
    *("c_charge_degree", "two_year_recid"),
]
_COMPAS_FILTER = ["days_b_screening_arrest", "is_recid", "score_text"]


def _read_compas(contents: list[bytes]) -> DataFrame:
    # Names and dates of birth are not read.
    frame = tables.parse_csv(contents[0], usecols=[*_COMPAS_COLUMNS, *_COMPAS_FILTER])
    near = frame["days_b_screening_arrest"].abs() <= 30
    is_ordinary = frame["c_charge_degree"] != "O"
    return frame[near & (frame["is_recid"] != -1) & is_ordinary & frame["score_text"].notna()][_COMPAS_COLUMNS]


COMPAS = TableSet(
    name="compas",
    about="COMPAS: arrested again within two years, Broward County (ProPublica 2016)",
    terms="no licence given; public records published by ProPublica",
    folder="compas",
    files=(
        DataFile.at(
            2_546_489,
            "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            f"{GITHUB}/propublica/compas-analysis/bafff5da3f2e45eca6c2d5055faad269defd135a/compas-scores-two-years.csv",
        ),
    ),
    published={
        "rows": 6_172,
        "two_year_recid=1": 2_809,
        "race: race≠Caucasian": 4_069,
        "race: race=Caucasian": 2_103,
        "gender: sex≠Male": 1_175,
        "gender: sex=Male": 4_997,
    },
    read=_read_compas,
    label="two_year_recid",
    positive="1",
    attributes={"race": "race=Caucasian", "gender": "sex=Male"},
    inputs=15,
)


# -- Bank Marketing ------------------------------------------------------------------------------------------------


BANK = TableSet(
    name="bank",
    about="UCI Bank Marketing, bank-full: subscribing to a deposit, Portugal 2008–2010 (Moro et al., UCI 222)",
    terms="CC BY 4.0",
    folder="bank",
    files=(
        DataFile.at(
            4_610_348,
            "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
            f"{UCI}/ml/machine-learning-databases/00222/bank.zip#bank-full.csv",
            f"{UCI}/static/public/222/bank+marketing.zip#bank.zip#bank-full.csv",
        ),
    ),
    published={
        "rows": 45_211,
        "y=yes": 5_289,
        "age: age<25": 809,
        "age: age>=25": 44_402,
        "marital: marital≠married": 17_997,
        "marital: marital=married": 27_214,
    },
    read=lambda contents: tables.parse_csv(contents[0], ";"),
    label="y",
    positive="yes",
    attributes={"age": "age>=25", "marital": "marital=married"},
    inputs=50,
)

CATALOGUE: dict[str, TableSet] = {
    dataset.name: dataset for dataset in (ADULT, LAW_SCHOOL, LAW_SCHOOL_20798, CREDIT_DEFAULT, COMPAS, BANK)
}
