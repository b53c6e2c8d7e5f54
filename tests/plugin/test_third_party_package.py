"""A third party's package registers by entry point, passes the conformance suite and runs from the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import run
from waiting import PATIENCE

PACKAGE = Path(__file__).parent / "median_package"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The package really built and installed, into a folder that only these processes see."""
    site = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "package"
    import shutil

    shutil.copytree(PACKAGE, source)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "--no-build-isolation", "--target", str(site), str(source)], check=True, timeout=PATIENCE)
    places = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


COMMANDS = (
    ["algorithms"],
    ["algorithms", "median"],
    ["problems"],
    ["run", "medain"],
    ["--help"],
    ["greet", "you"],
    ["broken"],
    ["run", "fedavg", "--problem", "convex", "--engine", "nightl"],
    ["run", "fedavg", "--problem", "convex", "--engine", "nightly", "--stop-after", "2"],
)
IN_ONE_PROCESS = """
import contextlib, io, json, sys
from fedpareto.cli import main
for words in json.loads(sys.argv[1]):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["fedpareto", *words]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""
"""Several commands, one after the other: an interpreter takes seconds to start."""


@pytest.fixture(scope="module")
def told(environment):
    """What each of COMMANDS says: its exit code, its output and its messages."""
    words = [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(COMMANDS)]  # A process of its own: it has the plug-ins.
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE)
    return {" ".join(words): json.loads(line) for words, line in zip(COMMANDS, done.stdout.splitlines(), strict=True)}


def test_it_is_listed_with_its_taxonomy_and_parameters(told):
    listed = told["algorithms"][1]
    assert "median" in listed
    assert "linearised preferences, median" in listed
    assert "How far the global model moves" in told["algorithms median"][1]
    assert "ridge" in told["problems"][1]


def test_it_runs_from_the_command_line(environment, tmp_path):
    arguments = (
        "run",
        "median+ft",
        "--problem",
        "ridge",
        "--clients",
        "4",
        "--rounds",
        "3",
        "--set",
        "server_step=0.5",
    )
    done = run([sys.executable, "-m", "fedpareto", *arguments, "--out", tmp_path / "run"], env=environment)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["algorithm"], record["problem"]) == ("median+ft", "ridge")
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "finished"


def test_its_command_is_listed_and_runs_and_a_broken_one_says_so(told):
    assert re.search(r"^  greet +Greet somebody\.$", told["--help"][1], re.MULTILINE)
    assert told["greet you"] == [0, "hello you\n", ""]
    code, _, message = told["broken"]
    assert code == 2
    assert message.startswith("Error: 'broken' of the package fedpareto-median cannot be loaded: ")


def test_its_engine_says_what_it_can(told):
    unknown = told["run fedavg --problem convex --engine nightl"][2]
    assert unknown.strip() == "Error: unknown engine 'nightl'; did you mean 'nightly'?"
    refused = told["run fedavg --problem convex --engine nightly --stop-after 2"]
    assert refused[0] == 2
    assert "stop_after is 2, but a nightly run ends in the morning; leave it out" in refused[2]


def test_its_engine_codec_and_report_run(environment, tmp_path):
    given = ("--problem", "convex", "--engine", "nightly", "--rounds", "2", "--set", "codec=int8-delta+deflate")
    places = ("--out", tmp_path / "run", "--log-to", f"lines:{tmp_path / 'lines.txt'}")
    done = run([sys.executable, "-m", "fedpareto", "run", "fedavg", *given, *places], env=environment)
    assert done.returncode == 0, done.stderr
    assert "the night begins" in done.stdout
    spec = (tmp_path / "run" / "spec.yaml").read_text()
    assert "clients: 3" in spec
    assert "codec: int8-delta+deflate" in spec
    lines = (tmp_path / "lines.txt").read_text().splitlines()
    assert lines[-2:] == ["0 final", "finished"]
    assert any(line.startswith("0 2 ") for line in lines)


def test_its_callback_is_listed_and_ends_a_run(environment, tmp_path):
    given = ("run", "fedavg", "--problem", "convex", "--clients", "3", "--rounds", "9", "--out", tmp_path / "run")
    unknown = run([sys.executable, "-m", "fedpareto", *given, "--log-to", "untl:2"], env=environment)
    assert "it is lines or mlflow or tensorboard or until" in unknown.stderr
    done = run([sys.executable, "-m", "fedpareto", *given, "--log-to", "until:2"], env=environment)
    assert done.returncode == 0, done.stderr
    assert "the callback Until ends the run after round 2 of 9" in done.stderr
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert (status["status"], status["round"]) == ("finished", 2)


def test_it_passes_the_conformance_suite(environment):
    code = (
        "from fedpareto.testing import check_algorithm, check_problem\n"
        "from fedpareto.contract.registry import make_algorithm, problem_class\n"
        "check_algorithm(make_algorithm('median', {}))\n"
        "check_algorithm(make_algorithm('median+ft', {}), problem_class('ridge')())\n"
        "check_problem(problem_class('ridge')())\n"
        "print('passed')"
    )
    done = run([sys.executable, "-c", code], env=environment)
    assert done.stdout.strip() == "passed", done.stderr


def test_a_misspelt_name_finds_it(told):
    code, _, message = told["run medain"]
    assert code == 2
    assert message.strip() == "Error: unknown algorithm 'medain'; did you mean 'median'?"
