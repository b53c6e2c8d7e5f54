"""What a node keeps can be used at the node: the model of the local engine, for any preference, and nowhere else."""

from __future__ import annotations

import asyncio
import csv
import io
import sys
import warnings

import httpx
import numpy as np
import pytest
import torch
from memory_federation import DRAFT, federation_of
from safetensors.torch import load_file

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.record.servable import node_file, node_files
from fedpareto.record.store import RunFolder, describe
from fedpareto.runs import runner
from fedpareto.runs.loop import Experiment
from fedpareto.spec.draft import Draft
from fedpareto_flower.node_files import keep_servable
from fedpareto_serve.models import AnyPreference

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main

PRAFFL = {"name": "praffl", "body_epochs": 1, "head_epochs": 1, "sampled": 4, "hypernetwork": [8, 8]}
PROBLEM = {"name": "synthetic", "partition": "fedfb", "hidden": [8, 6, 4]}
ONE_BY_ONE = {"name": "local", "threads": 1, "chunk": 1}
"""The local engine as nodes compute."""
X = torch.as_tensor(np.random.default_rng(0).standard_normal((20, 2)), dtype=torch.float32)
PREFERENCES = np.random.default_rng(1).dirichlet([1, 1], 20)


def spec_of(algorithm, **more):
    return Draft(DRAFT | {"algorithm": algorithm, "problem": PROBLEM, "engine": ONE_BY_ONE} | more).finish()


def run_on_nodes(spec, folder):
    """A whole run, with the server's folder beside those of the nodes."""
    engine, grid = federation_of(spec, folder)
    for node in grid.nodes.values():
        node.keep = keep_servable
    with RunFolder.create(folder / "server", spec) as place:
        place.write_json("run.json", describe(spec, engine.split_names, engine.chosen))
        Experiment(spec, engine, place).run()
    return folder


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """PraFFL on nodes and on the local engine."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    spec = spec_of(PRAFFL, seeds=2)
    folder = tmp_path_factory.mktemp("both")
    runner.start(spec, folder / "local")
    return run_on_nodes(spec, folder)


@pytest.fixture
def command(capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedpareto", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capfd.readouterr()

    return call


def test_each_node_keeps_the_local_engines_model_for_any_preference(both):
    local = fedpareto.load(both / "local")
    for client in range(3):
        at_node = fedpareto.load(both / f"node{client}")
        assert (at_node.clients, at_node.seeds) == ([client], [0, 1])
        for seed in at_node.seeds:
            found, wanted = at_node.conditioned(seed=seed), local.conditioned(client, seed)
            assert isinstance(found, AnyPreference)
            assert found.card == wanted.card
            assert found.anatomy == wanted.anatomy
            for part in ("body", "hypernetwork", "lattice", "front"):
                assert torch.equal(getattr(found, part), getattr(wanted, part))
            assert torch.equal(found(X, PREFERENCES), wanted(X, PREFERENCES))


def test_nothing_of_it_reaches_the_servers_folder(both, command):
    at_server = {path.name for path in (both / "server").iterdir()}
    assert "solutions.json" in at_server
    assert not at_server & {"conditioned.safetensors", "inputs.json"}
    everything = b"".join(path.read_bytes() for path in (both / "server").iterdir())
    for client in range(3):
        assert not (both / f"node{client}" / "inputs.json").exists()
        for file in node_files(both / f"node{client}"):
            assert load_file(file)["hypernetwork"][:16].numpy().tobytes() not in everything
    code, _, err = command("predict", both / "server", "--preference", "0.5,0.5", "--input", "rows.csv")
    assert code == 2
    assert "name a node's own folder instead" in err


def test_predictions_at_the_node_are_those_of_the_local_run(both, command, tmp_path):
    (tmp_path / "rows.csv").write_text("x1,x2\n1,2\n-3,0.5\n")
    asked = ("--preference", "0.7,0.3", "--input", "rows.csv")
    code, found, err = command("predict", both / "node1", *asked)
    assert code == 0, err
    assert "client 1's model for the preference 0.7,0.3 (praffl, seed 0)" in err
    assert found == command("predict", both / "local", "--client", "1", *asked)[1]
    assert found == command("predict", node_file(both / "node1", 0), *asked)[1]
    second = command("predict", both / "node1", "--seed", "1", *asked)[1]
    assert second == command("predict", both / "local", "--client", "1", "--seed", "1", *asked)[1]
    assert [float(row["probability"]) for row in csv.DictReader(io.StringIO(second))] != pytest.approx(
        [float(row["probability"]) for row in csv.DictReader(io.StringIO(found))], abs=1e-6
    )


def test_the_nodes_file_is_what_export_writes(both, command, tmp_path):
    for source in (("node2",), ("local", "--client", "2")):
        code, _, err = command("export", both / source[0], *source[1:], "--out", tmp_path / "model.safetensors")
        assert code == 0, err
        assert (tmp_path / "model.safetensors").read_bytes() == node_file(both / "node2", 0).read_bytes()
    assert command("export", both / "node2", "--out", tmp_path / "model.onnx")[0] == 0


def test_another_client_or_seed_is_refused(both):
    at_node = fedpareto.load(both / "node1")
    with pytest.raises(UserError, match="the model of client 1, not of client 0"):
        at_node.conditioned(client=0)
    with pytest.raises(UserError, match="has no seed 7; it has 0, 1"):
        at_node.conditioned(seed=7)


def test_a_node_answers_over_http(both):
    from fedpareto_serve.service import app_of

    app = app_of(fedpareto.load(both / "node1"))

    async def ask(*request, **content):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return (await client.request(*request, **content)).json()

    assert asyncio.run(ask("GET", "/health"))["clients"] == [1]
    question = {"rows": [{"x1": 1.5, "x2": 2}], "preference": [0.7, 0.3]}
    (probability,) = asyncio.run(ask("POST", "/predict", json=question))["probabilities"]
    wanted = fedpareto.load(both / "local").conditioned(1)([[1.5, 2]], [0.7, 0.3])
    assert probability == pytest.approx(float(wanted[0]), abs=1e-6)


def test_a_node_with_one_model_serves_that_one_and_keeps_its_preference_out_of_the_file(tmp_path):
    spec = spec_of("fedpref")
    run_on_nodes(spec, tmp_path)
    server = fedpareto.load(tmp_path / "server").solutions[0]
    for client in range(3):
        model = fedpareto.load(tmp_path / f"node{client}").conditioned()
        assert torch.equal(model.at([0.9, 0.1]), load_file(tmp_path / f"node{client}" / "model.safetensors")["seed0"])
        (point,) = model.points
        assert point.client == client
        assert point.preference is None
        assert point.values == pytest.approx(server.points[client])
        assert f"client {client}'s model, which is the only one here: accuracy" in model.describe([0.9, 0.1])
        content = node_file(tmp_path / f"node{client}", 0).read_bytes()
        own = spec.federation(0).preferences[client]
        assert not any(own.astype(kind).tobytes() in content for kind in ("<f4", "<f8"))


def test_what_cannot_be_served_is_not_kept(tmp_path):
    """A vote of several models, and a problem without a table of columns."""
    for spec in (spec_of("lft-ensemble"), spec_of("fedavg", problem="convex", learner={})):
        run_on_nodes(spec, tmp_path / spec.problem.name)
        for client in range(3):
            folder = tmp_path / spec.problem.name / f"node{client}"
            assert (folder / "model.safetensors").exists()
            assert not node_files(folder)
