"""The commands as an operator types them: mistakes are one line and exit code 2."""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
import warnings
from pathlib import Path

import pandas
import pytest

from fedpareto.config import files

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main


@pytest.fixture
def fedpareto(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["fedpareto", *map(str, words)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        return ended.value.code, printed.out, printed.err

    return call


INIT = ("--label", "hired", "--sensitive", "gender", "--nodes", "3")


def test_init_says_what_to_type_next(fedpareto, tables):
    code, out, _ = fedpareto("server", "init", "federation", "--schema-from", tables / "sample.csv", *INIT)
    assert code == 0
    assert "fedpareto server up federation" in out
    assert "fedpareto node up federation/node-0 --data table.csv --preference 0.7,0.3" in out


def test_a_schema_may_be_used_again(fedpareto, tables, deployment):
    schema = deployment.folder / "schema.json"
    assert fedpareto("server", "init", "second", "--schema", schema, "--nodes", "2")[0] == 0
    code, _, err = fedpareto("server", "init", "third", "--schema", schema, "--nodes", "2", "--label", "hired")
    assert code == 2
    assert "leave the flags that describe it out" in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("server", "init", "d", "--nodes", "3"), "--schema-from"),
        (("server", "init", "d", "--schema-from", "TABLE", "--nodes", "3"), "--label"),
        (("server", "init", "d", "--schema-from", "TABLE", *INIT, "--set", "lrr=1"), "lr"),
        (("server", "init", "d", "--schema-from", "TABLE", *INIT, "--algorithm", "fedprefs"), "fedpref"),
        (("server", "init", "d", "--schema-from", "TABLE", *INIT, "--host", "192.0.2.1", "--insecure"), "loopback"),
        (("server", "up", "nothing"), "fedpareto server init"),
        (("server", "status", "nothing"), "fedpareto server init"),
        (("server", "stop", "nothing"), "fedpareto server init"),
        (("server", "sotp", "nothing"), "stop"),
        (("node", "up", "nothing", "--data", "x.csv", "--preference", "1,0"), "fedpareto server init"),
    ],
)
def test_a_mistake_is_one_line(fedpareto, tables, words, expected):
    code, out, err = fedpareto(*(tables / "sample.csv" if word == "TABLE" else word for word in words))
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert expected in err


def test_a_table_that_does_not_fit_is_refused_before_joining_a_line_for_each_problem(fedpareto, tables, deployment):
    lines = (tables / "a.csv").read_text(encoding="utf-8").splitlines()
    bad = tables / "bad.csv"
    bad.write_text("\n".join([lines[0].replace("age", "years"), *lines[1:]]) + "\n", encoding="utf-8")
    for words in (("check",), ("up", "--preference", "0.5,0.5")):
        code, _, err = fedpareto("node", words[0], deployment.node(0), "--data", bad, *words[1:])
        assert code == 2
        assert err.splitlines()[:2] == [
            "bad.csv: the column 'age' is missing",
            "bad.csv: the column 'years' is not in the federation's schema; leave it out with --ignore 'years'",
        ]
        assert err.splitlines()[2].startswith("Error: ")
        assert len(err.splitlines()) == 3


def test_a_column_can_be_left_out_by_name(fedpareto, tables, deployment):
    lines = (tables / "a.csv").read_text(encoding="utf-8").splitlines()
    more = tables / "more.csv"
    more.write_text("\n".join([lines[0] + ",id", *(f"{line},7" for line in lines[1:])]) + "\n", encoding="utf-8")
    assert fedpareto("node", "check", deployment.node(0), "--data", more)[0] == 2
    assert fedpareto("node", "check", deployment.node(0), "--data", more, "--ignore", "id")[0] == 0


