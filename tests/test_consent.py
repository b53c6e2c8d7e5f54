"""No file leads to a database or an import that the user has not named."""

from __future__ import annotations

import os
import sqlite3
import warnings

import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.contract import consent
from fedpareto.problems.fairness import sources
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.problems.morl.gym_environment import GymEnvironment
from fedpareto.spec.draft import Draft
from fedpareto_page import form_worker
from fedpareto_ray import backend, cluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from typer.testing import CliRunner

    from fedpareto.cli import app

QUERY, OTHER = "SELECT * FROM people", "SELECT age, hired, gender FROM people"
TABLE = {"label": "hired", "sensitive": ("gender",)}


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    monkeypatch.setenv(consent.VARIABLE, "")


@pytest.fixture
def people(tmp_path):
    with sqlite3.connect(tmp_path / "people.db") as connection:
        connection.execute("CREATE TABLE people (age, gender, hired)")
        rows = [(20 + n % 40, "fm"[n % 2], "ny"[n // 2 % 2]) for n in range(200)]
        connection.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    return f"sqlite:///{tmp_path / 'people.db'}"


def test_a_query_of_a_file_runs_only_if_the_user_names_it(people, tmp_path):
    spec = {"problem": {"name": "table", "sql": people, "query": QUERY, "label": "hired", "sensitive": ["gender"]}}
    problem = Draft(spec).finish().problem
    with pytest.raises(UserError, match=r"comes from a file.*add --allow-sql"):
        problem.data(2, 0)
    consent.name(people)
    with pytest.raises(UserError, match="add --allow-sql"):
        problem.data(2, 0)
    fedpareto.allow(sql=True)
    assert problem.data(2, 0)


def test_a_query_on_the_command_line_or_in_python_is_named(people):
    consent.name_words(["run", "--sql", people, f"--query={QUERY}", "--set", "lr=1"])
    assert OwnTable(sql=people, query=QUERY, **TABLE).data(2, 0)
    with pytest.raises(UserError, match="add --allow-sql"):
        OwnTable(sql=people, query=OTHER, **TABLE).data(2, 0)
    consent.name_words(["run", "--set", f"problem.sql={people}", "--set", f"query={OTHER}"])
    assert OwnTable(sql=people, query=OTHER, **TABLE).data(2, 0)


def test_a_problem_that_is_given_in_python_is_named(people):
    assert fedpareto.run(OwnTable(sql=people, query=QUERY, **TABLE), "fedavg", clients=2, rounds=1)


def test_a_stranger_s_run_is_resumed_or_run_without_its_query(people, tmp_path, monkeypatch):
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"algorithm: fedavg\nclients: 2\nrounds: 1\n"
        f"problem: {{name: table, sql: '{people}', query: {QUERY}, label: hired, sensitive: [gender]}}\n"
    )
    command = ["run", "--spec", str(spec), "--out", str(tmp_path / "run"), "--quiet"]
    refused = CliRunner().invoke(app, command)
    assert "add --allow-sql" in str(refused.exception)
    assert CliRunner().invoke(app, [*command, "--allow-sql"]).exit_code == 0


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE [x](a)",
        "VACUUM INTO 'x.db'",
        "SELECT 1; DROP TABLE people",
        "WITH a AS (SELECT 1) INSERT INTO people SELECT 1, 2, 3",
        "SELECT * INTO OUTFILE '/tmp/x' FROM people",
        r"SELECT '\', ' INTO OUTFILE \"/tmp/x\" -- '",
        "SELECT 1 # '\n INTO OUTFILE \"/tmp/x\" # '",
        "SELECT 1 /*! INTO OUTFILE '/tmp/x' */",
        "SELECT 1 AS [it's] INTO [x'] FROM people",
        "ATTACH 'x.db' AS x",
        "PRAGMA journal_mode = DELETE",
        "",
    ],
)
def test_a_query_that_could_write_is_refused_in_one_line(people, query, tmp_path):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"a query (is one|only reads)") as refused:
        list(sources.rows(people, query))
    assert "\n" not in str(refused.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM people WHERE hired <> 'update; into'",
        "WITH young AS (SELECT * FROM people WHERE age < 30) SELECT * FROM young;",
        '  select age AS "insert" from people',
        "SELECT replace(gender, 'f', 'x') FROM people",
    ],
)
def test_a_query_that_reads_runs(people, query):
    assert sum(len(piece) for piece in sources.rows(people, query)) > 0


def test_sqlite_itself_would_write_nothing(people, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "must_read_only", lambda query: None)
    for query in ("CREATE TABLE other (a)", f"VACUUM INTO '{tmp_path}/copy.db'", f"ATTACH '{tmp_path}/new.db' AS new"):
        with pytest.raises(UserError, match="the database cannot be read"):
            list(sources.rows(people, query))
    assert [path.name for path in tmp_path.iterdir()] == ["people.db"]
    with pytest.raises(UserError, match="there is no file"):
        list(sources.rows(f"sqlite:///{tmp_path}/absent.db", QUERY))
    assert not (tmp_path / "absent.db").exists()


def test_a_module_that_only_a_file_names_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(UserError, match="add --allow-import evil"):
        GymEnvironment.of("evil:Env-v0")
    assert not (tmp_path / "ran").exists()


def test_a_cluster_that_only_a_file_names_is_not_asked(tmp_path, monkeypatch):
    spec = Draft(
        {"algorithm": "fedavg", "problem": "convex", "engine": {"name": "ray", "address": "10.0.0.1:6379"}}
    ).finish()

    def open_it():
        with backend.Ray().opened(spec, None, None):
            raise AssertionError

    monkeypatch.setattr(cluster, "connected", refuse)
    with pytest.raises(UserError, match=r"comes from a file.*--allow-address 10\.0\.0\.1:6379"):
        open_it()
    fedpareto.allow(addresses=["10.0.0.1:6379"])
    with pytest.raises(ConnectionRefusedError):
        open_it()


def refuse(*_):
    raise ConnectionRefusedError


def test_a_strict_process_reads_no_table_that_only_a_run_folder_names(tmp_path, monkeypatch):
    table = tmp_path / "people.csv"
    table.write_text("age,gender,hired\n" + "20,f,y\n30,m,n\n" * 20)
    monkeypatch.setenv(consent.VARIABLE, consent.strict()[consent.VARIABLE])
    with pytest.raises(UserError, match="start it with --allow-files"):
        OwnTable(file=str(table), **TABLE).read()
    consent.name(str(table))
    assert len(OwnTable(file=str(table), **TABLE).read().frame) == 40


@pytest.mark.parametrize("file", ["/etc/passwd", "/nowhere/people.csv"])
def test_what_a_page_that_only_watches_answers_says_nothing_of_files(file, monkeypatch):
    monkeypatch.setenv(consent.VARIABLE, consent.strict()[consent.VARIABLE])
    values = {"problem": "table", "problem.file": file, "problem.label": "a", "problem.sensitive": "b, c"}
    found = form_worker.answer("outline", values)
    assert found["error"] is None
    assert f"--set problem.file={file}" in " ".join(found["words"]).replace("'", "")


def test_what_was_named_is_bounded_and_reaches_processes():
    consent.name(*map(str, range(2 * consent.MOST)))
    assert len(os.environ[consent.VARIABLE]) < 2**16
