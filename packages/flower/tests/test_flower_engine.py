"""Runs whose clients are processes of their own: the numbers of the local engine, also after everything was killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedpareto.config.errors import UserError
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft
from fedpareto_flower import backend
from folders import without_times
from processes import FLOWER, Commands
from waiting import until

needs_flower = pytest.mark.skipif(
    find_spec("flwr") is None and os.environ.get("CI", "").lower() not in ("1", "true"),
    reason="needs the extra: pip install 'fedpareto[flower]'",
)


ROUNDS = 100
"""So many that a run is under way when it is looked at."""


def draft(engine):
    return {"problem": "convex", "algorithm": "local", "clients": 3, "rounds": ROUNDS, "engine": engine}


def test_without_flower_the_engine_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fedpareto\[flower\]'"):
        start(Draft(draft("flower-local")).finish(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_ray_the_simulation_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(backend, "find_spec", lambda name: None if name == "ray" else object())
    with pytest.raises(UserError, match=r"pip install 'fedpareto\[simulation\]'"):
        start(Draft(draft("flower-sim")).finish(), tmp_path / "run")


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"name": "flower-locl"}, "did you mean 'flower-local'"),
        ({"name": "flower-local", "timeout": 0}, "timeout is 0"),
        ({"name": "flower-local", "retries": -1}, "retries"),
        ({"name": "flower-sim", "device": "cuda"}, "nodes of Flower work on the cpu"),
        ({"name": "local", "timeout": 5}, "timeout"),
    ],
)
def test_options_that_make_no_sense_are_named(engine, message):
    with pytest.raises(UserError, match=message):
        Draft(draft(engine)).finish()


@pytest.fixture(scope="module")
def server():
    return Commands(FLOWER)


@pytest.fixture(scope="module")
def disturbed(server, tmp_path_factory):
    """A run that was killed with all its processes, went on, and was then stopped with Ctrl-C."""
    folder = tmp_path_factory.mktemp("disturbed")
    run, log = folder / "run", folder / "log"
    (folder / "spec.yaml").write_text(json.dumps(draft("flower-local")))
    first = server.start(["run", "--spec", folder / "spec.yaml", "--out", run, "-q"], log)
    wait_for(lambda: len(rounds_in(run)) >= 2, first)
    first.signal(signal.SIGKILL)
    first.wait()
    killed = len(rounds_in(run))
    until(lambda: not processes_about(run))
    second = server.start(["resume", run, "-q"], log)
    wait_for(lambda: len(rounds_in(run)) >= killed + 2, second)
    during = processes_about(run)
    os.killpg(second.pid, signal.SIGINT)  # A terminal sends it to everybody in the group.
    code = second.wait()
    return run, killed, during, code, processes_about(run), log.read_text()


@pytest.mark.takes_long
@needs_flower
def test_a_run_whose_processes_were_all_killed_goes_on_with_the_same_numbers(disturbed, tmp_path):
    """`local` keeps its models on the nodes, so they must find their private state again."""
    run, killed, *_ = disturbed
    start(Draft(draft({"name": "local", "threads": 1, "chunk": 1})).finish(), tmp_path / "local")
    ours, theirs = rows(run), rows(tmp_path / "local")
    assert killed < len(ours) <= len(theirs)
    for found, expected in zip(ours, theirs, strict=False):
        assert without_times(found) == without_times(expected)
    assert sorted((run / "flower" / "nodes").iterdir()) == [run / "flower" / "nodes" / name for name in "012"]


@pytest.mark.takes_long
@needs_flower
def test_ctrl_c_ends_the_round_under_way_and_then_all_processes(disturbed):
    """The nodes must live until the round is over."""
    run, _, during, code, after, said = disturbed
    assert {name.rstrip("012") for name in during} == {"superlink", "supernode", "worker"}
    assert code == 130, said
    stopped = json.loads((run / "status.json").read_text())
    assert stopped["status"] == "stopped"
    assert f"stopped after round {stopped['round']} of {ROUNDS}; continue with: fedpareto resume {run}" in said
    assert "Traceback" not in said
    assert [row["replies"] for row in rows(run)] == [3] * stopped["round"]
    assert not (run / "events.jsonl").exists() or not (run / "events.jsonl").read_text()
    assert not after


def processes_about(folder):
    """The processes on this machine that write to a log in the folder, by the log's name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd/1"):
        with contextlib.suppress(OSError):  # It has just ended.
            found.append(path.readlink())
    return [log.stem for log in found if log.is_relative_to(folder)]


def rows(folder):
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rounds_in(folder):
    return [row["round"] for row in rows(folder)]


def wait_for(condition, process):
    def is_so():
        assert process.poll() is None, "the run ended by itself"
        return condition()

    until(is_so)
