from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.moo.dominance import front
from fedpareto.moo.indicators import hypervolume
from fedpareto.record.columns import in_folder
from fedpareto.record.reading import load
from fedpareto.record.run_record import distinguish
from fedpareto.record.store import RunFolder
from fedpareto.report.likeness import comparable


def rewrite(path: Path, change) -> None:
    """Apply `change` to the list of lines of a file of JSON lines."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))


def edit(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_run_reads_back_as_it_was_written(write_run):
    record = load(write_run("a", "fedpref", m=3, clients=6, rounds=4, clustered=True, known=True))
    assert (record.algorithm, record.problem, record.label) == ("fedpref", "synthetic", "fedpref")
    assert (record.seeds, record.started, record.clients, record.rounds) == ((0, 1, 2), (0, 1, 2), 6, 4)
    assert record.maximise == [True, False, False]
    assert record.held_out == "test"
    assert record.known_front is not None
    assert record.known_front.shape == (21, 3)
    assert record.versions["torch"] == "2.6.0"
    assert record.spec.startswith("algorithm: fedpref")
    assert record.finished
    assert [points.shape for points in record.points()] == [(6, 3)] * 3


def test_hypervolume_over_rounds_is_that_of_the_points_that_were_sent(write_run):
    record = load(write_run("a", rounds=5))
    assert record.hypervolume.shape == (3, 6)
    reference = [objective.reference for objective in record.objectives]
    expected = hypervolume(record.of_seed(1)[2].sent["test"], reference, record.maximise)
    assert record.hypervolume[1, 2] == pytest.approx(expected)
    assert np.isnan(record.trained_hypervolume[:, -1]).all()
    assert np.isfinite(record.trained_hypervolume[:, :-1]).all()


def test_a_client_without_a_trained_model_is_a_row_of_nan(write_run):
    line = load(write_run("a", rounds=2)).of_seed(0)[0]
    assert np.isnan(line.trained["test"][0]).all()
    assert np.isfinite(line.trained["test"][1:]).all()


def test_indicators_are_mean_and_population_deviation(write_run):
    folder = write_run("a", known=True)
    values = [entry["indicators"]["igd"] for entry in json.loads((folder / "solutions.json").read_text())]
    mean, deviation = load(folder).indicators["igd"]
    assert mean == pytest.approx(np.mean(values))
    assert deviation == pytest.approx(np.std(values))


def test_an_unfinished_run_is_described_by_its_last_round(write_run):
    whole = load(write_run("a", "fedpref", rounds=8, known=True))
    half = load(write_run("b", "fedpref", rounds=8, reached=5, status="running", known=True))
    assert not half.finished
    assert half.solutions[0].round == 5
    assert half.solutions[0].preferences is None
    np.testing.assert_array_equal(half.points()[1], whole.of_seed(1)[5].sent["test"])
    assert half.indicator("hypervolume")[1] == pytest.approx(half.hypervolume[1, -1])
    assert np.isfinite(half.indicator("igd")).all()
    assert np.isnan(half.indicator("expected_utility")).all()


def test_hypervolume_goes_as_far_as_all_started_seeds(write_run):
    folder = write_run("a", rounds=8, status="stopped")
    (folder / "solutions.json").unlink(missing_ok=True)
    rewrite(folder / "metrics.jsonl", lambda lines: [x for x in lines if x["seed"] == 0 or x["round"] < 3])
    rewrite(folder / "metrics.jsonl", lambda lines: [x for x in lines if x["seed"] != 2])
    record = load(folder)
    assert record.started == (0, 1)
    assert record.hypervolume.shape == (2, 3)
    assert [solution.round for solution in record.solutions] == [8, 2]


def test_a_last_line_cut_short_is_ignored(write_run):
    folder = write_run("a", rounds=4, seeds=(0,), status="running")
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert list(load(folder).common_rounds) == [0, 1, 2, 3]


def test_a_last_line_without_its_line_break_counts_when_it_is_whole(write_run):
    folder = write_run("a", rounds=4, seeds=(0,))
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert list(load(folder).common_rounds) == [0, 1, 2, 3, 4]


def test_a_broken_line_elsewhere_is_damage_with_file_and_line(write_run):
    folder = write_run("a", rounds=4)
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2][:30], *lines[3:]]) + "\n")
    with pytest.raises(DamagedFile, match=r"metrics\.jsonl, line 3"):
        load(folder)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("sent", {"test": [1.0]}, "expected 2 numbers"),
        ("sent", {"test": [1.0, "x"]}, "'x', expected a number"),
        ("sent", {"exam": [1.0, 2.0]}, "unknown split 'exam'"),
        ("columns", {}, "'sent' has no values of clients"),
        ("columns", [], "'columns' is not an object"),
        ("columns", {"sent": {"at": 0, "type": "O", "shape": [1], "rows": 1}}, "a block is not where and what"),
        ("columns", {"sent": {"at": 0, "type": "<f8", "shape": [2, 2, 3], "rows": 10}}, "3 values of 10 clients"),
        ("columns", {"sent": {"at": 0, "type": "<f8", "shape": [2, 2, 3], "rows": 3}}, "3 clients; there are 10"),
        (
            "columns",
            {"sent": {"at": 0, "type": "<f8", "shape": [2, 10], "rows": 10}},
            r"has \(2, 2\) values, not \(2,\)",
        ),
        ("columns", {"sent": {"at": 9**9, "type": "<f8", "shape": [2, 2, 10], "rows": 10}}, "bytes are left of"),
        ("seed", "0", "'seed' is '0'"),
        ("round", True, "'round' is True"),
        ("hypervolume", "big", "'hypervolume' is 'big'"),
        ("clusters", [0, 1], "whole numbers"),
        ("similarity", [[1.0, 0.5]], "expected rows of 1"),
    ],
)
def test_a_line_of_the_wrong_shape_is_damage(write_run, key, value, words):
    folder = write_run("a", rounds=2)
    rewrite(folder / "metrics.jsonl", lambda lines: [lines[0], lines[1] | {key: value}, *lines[2:]])
    with pytest.raises(DamagedFile, match=words):
        load(folder)


def test_a_resumed_run_may_write_a_round_twice_and_the_later_holds(write_run):
    folder = write_run("a", rounds=3)
    rewrite(folder / "metrics.jsonl", lambda lines: [*lines, lines[1] | {"hypervolume": 42.0}])
    record = load(folder)
    assert record.hypervolume.shape == (3, 4)
    assert record.hypervolume[0, 1] == 42.0


def test_numbers_that_are_not_finite_are_kept_apart(write_run):
    folder = write_run("a", rounds=2, seeds=(0,))
    (folder / "solutions.json").unlink()

    def diverge(lines):
        columns = in_folder(folder, 10, ("train", "test"), 2)
        values = np.stack([columns.evaluated(lines[-1], "sent")[split] for split in ("train", "test")], axis=1)
        values[0, 1], values[1, 1] = (np.nan, 0.1), (np.nan, np.inf)
        return [*lines[:-1], lines[-1] | {"columns": {"sent": columns.put(values)}}]

    rewrite(folder / "metrics.jsonl", diverge)
    record = load(folder)
    assert len(record.points()[0]) == 10
    assert len(record.pooled()) == 8
    np.testing.assert_array_equal(record.front(), front(record.pooled(), record.maximise))


def test_what_is_not_a_run_folder_says_so(tmp_path, write_run):
    with pytest.raises(UserError, match="no such folder"):
        load(tmp_path / "nowhere")
    write_run("runs/a")
    with pytest.raises(UserError, match=r"not a run folder.*did you mean .*runs/a"):
        load(tmp_path / "runs")


def test_a_newer_format_asks_for_an_update(write_run):
    with pytest.raises(UserError, match=r"format 3.*update fedpareto"):
        load(write_run("a", extra={"format": 3}))


def test_a_run_of_version_0_1_is_refused_with_what_to_do(write_run):
    folder = write_run("a", extra={"format": 1})
    again = rf"older fedpareto \(format 1, .*run it again with 'fedpareto run --spec {folder}/spec.yaml --out NEW'"
    with pytest.raises(UserError, match=again) as refused:
        load(folder)
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=again):
        RunFolder.open(folder)


def test_a_run_without_rounds_says_so(write_run):
    folder = write_run("a", status="running")
    (folder / "metrics.jsonl").write_text("")
    with pytest.raises(UserError, match=r"no rounds yet \(status: running\)"):
        load(folder)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match="no rounds yet"):
        load(folder)


def test_a_finished_run_without_rounds_is_damaged(write_run):
    folder = write_run("a")
    whole = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(whole[:20])
    with pytest.raises(DamagedFile, match=r"metrics.jsonl is damaged: the run is finished, but it holds no round"):
        load(folder)


def test_a_damaged_run_json_is_named(write_run):
    folder = write_run("a")
    edit(folder / "run.json", clients="many")
    with pytest.raises(DamagedFile, match=r"run\.json: 'clients' is 'many'"):
        load(folder)
    (folder / "run.json").write_text("{")
    with pytest.raises(DamagedFile, match=r"run\.json is damaged: not valid JSON"):
        load(folder)


def test_a_known_front_must_be_finite(write_run):
    folder = write_run("a", known=True)
    edit(folder / "run.json", known_front=[[0.1, None], [0.2, 0.3]])
    with pytest.raises(DamagedFile, match="'known_front' holds values that are not finite"):
        load(folder)


@pytest.mark.parametrize("splits", [[], None, "test"])
def test_the_splits_must_have_names(write_run, splits):
    with pytest.raises(DamagedFile, match="'splits': expected a list of names"):
        load(write_run("a", extra={"splits": splits}))


def test_no_clusters_may_be_written_as_an_empty_list(write_run):
    folder = write_run("a", rounds=2)
    rewrite(folder / "metrics.jsonl", lambda lines: [x | {"clusters": [], "similarity": []} for x in lines])
    record = load(folder)
    assert record.clusters(0) == {}
    assert record.similarity(0) == {}


def test_a_run_that_never_wrote_a_status_is_unknown(write_run):
    folder = write_run("a")
    (folder / "status.json").unlink()
    assert load(folder).status.name == "unknown"


def test_results_on_train_when_there_is_no_other_split(write_run):
    record = load(write_run("a", splits=("train",)))
    assert (record.held_out, record.measured) == ("train", "on the train split")


def test_results_by_return_where_clients_have_no_rows(write_run):
    record = load(write_run("a", splits=("discounted", "return")))
    assert (record.held_out, record.measured) == ("return", "by return")


def test_clusters_and_similarity_by_round(write_run):
    record = load(write_run("a", "fedpref", sizes=(2, 2), rounds=6, clustered=True))
    assert record.clusters(1)[0] == ((0, 1, 2, 3),)
    assert record.clusters(1)[6] == ((0, 1), (2, 3))
    assert record.similarity(1)[3].shape == (4, 4)
    assert load(write_run("b")).clusters(0) == {}
    with pytest.raises(UserError, match="nothing of seed 9; it has 0, 1, 2"):
        record.clusters(9)


def test_words_of_strangers_lose_their_control_characters(write_run):
    reason = "refused: \x1b[2Jgone\u202e\nnext"
    folder = write_run("a", events=[{"seed": 0, "round": 1, "client": 2, "reason": reason}])
    text = load(folder).events[0].reason
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\n" not in text


def test_labels_differ_by_folder_only_where_they_must(write_run):
    records = [
        load(write_run(name, algorithm))
        for name, algorithm in [("a", "fedavg"), ("b", "fedavg"), ("c", "local"), ("x/a", "fedavg")]
    ]
    labels = [record.label for record in distinguish(records)]
    assert labels == ["fedavg (a)", "fedavg (b)", "local", "fedavg (a) #2"]
    assert [record.label for record in distinguish(distinguish(records))] == labels


def test_runs_on_different_problems_cannot_be_compared(write_run):
    a, b = load(write_run("a")), load(write_run("b", problem="convex"))
    with pytest.raises(UserError, match=r"different problems.*a has 'synthetic'.*b has 'convex'"):
        comparable([a, b])
    with pytest.raises(UserError, match=r"different objectives.*accuracy.*log loss"):
        comparable([a, load(write_run("c", m=3))])
    with pytest.raises(UserError, match="different splits"):
        comparable([a, load(write_run("d", splits=("train",)))])
    with pytest.raises(UserError, match="nothing to compare"):
        comparable([])


@pytest.mark.parametrize("module", ["record.run_record", "record.reading", "report.comparison", "report.terminal"])
def test_without_pictures_nothing_slow_is_loaded(module):
    heavy = "('matplotlib', 'rich', 'torch', 'fedpareto.contract', 'fedpareto.algorithms')"
    code = f"import sys, fedpareto.{module}; print([m for m in {heavy} if m in sys.modules])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
