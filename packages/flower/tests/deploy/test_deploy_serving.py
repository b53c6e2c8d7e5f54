"""A node of a deployment uses what it kept on raw rows of its table."""

from __future__ import annotations

import csv
import sys
import warnings

import pytest

import fedpareto
from fedpareto.problems.fairness.sources import Source
from fedpareto.spec.draft import Draft
from fedpareto_flower.deploy.create import create
from fedpareto_flower.deploy.layout import NodeFolder
from fedpareto_flower.deploy.silo_node import make_node
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.server import END_OF_TIME

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main

PRAFFL = {"name": "praffl", "body_epochs": 1, "head_epochs": 1, "sampled": 4}


@pytest.fixture(params=["praffl", "fedpref"])
def folder(request, schema, tables, tmp_path):
    """A node's folder after it heard that the run is over."""
    algorithm = PRAFFL if request.param == "praffl" else request.param
    deployment = create(tmp_path / "f", schema, Draft({"algorithm": algorithm, "rounds": 1}), [], 1, "127.0.0.1", 18443)
    place = deployment.node(0)
    node = make_node({"folder": str(place), "data": {"file": str(tables / "a.csv")}, "preference": [0.6, 0.4]})
    solution = node.algorithm.solutions(node.algorithm.begin(node.engine.settings[0]))[0]
    job = wire.Job(0, END_OF_TIME, 0, (), solution, True)
    node.answer(wire.encode_envelope(wire.Envelope(node.federation, 0, "nonce", (job,), final=True)))
    return place


def test_raw_rows_are_read_as_in_training(folder, tables, tmp_path, monkeypatch, capfd):
    words = ["predict", folder, "--preference", "0.7,0.3", "--input", tables / "a.csv", "--out", tmp_path / "out.csv"]
    monkeypatch.setattr(sys, "argv", ["fedpareto", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr().err
    assert not ended.value.code, said
    assert "client 0's model" in said
    with (tmp_path / "out.csv").open() as file:
        found = [float(row["probability"]) for row in csv.DictReader(file)]
    encoded = NodeFolder.open(folder).spec().problem.table_schema.encode(Source(str(tables / "a.csv")).of_party())
    model = fedpareto.load(folder).conditioned()
    assert found == pytest.approx(model(encoded, [0.7, 0.3]).tolist(), abs=1e-6)
    assert len(set(found)) > 100
