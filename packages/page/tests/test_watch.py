"""The shelf: what is found below a folder, and what is told of it when it changes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedpareto.config.files import Lock
from fedpareto_page import queries
from fedpareto_page.watch import Shelf, Unknown
from made_runs import MadeRun

HERE = str(Path(__file__).parent)


def told(events, name="changed"):
    return [event for event in events if event["event"] == name]


def names(shelf):
    return [entry["name"] for entry in queries.runs(shelf)["runs"]]


def settle(shelf):
    """Reads until nothing is left."""
    events = shelf.poll()
    while shelf.reading:
        events += shelf.poll()
    return events


def test_runs_are_found_wherever_they_are_and_tell_when_they_come_grow_and_go(tmp_path):
    shelf = Shelf([tmp_path])
    assert shelf.poll() == []
    run = MadeRun(tmp_path / "a" / "b", clients=3)
    run.go_on(2)
    events = settle(shelf)
    (changed,) = told(events)
    assert told(events, "shelf")
    assert (changed["lines"], changed["epoch"], changed["status"]["name"]) == (2, 0, "running")
    assert shelf.poll() == []
    MadeRun(tmp_path / "a" / "b" / "inside", clients=3).go_on()
    MadeRun(tmp_path / "a" / "b" / "c" / "d" / "too" / "deep", clients=3).go_on()
    assert told(settle(shelf), "shelf")
    assert names(shelf) == ["a/b", "a/b/inside"]
    run.go_on()
    assert [event["lines"] for event in told(shelf.poll())] == [3]
    run.cut(1)
    assert [(event["lines"], event["epoch"]) for event in told(shelf.poll())] == [(1, 1)]
    shutil.rmtree(tmp_path / "a" / "b" / "inside")
    assert told(shelf.poll(), "shelf")
    assert names(shelf) == ["a/b"]
    with pytest.raises(Unknown, match="there is no run"):
        shelf.run("0" * 8)


def test_ids_are_of_names_and_differ_where_folders_do(tmp_path):
    for place in ("one/runs/x", "two/runs/x", "two/runs/y"):
        MadeRun(tmp_path / place, clients=3).go_on()
    roots = [tmp_path / "one" / "runs", tmp_path / "two" / "runs"]
    shelf = Shelf(roots)
    settle(shelf)
    assert len(shelf.runs) == 3
    alone = Shelf([tmp_path / "two" / "runs" / "x"])
    settle(alone)
    assert names(alone) == ["x"], "a run that was named itself"
    again = Shelf(roots[1:])
    settle(again)
    assert names(again) == ["x", "y"]
    before = set(again.runs)
    settle(again)
    assert set(again.runs) == before
    assert not any(str(tmp_path) in id for id in shelf.runs)


def test_a_damaged_folder_is_one_entry_with_its_error_and_the_rest_works(tmp_path):
    for name in ("sound", "line", "run", "old", "status", "values"):
        MadeRun(tmp_path / name, clients=3, rounds=2).finish()
    (tmp_path / "line" / "metrics.jsonl").write_text("{}}\n", encoding="utf-8")
    (tmp_path / "run" / "run.json").write_text("[", encoding="utf-8")
    (tmp_path / "old" / "run.json").write_text('{"format": 1}', encoding="utf-8")
    (tmp_path / "status" / "status.json").write_text("no", encoding="utf-8")
    (tmp_path / "values" / "columns.bin").write_bytes(b"")
    shelf = Shelf([tmp_path])
    settle(shelf)
    entries = {entry["name"]: entry for entry in queries.runs(shelf)["runs"]}
    assert {name for name, entry in entries.items() if entry["error"]} == set(entries) - {"sound"}
    for name in ("line", "run", "old", "status", "values"):
        assert set(entries[name]) == {"id", "name", "error"}
        assert "\n" not in entries[name]["error"]
    assert "written by an older fedpareto" in entries["old"]["error"]
    assert entries["sound"]["headline"][0] == "hypervolume"
    assert len(queries.lines(shelf, entries["sound"]["id"])) > 100


def test_a_run_that_is_at_work_is_busy_and_one_that_only_begins_has_its_place(tmp_path):
    run = MadeRun(tmp_path / "run", clients=3)
    run.go_on()
    (tmp_path / "begins").mkdir()
    (tmp_path / "begins" / "spec.yaml").write_text("algorithm:\n  name: fedavg\nseeds: [0]\n", encoding="utf-8")
    shelf, locks = Shelf([tmp_path]), [Lock(tmp_path / name / ".lock") for name in ("run", "begins")]
    assert all(lock.take() for lock in locks)
    settle(shelf)
    begins, runs = queries.runs(shelf)["runs"]
    assert (begins["status"]["name"], begins["algorithm"], begins["error"]) == ("starting", "fedavg", None)
    assert runs["status"]["busy"]
    assert runs["status"]["process"] == {"pid": 1, "host": "here"}
    assert set(begins) == set(runs)
    assert shelf.pause < 1
    for lock in locks:
        lock.release()
    assert [event["status"]["busy"] for event in told(shelf.poll())] == [False, False]
    assert shelf.pause == 1
    assert "no run.json" in queries.runs(shelf)["runs"][0]["error"]


def test_what_is_no_run_is_found_too(tmp_path):
    for place in ("federation/run", "federation/node-0"):
        MadeRun(tmp_path / place, clients=2, private=True).go_on()
    (tmp_path / "federation" / "deployment.json").write_text('{"name": "banks"}', encoding="utf-8")
    (tmp_path / "federation" / "node-0" / "node.json").write_text("{}", encoding="utf-8")
    MadeRun(tmp_path / "flight", clients=2).go_on()
    for folder, name, content in (
        (
            "m",
            "matrix.json",
            {"labels": {"algorithm": ["a"], "attack": ["b"], "defence": ["c"]}, "cells": [{"at": [0] * 3}]},
        ),
        ("s", "sweep.json", {"runs": [{"name": "x", "status": "waiting"}]}),
        ("broken", "matrix.json", {"labels": []}),
        ("flight", "mission.json", {}),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text(json.dumps(content), encoding="utf-8")
    shelf = Shelf([tmp_path])
    settle(shelf)
    answer = queries.runs(shelf)
    found = {(one["name"], one["kind"]): one for one in answer["others"]}
    assert {key: one["status"] for key, one in found.items()} == {
        ("m", "matrix"): "finished",
        ("s", "sweep"): "0 of 1 runs",
        ("broken", "matrix"): "damaged",
        ("flight", "mission"): "",
        ("federation", "deployment"): "not started",
    }
    assert found["broken", "matrix"]["error"]
    entries = {entry["name"]: entry for entry in answer["runs"]}
    assert set(entries) == {"federation/run", "flight"}, "a node's own folder is no run"
    assert entries["federation/run"]["deployment"] == found["federation", "deployment"]["id"]
    assert entries["federation/run"]["private"]
    (tmp_path / "s" / "sweep.json").write_text('{"runs": []}', encoding="utf-8")
    assert told(shelf.poll(), "other") == [{"event": "other", "id": found["s", "sweep"]["id"]}]


def test_a_large_folder_is_on_the_shelf_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("fedpareto_page.watch.AT_ONCE", 3000)
    run = MadeRun(tmp_path / "run", clients=3)
    run.go_on(15)
    MadeRun(tmp_path / "second", clients=3).go_on(15)
    shelf = Shelf([tmp_path])
    shelf.poll()
    first, second = queries.runs(shelf)["runs"]
    assert 0 < first["lines"] < 15
    assert second["lines"] == 0
    assert second["headline"][1] > 0, "of its last line"
    reading = shelf.reading
    assert 0 < reading["done"] < reading["of"]
    assert shelf.pause == 0
    settle(shelf)
    assert shelf.reading is None
    assert [entry["lines"] for entry in queries.runs(shelf)["runs"]] == [15, 15]


LOOKING = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(arguments[0]) if event in ("open", "os.scandir") else None)
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from fedpareto_page import queries, watch
watch.FRESH = 0
shelf = watch.Shelf([Path(sys.argv[1])])
shelf.poll()
for id in shelf.runs:
    queries.about(shelf, id), queries.lines(shelf, id), queries.film(shelf, id, 0)
    queries.values(shelf, id, "sent", "test")
queries.compare(shelf, list(shelf.runs))
queries.runs(shelf)
opened.clear()
for _ in range(10):
    assert shelf.poll() == []
queries.runs(shelf)
assert not opened, opened
print([name for name in ("torch", "matplotlib", "pandas", "fastapi") if name in sys.modules])
"""


def test_looking_at_what_did_not_change_opens_nothing_and_answering_imports_nothing_heavy(tmp_path):
    for name in ("fedpref", "local"):
        MadeRun(tmp_path / name, name, clients=3, rounds=3).finish()
    done = subprocess.run(
        [sys.executable, "-c", LOOKING, str(tmp_path), HERE], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
