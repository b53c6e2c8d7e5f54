"""The real thing: SuperLink, SuperNodes and node processes on this machine, and Flower's simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from memory_federation import DRAFT, federations_of, local_engine, play
from real_federation import nodes_of, server_of
from test_flower_parity import largest_difference

from fedpareto.runs.loop import Experiment
from fedpareto.spec.draft import Draft
from fedpareto_flower.engine.launch import Processes, simulate
from processes import Python
from waiting import until


@pytest.fixture
def importable(monkeypatch):
    """The node processes find this folder's modules."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)


KINDS = ("scaffold", "fedval", "fairtrade", "fcfl")
"""Control variates, a server that judges, a search in every round, constraints."""


@pytest.mark.takes_long
@pytest.mark.parametrize("name", ["fedpref", "fedcmoo", *KINDS])
def test_three_supernodes_end_with_the_models_of_the_local_engine(name, real, tmp_path):
    draft = DRAFT | {"algorithm": name, "rounds": 2}
    spec = Draft(draft).finish()
    real.serve(nodes_of(draft, tmp_path))
    states, _ = play(spec, server_of(spec, real.grid))
    expected, _ = play(spec, local_engine(spec))
    solutions = spec.algorithm.solutions
    assert largest_difference(solutions(states[0]), solutions(expected[0])) <= 1e-5
    logs = b"".join(path.read_bytes() for path in (real.federation.folder / "logs").iterdir())
    assert logs
    for federation in federations_of(spec):
        for preference in federation.preferences.ravel():
            assert f"{preference:.6f}".encode() not in logs


@pytest.mark.takes_long
def test_a_buffer_for_all_supernodes_ends_with_the_models_of_the_local_engine(real, tmp_path):
    draft = DRAFT | {"algorithm": "fedpref", "rounds": 2, "policy": {"kind": "buffered", "buffer": 3}}
    spec = Draft(draft).finish()
    real.serve(nodes_of(draft, tmp_path))
    experiments = [Experiment(spec, server_of(spec, real.grid)), Experiment(spec, local_engine(spec))]
    found, wanted = (one.run() for one in experiments)
    solutions = [spec.algorithm.solutions(one.states[0]) for one in experiments]
    assert largest_difference(*solutions) <= 1e-5
    assert [row["replies"] for row in found.history] == [row["replies"] for row in wanted.history] == [3, 3, 0]
    assert found.hypervolume == pytest.approx(wanted.hypervolume, abs=1e-5)


def test_no_process_outlives_a_killed_launcher(tmp_path):
    script = (
        "import sys, time, pathlib\n"
        "from fedpareto_flower.engine.launch import Processes\n"
        "children = Processes(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[1]))\n"
        "children.start('sleeper', ['sleep', '3600'])\n"
        "print(children.running['sleeper'].pid, flush=True)\n"
        "time.sleep(3600)\n"
    )
    launcher = Python([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(launcher.stdout.readline())
    launcher.kill()
    launcher.communicate()
    until(lambda: not Path(f"/proc/{child}").exists())


def test_children_are_kept_off_the_network(tmp_path, monkeypatch):
    monkeypatch.delenv("FLWR_TELEMETRY_ENABLED")
    environment = Processes(tmp_path, tmp_path / "home").environment()
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert environment["FLWR_HOME"] == str(tmp_path / "home")


@pytest.mark.takes_long
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")  # Ray's own.
def test_the_simulation_gives_the_same_models(importable, tmp_path, monkeypatch):
    draft = DRAFT | {"algorithm": "local"}
    spec = Draft(draft).finish()
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")  # A cluster is none of its business, nor one that is not there.
    measured = simulate(nodes_of(draft, tmp_path), lambda grid: play(spec, server_of(spec, grid))[1])
    _, expected = play(spec, local_engine(spec))
    for client, objectives in measured[-1].sent.items():
        assert float((objectives - expected[-1].sent[client]).abs().max()) <= 1e-5
