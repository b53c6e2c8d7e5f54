"""Runs on a cluster of two machines, which are two nodes of Ray with their own temporary folders on this one."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import psutil
import pytest
from ray.cluster_utils import Cluster
from safetensors.numpy import load_file

import fedpareto
from fedpareto_ray.cluster import _quietly
from processes import Commands
from waiting import until

pytestmark = pytest.mark.takes_long

RUN = ("run", "ditto", "--problem", "convex", "--clients", "9", "--rounds", "150", "--participation", "0.7", "--quiet")
SAME = ("--set", "precision=float64", "--set", "threads=1", "--set", "chunk=4")
BASIS = Path(fedpareto.__file__).parent


@pytest.fixture(scope="module")
def cluster():
    """A head with room for one worker."""
    with _quietly():
        found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield found
    with _quietly():
        found.shutdown()


@pytest.fixture
def second(cluster):
    """Adds another machine with room for one more, with an environment of its own."""
    nodes = []
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:  # With a short name: there are sockets in it.

        def add(**environment):
            of_node = {"WHERE": "second", **environment}
            with _quietly():
                nodes.append(cluster.add_node(num_cpus=1, temp_dir=folder, env_vars=of_node))
            return nodes[-1]

        yield add
        for node in nodes:
            if node in cluster.worker_nodes:
                with _quietly():
                    cluster.remove_node(node)


def on(cluster):
    return "--engine", "ray", "--set", f"address={cluster.address}"


def workers():
    """Where the workers of runs are: on the second machine, or not."""
    found = []
    for process in psutil.process_iter():
        try:
            if "ray::Worker" in " ".join(process.cmdline()):
                found.append(process.environ().get("WHERE", "first"))
        except psutil.Error:
            continue  # It has ended meanwhile.
    return sorted(found)


def rounds(folder):
    metrics = folder / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0


def models(folder):
    return load_file(folder / "models.safetensors")


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert max(np.abs(one[name] - other[name]).max() for name in one) <= 1e-9


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The models of the same run on the local engine."""
    folder = tmp_path_factory.mktemp("local")
    assert Commands().run([*RUN, *SAME, "--out", folder / "run"], folder / "log") == 0
    return models(folder / "run")


def test_clients_are_spread_over_both_machines_and_survive_the_loss_of_one(cluster, second, expected, tmp_path):
    log = tmp_path / "log"
    machine = second()
    run = Commands().start([*RUN, *SAME, *on(cluster), "--out", tmp_path / "ray"], log)
    until(lambda: rounds(tmp_path / "ray") > 3 or run.poll() is not None, log.read_text)
    assert {"first", "second"} <= set(workers()), log.read_text()
    with _quietly():
        cluster.remove_node(machine, allow_graceful=False)
    assert run.wait() == 0, log.read_text()
    assert "died, and another one does its work again" in log.read_text()
    assert_same(expected, models(tmp_path / "ray"))


def test_a_run_whose_driver_was_killed_goes_on_with_another_number_of_workers(cluster, second, expected, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "ray"
    second()
    run = Commands().start([*RUN, *SAME, *on(cluster), "--out", folder], log)
    until(lambda: rounds(folder) > 3 or run.poll() is not None, log.read_text)
    run.signal(signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL, log.read_text()
    refused = Commands().run(["resume", folder, "--set", "chunk=9"], log)
    assert refused == 2
    assert "only quorum, faults, address and workers may be changed" in log.read_text()
    resumed = ["resume", folder, "--quiet", "--allow-address", cluster.address, "--set", "workers=1"]
    assert Commands().run(resumed, log) == 0, log.read_text()
    assert_same(expected, models(folder))
    (change,) = json.loads((folder / "run.json").read_text())["changes"]
    assert [engine["workers"] for engine in change["engine"]] == [0, 1]


def test_another_version_on_a_worker_is_refused_by_name(cluster, second, tmp_path):
    other = tmp_path / "other" / "fedpareto"
    shutil.copytree(BASIS, other, ignore=shutil.ignore_patterns("__pycache__"))
    version = other / "config" / "version.py"
    text = version.read_text(encoding="utf-8")
    assert f'"{fedpareto.__version__}"' in text
    version.write_text(text.replace(fedpareto.__version__, "9.9"), encoding="utf-8")
    second(PYTHONPATH=str(other.parent))
    log = tmp_path / "log"
    assert Commands().run([*RUN, *SAME, *on(cluster), "--out", tmp_path / "run"], log) == 2
    said = log.read_text()  # on a busy machine Ray may say something before
    assert (
        f"has fedpareto 9.9, this process has {fedpareto.__version__}; install the same version everywhere"
        in said.splitlines()[-1]
    )
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_a_worker_without_the_data_says_so(cluster, tmp_path, monkeypatch):
    """The table is in a database whose address only the driver knows."""
    place = tmp_path / "people.db"
    with sqlite3.connect(place) as people:
        people.execute("CREATE TABLE people (income INTEGER, sex TEXT, age REAL)")
        rows = [(i % 2, "mf"[i // 2 % 2], float(i)) for i in range(400)]
        people.executemany("INSERT INTO people VALUES (?, ?, ?)", rows)
    people.close()
    monkeypatch.setenv("PEOPLE", f"sqlite:///{place}")
    table = ("--sql", "env:PEOPLE", "--query", "SELECT * FROM people", "--label", "income", "--sensitive", "sex")
    log = tmp_path / "log"
    run = ("run", "fedavg", "--clients", "2", "--rounds", "1", "--quiet", *table)
    assert Commands().run([*run, *on(cluster), "--out", tmp_path / "run"], log) == 2
    (line,) = log.read_text().splitlines()
    assert line.startswith("Error: worker 0 (")
    assert "PEOPLE" in line


def test_an_address_where_nobody_listens_is_refused_at_once(tmp_path):
    log = tmp_path / "log"
    run = ["run", "fedavg", "--problem", "convex", "--engine", "ray", "--set", "address=127.0.0.1:9"]
    assert Commands().run([*run, "--out", tmp_path / "run"], log) == 2
    assert len(log.read_text().splitlines()) == 1
    assert "there is no Ray cluster at '127.0.0.1:9'; start one with: ray start --head" in log.read_text()
