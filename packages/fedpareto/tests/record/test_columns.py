"""The values of single clients in a run's folder: what is read is what was measured, whatever happens to the file."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedpareto.config.errors import DamagedFile
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.messages import ByClient, Evaluations, Outcome, Replies, Traffic
from fedpareto.problems.convex import Convex
from fedpareto.record import reading, recording
from fedpareto.record.columns import Columns, InFile, Nowhere, in_folder
from fedpareto.record.recording import Entry, Recorder
from fedpareto.record.store import RunFolder
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec

ODD = [0.1, 1 / 3, np.pi, 1e-300, -1e300, 2.0**53, np.nan, 5e-324]
"""Numbers that single precision does not have."""


def spec_of(algorithm: str = "fedavg", **more: Any) -> Spec:
    values = {"algorithm": algorithm, "problem": "convex", "clients": 6, "rounds": 4, "seeds": 2}
    return Draft(values | {"engine": {"threads": 1, "chunk": 6}, "measure_losses": True} | more).finish()


@pytest.mark.parametrize("source", [Nowhere, "file"])
def test_every_number_is_read_as_it_was_measured(source: Any, tmp_path: Path) -> None:
    columns = Columns(Nowhere() if source is Nowhere else InFile(tmp_path / "x"), 8, ("train", "test"), 2)
    random = np.random.default_rng(0)
    sent = random.normal(size=(8, 2, 2))
    sent[:, 1, 0] = ODD
    trained, who = random.normal(size=(3, 2, 2)).astype(np.float32), np.array([1, 4, 7])
    traffic = np.array([[2**40, 3], [5, 7]])
    row = {
        "columns": {
            "sent": columns.put(sent),
            "trained": columns.put(trained.astype(float), who),
            "traffic": columns.put(traffic, np.array([0, 7])),
            "losses": columns.put(np.array(ODD), np.arange(8)),
            "participants": columns.put(np.zeros((len(who), 0)), who),
            "weights": columns.put(np.full((8, 3), 0.1)),
        }
    }
    row = json.loads(json.dumps(row))
    found = columns.evaluated(row, "sent")
    assert list(found) == ["train", "test"]
    np.testing.assert_array_equal(found["train"], sent[:, 0])
    np.testing.assert_array_equal(found["test"], sent[:, 1])
    after = columns.evaluated(row, "trained")["test"]
    np.testing.assert_array_equal(after[who], trained[:, 1])
    assert np.isnan(after[[0, 2, 3, 5, 6]]).all()
    assert columns.traffic(row).tolist() == [[2**40, 3], *[[0, 0]] * 6, [5, 7]]
    np.testing.assert_array_equal(columns.losses(row), ODD)
    assert columns.participants(row).tolist() == [1, 4, 7]
    np.testing.assert_array_equal(columns.described(row, "weights"), np.full((8, 3), 0.1))
    assert columns.losses({}) is columns.evaluated({}, "sent") is None
    assert columns.reaches(row) == len(columns.source.read_all([(0, -1)]))
    types = {name: block["type"] for name, block in row["columns"].items()}
    assert (types["sent"], types["trained"], types["traffic"]) == ("<f8", "<f4", "<i8"), "as few bytes as that takes"


def test_what_all_clients_have_alike_is_written_once() -> None:
    columns = Columns(Nowhere(), 10_000, ("test",), 2)
    block = columns.put(np.full((10_000, 2), 32))
    assert len(columns.source.read_all([(0, -1)])) == 2 * 4
    np.testing.assert_array_equal(columns.traffic({"columns": {"traffic": block}}), np.full((10_000, 2), 32))


def test_a_result_without_a_folder_can_be_sent_to_another_process() -> None:
    result = start(spec_of())
    again = pickle.loads(pickle.dumps(result))
    assert again.across_clients("trained") == result.across_clients("trained")
    assert again.share_improved() == result.share_improved()


# -- in a run's folder -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    start(spec_of(participation=0.5), folder)
    return folder


def test_a_folder_gives_what_a_run_in_memory_gives(finished: Path) -> None:
    result, record = start(spec_of(participation=0.5)), reading.load(finished)
    for row, line in zip(
        sorted(result.history, key=lambda row: (row["seed"], row["round"])), record.lines, strict=True
    ):
        for evaluation in ("sent", "trained"):
            here = result.columns.evaluated(row, evaluation) or {}
            assert here.keys() == line.measured(evaluation).keys()
            for split, points in here.items():
                np.testing.assert_array_equal(line.measured(evaluation)[split], points)
                known = points[np.isfinite(points).all(axis=1)]
                assert line.means[evaluation][split] == pytest.approx(known.mean(axis=0), abs=0)
        np.testing.assert_array_equal(line.losses, result.columns.losses(row))
        assert line.columns.traffic(line.row).sum(axis=0).tolist() == [row["bytes_down"], row["bytes_up"]]
    assert record.across_clients("trained") == result.across_clients("trained")


def test_the_file_is_as_the_documents_say(finished: Path) -> None:
    """Read by hand, without any of our code."""
    line = json.loads((finished / "metrics.jsonl").read_text().splitlines()[0])
    block, content = line["columns"]["trained"], (finished / "columns.bin").read_bytes()
    assert block["some"]
    begin = block["at"] + 4 * block["rows"]
    who = np.frombuffer(content[block["at"] : begin], "<i4")
    values = np.frombuffer(content[begin:], block["type"], count=np.prod(block["shape"])).reshape(block["shape"])
    assert (len(who), values.shape) == (3, (2, 2, 3))
    run = json.loads((finished / "run.json").read_text())
    test = run["splits"].index("test")
    expected = in_folder(finished, 6, run["splits"], 2).evaluated(line, "trained")["test"][who]
    np.testing.assert_array_equal(values[test].T, expected)


@pytest.mark.parametrize("damage", ["torn", "more"])
def test_what_was_written_after_a_checkpoint_is_cut_at_resume(damage: str, finished: Path, tmp_path: Path) -> None:
    stops = iter([False, True])
    with pytest.raises(Stopped):
        start(spec_of(participation=0.5), tmp_path / "run", stop=lambda: next(stops))
    for name, tail in (("columns.bin", b"\x01" * 37), ("metrics.jsonl", b'{"seed": 0, "round": 2, "columns": {"sent"')):
        with (tmp_path / "run" / name).open("ab") as file:
            file.write(tail if damage == "torn" or name == "columns.bin" else b'{"seed":0,"round":2}\n')
    assert list(reading.load(tmp_path / "run").common_rounds) == [0, 1]
    resume(tmp_path / "run")
    for name in ("columns.bin", "solutions.json", "models.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / name).read_bytes()


def test_a_row_whose_values_were_lost_is_no_row_of_a_run_under_way_and_damage_of_a_finished_one(tmp_path: Path) -> None:
    start(spec_of(), tmp_path / "run")
    path = tmp_path / "run" / "columns.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedFile, match=r"columns\.bin is damaged: \d+ bytes are left of \d+"):
        reading.load(tmp_path / "run")
    status = tmp_path / "run" / "status.json"
    status.write_text(status.read_text().replace("finished", "stopped"))
    assert list(reading.load(tmp_path / "run").common_rounds) == [0, 1, 2, 3]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DamagedFile, match=r"columns\.bin is damaged: \d+ bytes are left of at least \d+"):
        resume(tmp_path / "run")


# -- many clients ----------------------------------------------------------------------------------------------------


def entry_of(recorder: Recorder, n: int) -> Entry:
    """A round of n clients, recorded."""
    clients, entry = np.arange(n), Entry({"seed": 0, "round": 0})
    values = ByClient(clients, torch.rand(n, 2, 2, dtype=torch.float64))
    halves = [clients[: n // 2].tolist(), clients[n // 2 :].tolist()]
    told = {"weights": [1 / n] * n, "clusters": halves, "similarity": torch.rand(n, n), "objective": 0.5}
    recorder.describe(entry, told)
    cost = Traffic(clients, np.stack([np.full(n, 8), clients]))
    recorder.note(entry, Outcome(Replies(clients), evaluations=Evaluations(values, values), cost=cost))
    recorder.note_clients(entry, {"left_out": clients[1:].tolist()})
    recorder.record([entry], [])
    return entry


def test_rows_in_a_folder_are_not_kept_in_memory_too(tmp_path: Path) -> None:
    recorder = Recorder(Convex(), np.arange(3), ("train", "test"), RunFolder(tmp_path))
    entry_of(recorder, 3)
    (row,), (again,) = recorder.history, recorder.history
    assert row == again == json.loads((tmp_path / "metrics.jsonl").read_text())
    assert row is not again, "read anew: a run must not grow by what it has written"


@pytest.mark.parametrize("n", [64, 65, 500])
def test_a_row_does_not_grow_with_the_clients_and_what_they_have_is_in_columns(n: int) -> None:
    recorder = Recorder(Convex(), np.arange(n), ("train", "test"))
    entry_of(recorder, n)
    (row,), read = recorder.history, recorder.columns
    np.testing.assert_array_equal(read.described(row, "weights"), np.full(n, 1 / n))
    assert len(read.described(row, "left_out")) == n - 1
    assert read.described(row, "objective") == 0.5
    assert read.described(row, "unheard of") is None
    if n <= recording.MOST_IN_A_ROW:
        assert {"weights", "clusters", "similarity", "left_out"} <= row.keys()
        return
    assert len(json.dumps(row)) < 2500
    assert row["omitted"] == ["similarity"], "it has a number for every two clients"
    assert read.described(row, "clusters").tolist() == [0] * (n // 2) + [1] * (n - n // 2)
    assert read.traffic(row)[:, 1].tolist() == list(range(n))


def test_clusters_of_many_clients_are_read_as_those_of_few(tmp_path: Path) -> None:
    start(spec_of("fedpref", clients=70, rounds=1, seeds=1, measure_losses=False), tmp_path / "run")
    (_, line) = reading.load(tmp_path / "run").of_seed(0)
    assert "clusters" not in line.row
    assert sorted(client for cluster in line.clusters for client in cluster) == list(range(70))


def test_no_statement_of_the_record_is_executed_once_for_each_client() -> None:
    def steps(n: int) -> int:
        counted, recorder = 0, Recorder(Convex(), np.arange(n), ("train", "test"))

        def trace(frame: Any, event: str, argument: Any) -> Any:
            nonlocal counted
            own = frame.f_code.co_filename.endswith(("recording.py", "columns.py", "messages.py"))
            counted += own and event == "line"
            return trace if own else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            entry_of(recorder, n)
        finally:
            sys.settrace(before)
        return counted

    assert steps(200) == steps(2000)