def test_columns_may_be_named_one_by_one_or_with_commas(fedpareto, tables, deployment):
    from fedpareto_flower.deploy.layout import Deployment

    lines = (tables / "a.csv").read_text(encoding="utf-8").splitlines()
    more = tables / "three-more.csv"
    more.write_text("\n".join([lines[0] + ",x,y,z", *(f"{line},7,8,9" for line in lines[1:])]) + "\n", encoding="utf-8")
    for words in (("--ignore", "x,y,z"), ("--ignore", "x", "--ignore", "y,z")):
        assert fedpareto("node", "check", deployment.node(0), "--data", more, *words)[0] == 0
    dropped = ("--drop", "x", "--drop", "y,z", "--sensitive", "town")
    assert fedpareto("server", "init", "many", "--schema-from", more, *INIT, *dropped)[0] == 0
    schema = Deployment.open(Path("many")).spec().problem.table_schema
    assert [attribute.name for attribute in schema.sensitive] == ["gender", "town"]
    assert not {"x", "y", "z"} & {column.name for column in schema.columns}


@pytest.mark.parametrize("has_model", [True, False])
def test_a_node_whose_run_is_finished_says_so_and_stays_finished(fedpareto, tables, deployment, has_model):
    """Also while the server is away, as after a reboot."""
    from fedpareto_flower.deploy.status import NodeStatus

    folder = deployment.node(0)
    NodeStatus.begin(state="finished", round=3, rounds=3).save(folder)
    if has_model:
        (folder / "model.safetensors").write_bytes(b"")
    code, out, _ = fedpareto("node", "up", folder, "--data", tables / "a.csv", "--preference", "0.5,0.5")
    assert (code, out.startswith("the run is finished already; ")) == (0, True)
    assert (f"model: {folder}" in out) == has_model
    assert fedpareto("node", "status", folder)[0] == 0


def test_a_table_in_a_database_is_checked_as_one_in_a_file(fedpareto, tables, deployment, monkeypatch):
    with sqlite3.connect(tables / "a.db") as database:
        pandas.read_csv(tables / "a.csv").to_sql("people", database, index=False)
    monkeypatch.setenv("PARTY_URL", f"sqlite:///{tables}/a.db")
    words = ("node", "check", deployment.node(0), "--sql", "env:PARTY_URL", "--query")
    assert fedpareto(*words, "SELECT * FROM people")[:2] == (0, "the query's table fits the federation's schema\n")
    code, _, err = fedpareto(*words, "SELECT hired, gender FROM people")
    assert code == 2
    assert "the query's table: the column 'age' is missing" in err
    assert "--data FILE, or --sql URL --query TEXT" in fedpareto("node", "check", deployment.node(0))[2]


@pytest.mark.parametrize("given", ["0.71,0.31", "0.71", "0.71,x", "-0.71,1.71", "nan,0.71"])
def test_a_wrong_preference_is_refused_without_repeating_it(fedpareto, tables, deployment, given):
    words = ("up", deployment.node(0), "--data", tables / "a.csv", f"--preference={given}")
    code, _, err = fedpareto("node", *words)
    assert code == 2
    assert "2 weights that add up to 1, for accuracy, demographic-parity:gender" in err
    assert "71" not in err


def test_weights_that_do_not_add_up_to_1_are_refused_with_their_sum(fedpareto, tables, deployment):
    words = ("--data", tables / "a.csv", "--preference", "0.71,0.31")
    assert "(its weights sum to 1.02)" in fedpareto("node", "up", deployment.node(0), *words)[2]


def test_a_node_without_a_model_says_how_far_it_is(fedpareto, tables, deployment):
    from fedpareto_flower.deploy.status import NodeStatus

    words = ("predict", deployment.node(0), "--preference", "0.5,0.5", "--input", tables / "a.csv")
    assert "has no model yet: it has not joined; start it with: fedpareto node up" in fedpareto(*words)[2]
    NodeStatus.begin(state="training", round=2, rounds=3).save(deployment.node(0))
    code, _, err = fedpareto(*words)
    assert (code, "has no model yet: it is at round 2 of 3" in err) == (2, True)


