"""What the page tells of a matrix is what its file holds, cell by cell, also while it grows."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from fedpareto_audit import matrix
from fedpareto_page import queries
from fedpareto_page.watch import Shelf, Unknown
from waiting import until

SPEC = """
problem: convex
clients: 6
rounds: 2
seeds: [3, 5]
matrix:
  algorithm: [fedavg, dsfl]
  attack: [none, {kind: sign-flip, attackers: [0]}]
  defence: [none, median]
"""


def of_matrix(root):
    shelf = Shelf([root])
    shelf.poll()
    (other,) = shelf.others.values()
    return shelf, other.id


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "spec.yaml").write_text(SPEC.replace(", attackers: [0]", ", share: 0.3"))
    matrix.run(matrix.Matrix.read(folder / "spec.yaml"), folder / "runs" / "m", 1, lambda line: None, lambda: False)
    return folder / "runs"


def test_every_cell_has_a_value_or_a_reason(made):
    record = json.loads((made / "m" / "matrix.json").read_text())
    shelf, id = of_matrix(made)
    found = queries.matrix(shelf, id)
    assert (found["algorithms"], found["defences"]) == (["fedavg", "dsfl"], ["none", "median"])
    assert found["seeds"] == [3, 5]
    told = {(one["algorithm"], one["attack"], one["defence"]): one for one in found["cells"]}
    assert len(told) == len(found["cells"]) == 8
    for cell in record["cells"]:
        one = told[tuple(cell["at"])]
        if "refused" in cell:
            assert (one["state"], one["reason"], one["value"]) == ("unfit", cell["refused"], None)
            continue
        assert one["state"] == "done"
        assert one["value"]["mean"] == pytest.approx(cell["value"], abs=1e-12)
        assert one["value"]["worst"] == pytest.approx(cell["worst"], abs=1e-12)
        calm = told[cell["at"][0], 0, cell["at"][2]]["value"]["mean"]
        assert one["value"]["loss"] == pytest.approx(cell["value"] - calm, abs=1e-12), "distances: more is worse"
        means = [np.mean([row[i] for i in who]) for row, who in zip(cell["clients"], record["judged"], strict=True)]
        assert one["deviation"]["mean"] == pytest.approx(np.std(means), abs=1e-12)
        assert one["clients"] == cell["clients"]
    assert {one["state"] for one in found["cells"]} == {"done", "unfit"}


def test_cells_wait_until_they_are_run_and_appear_as_they_are(tmp_path):
    """The file is there from the beginning; a run that waits for us shows what is seen between two cells."""
    (tmp_path / "spec.yaml").write_text(SPEC.replace(", attackers: [0]", ", share: 0.3"))
    may, rounds = threading.Event(), []

    def stop():
        rounds.append(1)
        if len(rounds) == 4:  # Within the second cell.
            may.wait()
        return False

    ready = matrix.Matrix.read(tmp_path / "spec.yaml")
    thread = threading.Thread(target=matrix.run, args=(ready, tmp_path / "runs", 1, lambda line: None, stop))
    thread.start()
    try:
        until((tmp_path / "runs" / "matrix.json").exists)
        shelf, id = of_matrix(tmp_path / "runs")

        def states():
            shelf.poll()
            return [one["state"] for one in queries.matrix(shelf, id)["cells"]]

        assert states().count("unfit") == 2
        assert states().count("waiting") >= 5
        assert queries.matrix(shelf, id)["busy"]
    finally:
        may.set()
        thread.join()
    assert states().count("waiting") == 0


def test_a_cell_of_which_training_diverged_has_failed(made, tmp_path):
    record = json.loads((made / "m" / "matrix.json").read_text())
    record["cells"][0] |= {"value": None, "worst": None, "failed": "training diverged"}
    (tmp_path / "matrix.json").write_text(json.dumps(record))
    shelf, id = of_matrix(tmp_path)
    first = queries.matrix(shelf, id)["cells"][0]
    assert (first["state"], first["reason"], first["value"]) == ("failed", "training diverged", None)


def test_what_is_no_matrix_is_not_answered_as_one(made):
    shelf, id = of_matrix(made)
    with pytest.raises(Unknown, match="is a matrix, not a deployment"):
        queries.federation(shelf, id)
    with pytest.raises(Unknown, match="nothing called"):
        queries.matrix(shelf, "00000000")
