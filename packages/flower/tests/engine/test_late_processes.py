"""Five real nodes, two of them slow, one that leaves and returns, and kill -9 of the server: nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from late_server import ARRIVALS, BACK, LATE, LEAVES, SLOW
from memory_federation import DRAFT
from safetensors.torch import load_file
from test_late_nodes import by_hand

from fedpareto.record.store import RunFolder
from fedpareto.spec.draft import Draft
from processes import FLOWER, Python
from waiting import until

CLIENTS, ROUNDS, KILLED = 5, 10, 5


@pytest.mark.takes_long
def test_slow_nodes_one_that_returns_and_a_killed_server_lose_nothing(tmp_path, monkeypatch):
    """Of FedPref; what weights do to late replies of FedAvg is seen in memory (test_late_nodes)."""
    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here, here.parents[1]))), prepend=os.pathsep)
    policy = {"kind": "buffered", "buffer": 2}
    draft = DRAFT | {"algorithm": "fedpref", "clients": CLIENTS, "rounds": ROUNDS, "policy": policy}
    command = [sys.executable, str(here / "late_server.py"), str(tmp_path), json.dumps(draft)]
    run = RunFolder(tmp_path / "run")
    with (tmp_path / "log").open("w") as log:
        killed = Python(command, modules=FLOWER, forks=True, stdout=log, stderr=subprocess.STDOUT)
        until(lambda: killed.poll() is not None or len(run.read_lines("metrics.jsonl")) >= KILLED, _log(tmp_path))
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL, _log(tmp_path)()
        resumed = Python(command, modules=FLOWER, forks=True, stdout=log, stderr=subprocess.STDOUT)
        until(lambda: resumed.poll() is not None, _log(tmp_path))
        assert resumed.poll() == 0, _log(tmp_path)()
    arrivals = _arrivals(tmp_path)
    rows = run.read_lines("metrics.jsonl")
    assert [row["round"] for row in rows] == list(range(ROUNDS + 1))
    assert not any(row["failures"] for row in rows)
    assert {client for clients, _ in arrivals for client in clients} == set(range(CLIENTS))
    late = {
        client: [age for clients, ages in arrivals for who, age in zip(clients, ages, strict=True) if who == client]
        for client in SLOW
    }
    assert all(max(ages) >= LATE - 1 for ages in late.values())
    assert any(LEAVES in clients for clients, _ in arrivals[BACK:])
    assert [row["staleness"] for row in rows[:-1]] == [sum(ages) / len(ages) for _, ages in arrivals]
    spec = Draft(draft).finish()
    expected, found = by_hand(spec, arrivals, 0), load_file(tmp_path / "run" / "models.safetensors")
    for client in range(CLIENTS):
        assert float((found[f"seed0/client{client}"] - expected[client]).abs().max()) <= 1e-5


def _arrivals(folder):
    """Of each round, as it was at last: the killed one was done again."""
    found = {}
    for line in (folder / ARRIVALS).read_text().splitlines():
        round_, clients, ages = json.loads(line)
        found[round_] = clients, ages
    return [found[round_] for round_ in sorted(found)]


def _log(folder):
    return lambda: (folder / "log").read_text()[-3000:]
