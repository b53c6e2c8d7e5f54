"""Thirty tables as people have them: each works, or says in one line what to do.

Every one goes through `fedpareto data report` and is given to a run. What works trains a round; what does not is
refused with a line that names the column or the file and what to say.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import warnings
from dataclasses import dataclass, field

import numpy as np
import pandas
import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import build
from fedpareto.contract import consent
from fedpareto.problems.fairness.benchmarks import OwnTable

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from typer.testing import CliRunner

    from fedpareto.cli.data import app

ROWS = 160


def people(rows=ROWS):
    stream = np.random.default_rng(0)
    gender = stream.choice(["f", "m"], rows)
    age, score = stream.integers(18, 66, rows), stream.normal(0, 1, rows).round(3)
    hired = np.where(score + (gender == "m") + stream.normal(0, 0.5, rows) > 0.4, "yes", "no")
    job = stream.choice(["cook", "clerk", "driver"], rows)
    return pandas.DataFrame({"age": age, "score": score, "job": job, "gender": gender, "hired": hired})


def text(frame=None, **options):
    return (people() if frame is None else frame).to_csv(index=False, **options)


def with_column(name, values):
    return people().assign(**{name: values})


def lines(content):
    return content.splitlines(keepends=True)


@dataclass(frozen=True)
class Messy:
    """A table, and what becomes of it."""

    content: bytes | str
    name: str = "people.csv"
    label: str = "hired"
    sensitive: tuple[str, ...] = ("gender",)
    settings: dict = field(default_factory=dict)
    says: str = ""
    """What the report says."""
    refused: str = ""
    """What a run is refused with; empty if it works."""


def german_credit():
    stream = np.random.default_rng(1)
    columns = {
        "status": stream.choice(["A11", "A12", "A13", "A14"], ROWS),
        "months": stream.integers(4, 72, ROWS),
        "amount": stream.integers(250, 18_000, ROWS),
        "sex": stream.choice(["male", "female"], ROWS),
        "class": stream.choice([1, 2], ROWS, p=[0.7, 0.3]),
    }
    return pandas.DataFrame(columns)


def one_word(word="unknown"):
    ages = people()["age"].astype(str)
    ages[3] = word
    return people().assign(age=ages)


def decimal_commas():
    return people().assign(score=people()["score"].map(lambda score: f"{score:.2f}".replace(".", ",")))


def thousands():
    wages = [f"{wage:,}" for wage in np.random.default_rng(2).integers(900, 90_000, ROWS)]
    return with_column("wage", wages)


MESSY = {
    "German Credit's labels 1 and 2": Messy(
        text(german_credit(), sep=" "),
        "german.data",
        "class",
        ("sex",),
        says="2 counts as positive because it comes last in ascending order, and neither value has a usual meaning; "
        "the other way: --set positive=1",
    ),
    "German Credit without a header": Messy(
        text(german_credit(), sep=" ", header=False),
        "german.data",
        "class",
        ("sex",),
        says="the first line looks like a row, not like names",
        refused="its first line looks like a row: add a line with the columns' names above it",
    ),
    "one word in a column of numbers": Messy(
        text(one_word()),
        says="has 1 row with the text 'unknown' among 159 numbers; say --set missing=unknown, or --set categorical=age",
        refused="has 1 row with the text 'unknown' among 159 numbers; say --set missing=unknown, or --set categorical",
    ),
    "one word that is said to be missing": Messy(text(one_word()), settings={"missing": "unknown"}, says="1 missing"),
    "several words in a column that is said to be numeric": Messy(
        text(one_word("n.b.")), settings={"numeric": "age"}, says="1 missing"
    ),
    "codes that are numbers": Messy(
        text(with_column("branch", np.arange(ROWS) % 7)), settings={"categorical": "branch"}, says="7 values"
    ),
    "decimal commas and semicolons": Messy(
        text(decimal_commas(), sep=";"), says="numbers have a decimal comma (otherwise: decimal=.)"
    ),
    "decimal commas in quotes between commas": Messy(text(decimal_commas()), says="numbers have a decimal comma"),
    "thousands separated by commas": Messy(text(thousands()), says="wage    number"),
    "Latin-1": Messy(
        text(with_column("town", ["Zürich", "Genève"] * (ROWS // 2))).encode("latin-1"), says="it is read as Latin-1"
    ),
    "Windows-1252": Messy(
        text(with_column("debt", ["€ 5", "“none”"] * (ROWS // 2))).encode("cp1252"), says="it is read as Windows-1252"
    ),
    "UTF-16 as spreadsheets write it": Messy(text(sep="\t").encode("utf-16"), says="it is read as UTF-16"),
    "a byte order mark": Messy(text().encode("utf-8-sig"), says="gender  text"),
    "compressed, without saying so": Messy(gzip.compress(text().encode()), says="160 rows"),
    "a header with spaces, commas and blanks at the end": Messy(
        text(people().rename(columns={"gender": "gender, at birth ", "hired": " was  hired "})),
        label="was hired",
        sensitive=("gender, at birth",),
        says="gender, at birth: f",
    ),
    "the same header twice": Messy(
        text(pandas.concat([people(), people()[["age"]]], axis=1)), says="'age' is in the header more than once"
    ),
    "empty columns at the end": Messy("".join(line.rstrip("\n") + ",,\n" for line in lines(text())), says="empty"),
    "a separator at the end of every row": Messy(
        "".join(line if number == 0 else line.rstrip("\n") + ",\n" for number, line in enumerate(lines(text()))),
        says="column 6",
    ),
    "row names without a header, as R writes them": Messy(
        "".join(line if number == 0 else f"{number},{line}" for number, line in enumerate(lines(text()))),
        says="the first one is called 'row name'",
    ),
    "a title above the header": Messy(
        "Export of 3 May\n\n" + text(), says="the first 1 lines are not part of the table and left out"
    ),
    "line breaks within quotes": Messy(
        text(with_column("note", ["first\nsecond", "one, only"] * (ROWS // 2))), says="160 rows"
    ),
    "a quote that is never closed": Messy(
        text().replace("cook", '"cook', 1), refused="a quote in line ", says="is never closed"
    ),
    "a row with too many fields": Messy(
        text() + "1,2,3,4,5,6\n",
        refused="line 162 has 6 fields, the header 5; a field with a comma in it needs quotes",
        says="line 162 has 6 fields",
    ),
    "a column of names": Messy(
        text(with_column("name", [f"person {number}" for number in range(ROWS)])),
        says="'name' identifies rows; leave it out: --set drop=name",
        refused="has 160 different texts; leave it out: --set drop=name",
    ),
    "a column of dates": Messy(
        text(with_column("day", pandas.date_range("2024-01-01", periods=ROWS).strftime("%d.%m.%Y"))),
        says="day     date",
        refused="the column 'day' of people.csv holds dates; leave it out: --set drop=day",
    ),
    "true, false and nothing": Messy(
        text(with_column("member", pandas.array([True, False, None, True] * (ROWS // 4), dtype="boolean"))),
        says="true or false",
    ),
    "nothing at all in a column": Messy(text(with_column("empty", "")), says="'empty' is empty; it is left out"),
    "a column that tells the label": Messy(
        text(with_column("contract", np.where(people()["hired"] == "yes", "signed", "none"))),
        says="'contract' alone predicts the label; if it is not known in advance: --set drop=contract",
    ),
    "a label in two spellings": Messy(
        text(people().assign(hired=np.where(people()["hired"] == "yes", ["yes", "YES"] * (ROWS // 2), "no"))),
        settings={"positive": "yes"},
        says="'YES' and 'yes', which would be two answers; write them alike in the table",
        refused="the label 'hired' of people.csv has 'YES' and 'yes'",
    ),
    "a group in two spellings": Messy(
        text(people().assign(gender=["f", "m", "F", "m"] * (ROWS // 4))),
        settings={"unmeasured": "worst"},
        says="the groups F and f of 'gender' may be one; write them alike in the table",
    ),
    "a key that comes again": Messy(
        text(with_column("id_student", np.r_[np.arange(ROWS - 10) * 7919 % 99991, np.arange(10) * 7919 % 99991])),
        says="'id_student' identifies rows; leave it out: --set drop=id_student",
    ),
    "whole numbers that may be codes": Messy(
        text(with_column("status", np.array([1110, 1121, 1131, 2000] * (ROWS // 4)))),
        says="'status' has few whole numbers, read as amounts; if they are codes: --set categorical=status, else "
        "--set numeric=status",
    ),
    "rows without a sensitive value": Messy(
        text(people().assign(gender=[None] * 8 + people()["gender"].tolist()[8:])),
        settings={"unmeasured": "worst"},
        says="8 rows have no value in the sensitive column 'gender': accuracy counts them, no fairness goal does",
    ),
    "the header again, between rows": Messy(
        text() + lines(text())[0],
        says="the header of people.csv stands again in 1 row of its column 'age'; take these lines out of it",
        refused="the header of people.csv stands again",
    ),
    "a label with three values": Messy(
        text(people().assign(hired=["yes", "no", "later", "no"] * (ROWS // 4))),
        says="has 3 values (later, no, yes); say which one is label 1, such as --set positive=yes",
        refused="has 3 values (later, no, yes); say which one is label 1, such as --set positive=yes",
    ),
    "a group of six": Messy(
        text(people().assign(gender=["x"] * 6 + people()["gender"].tolist()[6:])),
        settings={"unmeasured": "worst"},
        says="the group x of 'gender' has 6 rows, so a gap to it is noise",
    ),
    "a number as the sensitive column": Messy(
        text(),
        sensitive=("age",),
        says="say who is privileged, such as privileged=age>=",
        refused="say who is privileged, such as privileged=age>=",
    ),
    "a spreadsheet": Messy(
        b"PK\x03\x04 and more", refused="it is a spreadsheet or a zip archive; save the table as CSV", says="save"
    ),
    "JSON": Messy(
        people().to_json(orient="records"), refused="it is JSON; save the table as CSV or Parquet", says="JSON"
    ),
    "blanks around values": Messy(
        text(people().assign(gender=lambda frame: " " + frame["gender"] + "  ")), says="gender: f "
    ),
    "old line ends": Messy(text(lineterminator="\r"), says="160 rows"),
}


@pytest.fixture
def written(tmp_path):
    def write(messy):
        content = messy.content if isinstance(messy.content, bytes) else messy.content.encode()
        (tmp_path / messy.name).write_bytes(content)
        return tmp_path / messy.name

    return write


def reported(path, messy):
    """What `fedpareto data report` prints, or the one line with which it refuses."""
    options = [f"--set={key}={value}" for key, value in messy.settings.items()]
    options += ["--label", messy.label, *(f"--sensitive={name}" for name in messy.sensitive), "--clients", "2"]
    result = CliRunner().invoke(app, ["report", str(path), *options])
    if isinstance(result.exception, UserError):
        assert "\n" not in str(result.exception)
        return str(result.exception)
    assert result.exit_code == 0, result.exception
    assert all(len(line) <= 100 for line in result.output.splitlines()), result.output
    return result.output


def plain(text):
    return " ".join(text.split())


def test_there_are_thirty_of_them():
    assert len(MESSY) >= 30


@pytest.mark.parametrize("case", MESSY)
def test_a_messy_table_works_or_says_in_a_line_what_to_do(case, written):
    messy = MESSY[case]
    path = written(messy)
    assert plain(messy.says) in plain(reported(path, messy))
    values = {"file": str(path), "label": messy.label, "sensitive": messy.sensitive, **messy.settings}
    problem = build(OwnTable, values, "problem table")
    if messy.refused:
        with pytest.raises(UserError) as refused:
            problem.data(2, 0)
        assert messy.refused in str(refused.value)
        assert "\n" not in str(refused.value)
    else:
        assert problem.data(2, 0)["train"].counts.sum() > 80
        problem.losses(problem.layout.unflatten(problem.initial(0).unsqueeze(0)), _batch(problem))


def _batch(problem):
    from fedpareto.tensors.rows import Batch

    columns = {name: column.unsqueeze(0) for name, column in problem.data(2, 0)["train"].of_client(0).items()}
    return Batch(columns, columns["label"] * 0 + 1)


def test_a_run_on_a_table_tells_what_it_is_like_unless_it_is_quiet(tmp_path, monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from fedpareto.cli import app as whole

    (tmp_path / "people.csv").write_text(text())
    monkeypatch.chdir(tmp_path)
    command = [
        "run",
        "fedavg",
        "--csv",
        "people.csv",
        "--label",
        "hired",
        "--sensitive",
        "gender",
        "--clients",
        "2",
        "--rounds",
        "1",
    ]
    loud, quiet = (CliRunner().invoke(whole, [*command, *more]) for more in ((), ("-q",)))
    assert loud.exit_code == quiet.exit_code == 0
    assert "yes counts as positive because of the usual meaning of no and yes" in plain(loud.stderr)
    assert "always 'no' scores accuracy" in plain(loud.stderr) or "always 'yes' scores accuracy" in plain(loud.stderr)
    assert "there are only 32 test rows in all: results are mostly noise" in plain(loud.stderr)
    assert "positive" not in quiet.stderr + quiet.stdout


def test_the_figures_of_a_report_are_those_of_the_table(tmp_path):
    (tmp_path / "people.csv").write_text(text())
    options = ["--label", "hired", "--sensitive", "gender", "--clients", "2", "--json"]
    found = json.loads(CliRunner().invoke(app, ["report", str(tmp_path / "people.csv"), *options]).stdout)
    frame = people()
    assert found["rows"] == ROWS
    assert found["label"]["rate"] == pytest.approx((frame["hired"] == "yes").mean())
    rates = {group["group"]: (group["rows"], group["rate"]) for group in found["groups"]}
    for group, mine in frame.groupby("gender"):
        assert rates[group] == (len(mine), pytest.approx((mine["hired"] == "yes").mean()))
    # A constant answer is right as often as its label is there, and treats everybody alike.
    assert found["constant"]["values"]["demographic-parity:gender"] == 1
    assert found["constant"]["values"]["accuracy"] == pytest.approx(max(found["label"]["rate"], 0.5), abs=0.1)
    # On the test rows of all clients everybody has the same point.
    assert found["constant"]["hypervolume"] == pytest.approx(found["constant"]["values"]["accuracy"])
    problem = OwnTable(file=str(tmp_path / "people.csv"), label="hired", sensitive=("gender",))
    assert found["test_rows"] == problem.data(2, 0)["own-test"].counts.tolist()


def test_without_a_label_the_report_suggests_one(tmp_path):
    (tmp_path / "people.csv").write_text(text())
    printed = plain(CliRunner().invoke(app, ["report", str(tmp_path / "people.csv")]).output)
    assert "the label may be 'hired'" in printed
    assert "sensitive may be 'gender': --sensitive gender" in printed
    assert "--sensitive age --set privileged='age>=" in printed


def test_a_model_that_reads_who_holds_a_row_is_warned_of(tmp_path):
    (tmp_path / "people.csv").write_text(text())
    options = ["--label", "hired", "--sensitive", "gender", "--set", "partition=column:job"]
    command = ["report", str(tmp_path / "people.csv"), *options]
    warning = "'job' says who holds a row, and the model reads it; if it is not to decide: --set drop=job"
    assert warning in plain(CliRunner().invoke(app, command).output)
    assert "who holds a row" not in plain(CliRunner().invoke(app, [*command, "--set", "drop=job"]).output)


def test_a_database_and_a_folder_of_parquet_files_are_the_same_table(tmp_path):
    frame = people()
    (tmp_path / "people.csv").write_text(text())
    with sqlite3.connect(tmp_path / "people.db") as connection:
        frame.to_sql("people", connection, index=False)
    frame.to_parquet(tmp_path / "people", partition_cols=["job"])
    (tmp_path / "people" / "README.md").write_text("what the columns mean")
    (tmp_path / "people" / ".venv").mkdir()
    (tmp_path / "people" / ".venv" / "other.parquet").write_bytes(b"not ours")
    common = {"label": "hired", "sensitive": ("gender",)}
    expected = OwnTable(file=str(tmp_path / "people.csv"), **common).data(2, 0)
    consent.name(f"sqlite:///{tmp_path}/people.db", "SELECT * FROM people")
    by_query = OwnTable(sql=f"sqlite:///{tmp_path}/people.db", query="SELECT * FROM people", **common).data(2, 0)
    for part, rows in expected.items():
        for name, column in rows.columns.items():
            assert (column == by_query[part].columns[name]).all(), (part, name)
    # Partitions change the order of the rows, so what is compared does not depend on it.
    of_folder = OwnTable(file=str(tmp_path / "people"), **common)
    assert of_folder.outputs()[0].classes == ("no", "yes")
    assert sorted(of_folder.read().frame["job"].astype(str)) == sorted(frame["job"])


def test_a_password_never_reaches_a_run_folder(tmp_path, monkeypatch):
    common = {"label": "hired", "sensitive": ("gender",), "query": "SELECT * FROM people"}
    for url in ("postgresql://me:secret@host/people", "mssql://host/people?user=me&password=secret"):
        with pytest.raises(UserError, match="holds a password") as refused:
            OwnTable(sql=url, **common)
        assert "secret" not in str(refused.value)
    with sqlite3.connect(tmp_path / "people.db") as connection:
        people().to_sql("people", connection, index=False)
    monkeypatch.setenv("PEOPLE_URL", f"sqlite:///{tmp_path}/people.db?timeout=77")
    problem = OwnTable(sql="env:PEOPLE_URL", **common)
    fedpareto.run(problem, "fedavg", clients=2, rounds=1, out=tmp_path / "run")
    written = "".join(path.read_text(errors="replace") for path in (tmp_path / "run").iterdir() if path.is_file())
    assert "env:PEOPLE_URL" in written
    assert "timeout=77" not in written
    consent.name("env:NOWHERE")
    with pytest.raises(UserError, match="the environment variable NOWHERE is not set"):
        OwnTable(sql="env:NOWHERE", **common).read()
