"""`fedpareto predict` and `export`: files in, files out, and every mistake is one line."""

from __future__ import annotations

import csv
import io
import socket
import sys
import warnings

import numpy as np
import pytest

import fedpareto
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto_serve.predictions import predict

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main

ROWS = "x1,x2,label\n1,2,0\n-3,0.5,1\n"


@pytest.fixture
def command(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedpareto", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capfd.readouterr()

    return call


def probabilities(text):
    return [float(row["probability"]) for row in csv.DictReader(io.StringIO(text))]


def test_predictions_from_a_run_and_from_a_file_are_the_models_own(command, praffl_run, tmp_path):
    model = fedpareto.load(praffl_run).conditioned(2)
    expected = model([[1.0, 2.0], [-3.0, 0.5]], [0.7, 0.3]).tolist()
    asked = ("--preference", "0.7,0.3", "--input", "rows.csv")
    code, out, err = command("predict", praffl_run, "--client", "2", *asked)
    assert code == 0, err
    assert "client 2's model for the preference 0.7,0.3 (praffl, seed 0)" in err
    assert probabilities(out) == pytest.approx(expected, abs=1e-6)
    assert command("export", praffl_run, "--client", "2", "--out", "model.safetensors")[0] == 0
    assert command("predict", "model.safetensors", *asked, "--out", "found.csv")[0] == 0
    assert (tmp_path / "found.csv").read_text() == out


def test_a_preference_for_each_row(command, praffl_run, fedpref_run, tmp_path):
    (tmp_path / "preferences.csv").write_text("accuracy,demographic-parity\n1,0\n0.2,0.8\n")
    asked = ("--client", "1", "--preferences", "preferences.csv", "--input", "rows.csv")
    _, out, _ = command("predict", praffl_run, *asked)
    model = fedpareto.load(praffl_run).conditioned(1)
    assert probabilities(out) == pytest.approx(model([[1.0, 2], [-3, 0.5]], [[1, 0], [0.2, 0.8]]).tolist(), abs=1e-6)
    _, out, err = command("predict", fedpref_run, *asked[2:])
    assert [row["client"] for row in csv.DictReader(io.StringIO(out))] == ["4", "1"]
    assert "models of client 1, 4" in err
    _, out, _ = command("predict", fedpref_run, *asked)
    assert [row["client"] for row in csv.DictReader(io.StringIO(out))] == ["1", "1"], "the client that was asked for"


def test_onnx_is_written_and_checked(command, praffl_run, tmp_path):
    code, out, err = command("export", praffl_run, "--client", "0", "--format", "onnx", "--out", "model.onnx")
    assert code == 0, err
    assert "under onnxruntime the same to" in out
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_semicolons_and_quotes_are_read(command, praffl_run, tmp_path):
    (tmp_path / "other.csv").write_text('\ufeffx2;x1\n"2"; 1\n0.5;-3\n')
    asked = ("--client", "0", "--preference", "0.5,0.5")
    assert (
        command("predict", praffl_run, *asked, "--input", "other.csv")[1]
        == command("predict", praffl_run, *asked, "--input", "rows.csv")[1]
    )


@pytest.mark.parametrize(
    ("preference", "words"),
    [
        ("0.7,0.4", "weights sum to 1.1, not 1"),
        ("0.7", "1 weight instead of 2"),
        ("0.5,0.3,0.2", "3 weights instead of 2"),
        ("-0.2,1.2", "cannot be negative"),
        ("nan,1", "not a finite number"),
        ("much,little", "write it as 0.7,0.3"),
        ("", "write it as 0.7,0.3"),
    ],
)
def test_a_bad_preference_is_one_line(command, praffl_run, preference, words):
    code, out, err = command(
        "predict", praffl_run, "--client", "0", f"--preference={preference}", "--input", "rows.csv"
    )
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


def test_a_table_is_read_as_that_of_the_training_was(command, tmp_path):
    stream = np.random.default_rng(0)
    lines = ["größe;alter;gruppe;ja"]
    for row in range(120):
        size = "k. A." if row % 10 == 0 else f"1.{stream.integers(100, 999)},{stream.integers(10, 99)}"
        lines.append(f"{size};{-999 if row % 7 == 0 else row % 40};{'ab'[row % 2]};{row % 3 % 2}")
    (tmp_path / "people.csv").write_text("\n".join(lines), encoding="latin-1")
    problem = {"file": "people.csv", "label": "ja", "sensitive": ("gruppe",), "missing": ("k. A.", "-999")}
    fedpareto.run(
        OwnTable(**problem),
        "fedavg",
        clients=2,
        rounds=1,
        learner={"epochs": 1},
        engine={"threads": 1, "chunk": 2},
        out="run",
    )
    assert command("export", "run", "--out", "model.safetensors")[0] == 0
    some = [lines[0], "1.234,5;3;a;0", "k. A.;-999;b;0", "700;4;a;0", "1.234;4;a;0"]
    (tmp_path / "some.csv").write_text("\n".join(some), encoding="latin-1")
    asked = ("predict", "model.safetensors", "--preference", "0.5,0.5", "--input")
    code, out, err = command(*asked, "some.csv")
    assert code == 0, err
    assert "some.csv: numbers have a decimal comma\n" in err
    assert "some.csv: the text is not UTF-8; it is read as Latin-1\n" in err
    plain = ["größe,alter,gruppe", "1234.5,3,a", ",,b", "700,4,a", "1234,4,a"]
    (tmp_path / "plain.csv").write_text("\n".join(plain), encoding="utf-8")
    assert command(*asked, "plain.csv")[1] == out
    rows = [dict(zip(lines[0].split(";"), line.split(";"), strict=True)) for line in some[1:]]
    found = predict(fedpareto.load("model.safetensors").conditioned(), rows, [0.5, 0.5])  # As over HTTP.
    assert [f"{one:.6f}" for one in found.probabilities] == [line.split(",")[0] for line in out.splitlines()[1:]]
    assert found.unseen == {}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x1,y2\n1,2\n", "has no column 'x2'; is 'y2' meant?"),
        ("x1,x2\n1,2\n3,many\n", "row 2: 'x2' is 'many', not a number"),
        ("x1,x2\n1,2\n1,2,3\n1,2\n", "row 2 has 3 fields; the header has 2"),
        ("x1,x2\n", "has no rows"),
        ("x1,x2,x1\n1,2,3\n", "has the column 'x1' more than once"),
        ('x1,x2\n"1,2\n', "cannot be read as CSV"),
        ("x1,x2\n1e39,1\n", "bad.csv, row 1: 'x1' is too large a number"),
        ("x1,x2\n1,abc\n", "bad.csv, row 1: 'x2' is 'abc', not a number"),
        ("", "bad.csv is empty"),
        (b"x1,x2\n1,\x00\n", "it is not text"),
    ],
)
def test_a_bad_table_is_one_line(command, praffl_run, tmp_path, content, words):
    (tmp_path / "bad.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    code, out, err = command("predict", praffl_run, "--client", "0", "--preference", "0.5,0.5", "--input", "bad.csv")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "RUN", "--client", "0", "--input", "rows.csv"), "give --preference"),
        (("predict", "RUN", "--preference", "1,0", "--input", "rows.csv"), "choose a client: 0, 1, 2"),
        (
            ("predict", "nowhere", "--preference", "1,0", "--input", "rows.csv"),
            "nowhere: there is no such file or folder",
        ),
        (("predict", "rows.csv", "--preference", "1,0", "--input", "rows.csv"), "rows.csv is not a safetensors file"),
        (("predict", "RUN", "--client", "0", "--preference", "1,0", "--input", "no.csv"), "no.csv cannot be read"),
        (("export", "RUN", "--client", "7", "--out", "m.safetensors"), "there is no client 7"),
        (("export", "RUN", "--client", "0", "--out", "no/m.safetensors"), "cannot be written"),
        (("export", "RUN", "--client", "0", "--out", "m", "--format", "pickle"), "pickle"),
        (("serve", "RUN", "--port", "99999"), "Invalid value for '--port'"),
        (("serve", "RUN", "--host", "0.0.0.0"), "anyone who reaches 0.0.0.0 could send requests"),
        (("serve", "RUN", "--token-file", "no.txt"), "no.txt cannot be read: No such file"),
        (("serve", "RUN", "--token-file", "rows.csv"), "the token in rows.csv should be one word of at least 16"),
        (("serve", "RUN", "--client", "0", "--port", "0", "--access-log", "no/log"), "the access log no/log cannot be"),
        (("serve", "RUN", "--client", "7", "--port", "0", "--workers", "2"), "there is no client 7"),
    ],
)
def test_other_mistakes_are_one_line(command, praffl_run, arguments, words):
    code, _, err = command(*(praffl_run if word == "RUN" else word for word in arguments))
    assert code == 2
    assert words in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_port_that_is_taken_is_one_line(command, praffl_run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = command("serve", praffl_run, "--client", "0", "--port", port)
    assert (code, err.count("\n")) == (2, 1)
    assert f"cannot listen at 127.0.0.1, port {port}" in err


def test_a_run_that_cannot_be_served_is_refused_before_anything_is_asked(command):
    fedpareto.run("convex", "fedavg", clients=2, rounds=1, engine={"threads": 1, "chunk": 2}, out="run")
    code, _, err = command("predict", "run", "--input", "rows.csv")
    assert code == 2
    assert "run cannot be served" in err
    assert "problem 'convex' predicts nothing" in err


def test_unseen_values_are_said(command, tmp_path):
    stream = np.random.default_rng(0)
    lines = ["age,city,hired"]
    lines += [f"{stream.integers(18, 70)},{'north' if i % 2 else 'south'},{stream.integers(2)}" for i in range(200)]
    (tmp_path / "people.csv").write_text("\n".join(lines))
    table = {"file": "people.csv", "label": "hired", "sensitive": ("city",), "hidden": (4,)}
    from fedpareto.problems.fairness.benchmarks import OwnTable

    fedpareto.run(OwnTable(**table), "fedavg", clients=2, rounds=1, engine={"threads": 1, "chunk": 2}, out="run")
    (tmp_path / "people.csv").unlink()  # Neither the data nor the problem is needed to predict.
    (tmp_path / "new.csv").write_text("city,age\nwest,30\nnorth,NA\n")
    code, out, err = command("predict", "run", "--preference", "0.5,0.5", "--input", "new.csv")
    assert code == 0, err
    assert "'city' is empty or has a value that no training row had in 1 of 2 rows" in err
    assert "'age' is empty or has a value that no training row had in 1 of 2 rows" in err
    assert len(probabilities(out)) == 2


@pytest.mark.parametrize(
    ("absent", "arguments", "words"),
    [
        ("fastapi", ("serve", "RUN"), 'pip install "fedpareto[serve]"'),
        ("onnx", ("export", "RUN", "--client", "0", "--out", "m.onnx"), 'pip install "fedpareto[onnx]"'),
    ],
)
def test_without_the_extra_one_line_says_what_to_install(command, praffl_run, monkeypatch, absent, arguments, words):
    from importlib import util

    found = util.find_spec
    for place in ("fedpareto_serve.commands.find_spec", "fedpareto_serve.onnx_network.find_spec"):
        monkeypatch.setattr(place, lambda name: None if name == absent else found(name))
    code, _, err = command(*(praffl_run if word == "RUN" else word for word in arguments))
    assert (code, err.count("\n")) == (2, 1)
    assert words in err