def test_a_preference_may_be_a_file(deployment, tmp_path):
    from fedpareto_flower.deploy.layout import NodeFolder
    from fedpareto_flower.deploy.node import read_preference

    home = NodeFolder.open(deployment.node(0))
    for text in ("0.7,0.3\n", "0.7\n0.3\n"):
        (tmp_path / "preference.txt").write_text(text)
        assert read_preference(home, str(tmp_path / "preference.txt")) == [0.7, 0.3]


def test_a_node_says_hello_with_its_schema(deployment, tables):
    from fedpareto.tensors import rng
    from fedpareto_flower.deploy.silo_node import SCHEMA_SUBJECT, make_node
    from fedpareto_flower.engine import wire

    config = {"folder": str(deployment.node(2)), "data": {"file": str(tables / "c.csv")}, "preference": [0.5, 0.5]}
    said = wire.decode_hello(make_node(config).hello(wire.encode_greeting(deployment.name, rng.SERVER, "nonce")))
    assert said.client == 2
    assert said.schema[SCHEMA_SUBJECT] == deployment.spec().problem.table_schema.fingerprint


def test_the_run_of_a_deployment_is_continued_by_its_server(fedpareto, deployment):
    from fedpareto.record.store import RunFolder

    RunFolder.create(deployment.run, deployment.spec()).close()
    code, out, err = fedpareto("resume", deployment.run)
    assert (code, out) == (2, "")
    where = f"fedpareto server resume {deployment.folder}"
    assert err == f"Error: {deployment.run} is the run of a deployment; go on with: {where}\n"


def test_an_expired_certificate_of_the_server_is_found_at_its_start(fedpareto, deployment):
    from fedpareto_flower.deploy import certificates

    signing = certificates.load_key(deployment.server / "ca.key")
    expired = certificates.authority(deployment.name, signing, days=-1)
    (deployment.server / "server.pem").write_bytes(certificates.to_pem(expired))
    code, _, err = fedpareto("server", "up", deployment.folder)
    assert code == 2
    assert "has expired; make a new one: fedpareto server renew" in err.splitlines()[-1]
    assert fedpareto("server", "renew", deployment.folder)[0] == 0
    assert certificates.days_left(deployment.server / "server.pem") > 300


@pytest.mark.parametrize(
    "words",
    [
        ("server", "up", "d"),
        ("server", "init", "d", "--nodes", "3"),
        ("server", "status", "d"),
        ("node", "up", "d", "--data", "x.csv", "--preference", "1,0"),
    ],
)
def test_without_flower_the_commands_say_what_to_install(fedpareto, monkeypatch, words):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "flwr" else found(name, *rest))
    code, _, err = fedpareto(*words)
    assert code == 2
    assert "pip install 'fedpareto[flower]'" in err


@pytest.mark.parametrize("words", [("server", "status", "d"), ("node", "check", "d", "--data", "x.csv")])
def test_on_windows_a_line_says_that_deployments_do_not_work(fedpareto, monkeypatch, words):
    monkeypatch.setattr(files, "WINDOWS", True)
    code, out, err = fedpareto(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"Error: fedpareto {words[0]} needs Linux or macOS")
    assert err.count("\n") == 1


def test_a_node_that_is_killed_as_soon_as_it_knows_of_the_end_stays_finished(tables, deployment, monkeypatch):
    """kill -9 while it ends its SuperNode: the server is gone by then, and would never answer."""
    from fedpareto.problems.fairness.sources import Source
    from fedpareto_flower.deploy import node, status
    from fedpareto_flower.deploy.layout import NodeFolder

    class Killed(BaseException):
        pass

    def die(*_):
        raise Killed

    home = NodeFolder.open(deployment.node(0))
    service = node._Service(home, Source(str(tables / "a.csv")), [0.5, 0.5])
    monkeypatch.setattr(service, "_start", lambda: None)
    monkeypatch.setattr(service.processes, "stop", die)
    monkeypatch.setattr(service.server, "wait", lambda: "running")
    monkeypatch.setattr(service.server, "ask", lambda: status.FINISHED)
    with pytest.raises(Killed):
        service.run()
    assert node.is_finished(home)
