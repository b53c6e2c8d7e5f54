"""Runs whose clients are processes of their own: the numbers of the local engine, also after everything was killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedpareto.errors import UserError
from fedpareto.experiments import engines
from fedpareto.experiments.runner import start
from fedpareto.experiments.spec import Draft
from waiting import until

needs_flower = pytest.mark.skipif(
    find_spec("flwr") is None and os.environ.get("CI", "").lower() not in ("1", "true"),
    reason="needs the extra: pip install 'fedpareto[flower]'",
)


def draft(engine, algorithm="local", rounds=4):
    return {"problem": "convex", "algorithm": algorithm, "clients": 3, "rounds": rounds, "engine": engine}


def test_without_flower_the_engine_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fedpareto\[flower\]'"):
        start(Draft(draft("flower-local")).finish(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


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


@needs_flower
def test_a_run_whose_processes_were_all_killed_goes_on_with_the_same_numbers(tmp_path):
    """`local` keeps its models on the nodes, so they must find their private state again."""
    expected = start(Draft(draft({"name": "local", "threads": 1, "chunk": 1})).finish(), tmp_path / "local")
    (tmp_path / "spec.yaml").write_text(json.dumps(draft("flower-local")))
    command = [sys.executable, "-m", "fedpareto.cli"]
    run = tmp_path / "flower"
    first = subprocess.Popen([*command, "run", "--spec", "spec.yaml", "--out", str(run), "-q"], cwd=tmp_path)
    wait_for(lambda: len(rounds_in(run)) >= 2, first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert len(rounds_in(run)) < 5, "it was to be killed before its end"
    subprocess.run([*command, "resume", str(run), "-q"], cwd=tmp_path, check=True)
    ours = json.loads((run / "solutions.json").read_text())[0]
    theirs = json.loads((tmp_path / "local" / "solutions.json").read_text())[0]
    assert ours["objectives"] == theirs["objectives"]
    assert ours["preferences"] == theirs["preferences"]
    assert [row["traffic"] for row in rows(run)] == [row["traffic"] for row in expected.history]
    assert sorted((run / "flower" / "nodes").iterdir()) == [run / "flower" / "nodes" / name for name in "012"]


@needs_flower
def test_ctrl_c_ends_the_round_under_way_and_then_all_processes(tmp_path):
    """A terminal sends it to everybody in the group; the nodes must live until the round is over."""
    (tmp_path / "spec.yaml").write_text(json.dumps(draft("flower-local", rounds=1000)))
    run, log = tmp_path / "run", tmp_path / "log"
    command = [sys.executable, "-m", "fedpareto.cli", "run", "--spec", "spec.yaml", "--out", str(run), "-q"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file, process_group=0)
    wait_for(lambda: rounds_in(run), process)
    names = {name for words in processes_about(run) for name in ("superlink", "supernode", "worker") if name in words}
    assert names == {"superlink", "supernode", "worker"}
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(300) == 130, log.read_text()
    stopped = json.loads((run / "status.json").read_text())
    assert stopped["status"] == "stopped"
    assert f"stopped after round {stopped['round']} of 1000; continue with: fedpareto resume {run}" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert [row["replies"] for row in rows(run)] == [3] * stopped["round"]
    assert not (run / "events.jsonl").exists() or not (run / "events.jsonl").read_text()
    assert not processes_about(run)


def processes_about(folder):
    """The command lines on this machine that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # It has just ended.
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [words for words in found if f"{folder}/" in words]


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
