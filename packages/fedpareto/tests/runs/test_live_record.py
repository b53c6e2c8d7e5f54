"""What a folder tells while its run is under way: who wants what, when it was, and which clients are compared."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedpareto.config.errors import DamagedFile
from fedpareto.config.interrupts import Stopped
from fedpareto.record import reading
from fedpareto.record.run_record import Record
from fedpareto.report import figures
from fedpareto.runs.loop import Experiment
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from folders import rows, status, without_times

MANY = 70
"""Clients, more than a row of the record names."""


def spec_of(algorithm: str = "fedpref", clients: int = 5, **more: Any) -> Spec:
    values = {"algorithm": algorithm, "problem": "convex", "clients": clients, "rounds": 3, "seeds": 2}
    return Draft(values | {"engine": {"threads": 1, "chunk": 64}} | more).finish()


def stopped(spec: Spec, folder: Path) -> None:
    stops = iter([False, True])
    with pytest.raises(Stopped):
        start(spec, folder, stop=lambda: next(stops))


@pytest.mark.parametrize("clients", [5, MANY])
def test_preferences_are_known_from_the_first_round_on_as_at_the_end(clients: int, tmp_path: Path) -> None:
    spec, live = spec_of(clients=clients), list[Record]()
    result = start(spec, tmp_path / "run", lambda now: live.append(reading.load(tmp_path / "run")))
    end = reading.load(tmp_path / "run")
    for seed, solutions in zip(spec.seeds, result.solutions, strict=True):
        for record in (live[0], live[-1], end):
            np.testing.assert_array_equal(record.preferences(seed), solutions.preferences)
            np.testing.assert_array_equal(record.solution(seed).preferences, solutions.preferences)
        assert live[-1].own_utilities(seed).shape == (clients,)
        assert {"own_utility", "regret"} <= live[-1].solution(seed).indicators.keys()
    assert [row["round"] for row in rows(tmp_path / "run") if "preferences" in row["columns"]] == [0, 0]


def test_the_indicators_of_a_run_under_way_are_computed_as_at_its_end(tmp_path: Path) -> None:
    """Without the file that its end writes, the last round is what there is."""
    start(spec_of(), tmp_path / "run")
    end = reading.load(tmp_path / "run")
    (tmp_path / "run" / "solutions.json").unlink()
    (tmp_path / "run" / "status.json").write_text('{"status": "running", "round": 3}')
    live = reading.load(tmp_path / "run")
    for seed in (0, 1):
        assert live.solution(seed).indicators == pytest.approx(end.solution(seed).indicators)
        np.testing.assert_array_equal(live.own_utilities(seed), end.own_utilities(seed))


def test_clients_that_diverged_have_no_utility_and_the_others_keep_theirs(tmp_path: Path) -> None:
    stopped(spec_of(), tmp_path / "run")
    record = reading.load(tmp_path / "run")
    whole = record.own_utilities(0)
    points = record.solution(0).objectives[record.held_out].copy()
    points[2] = np.nan
    found = record._utilities(points, record.preferences(0))
    assert np.isnan(found[2])
    np.testing.assert_array_equal(np.delete(found, 2), np.delete(whole, 2))


def test_a_folder_says_when_and_by_whom(tmp_path: Path) -> None:
    stopped(spec_of(), tmp_path / "run")
    run, before = tmp_path / "run", reading.load(tmp_path / "run")
    began = datetime.fromisoformat(before.began)
    assert began.utcoffset().total_seconds() == 0
    times = [line.at for line in before.of_seed(0)]
    assert times == sorted(times)
    assert times[0] >= began.timestamp()
    assert before.status.process is None, "it is over"
    assert resume(run) is not None
    assert reading.load(run).began == before.began, "a resumed run began when it began"
    assert "process" not in status(run)


def test_a_folder_without_all_of_this_is_read_and_resumed(tmp_path: Path) -> None:
    """As versions before wrote it, in the same format."""
    run = tmp_path / "run"
    stopped(spec_of(), run)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["at"]
        line["columns"].pop("preferences", None)
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    padding = (run / "metrics.jsonl").stat().st_size - len(text)  # A checkpoint knows how long the file was.
    (run / "metrics.jsonl").write_text(text[:-1] + " " * padding + "\n")
    about = json.loads((run / "run.json").read_text())
    del about["began"]
    (run / "run.json").write_text(json.dumps(about))
    record = reading.load(run)
    assert (record.began, record.preferences(0), record.solution(0).preferences) == ("", None, None)
    assert np.isnan(record.lines[0].at)
    assert resume(run) is not None
    start(spec_of(), tmp_path / "undisturbed")
    undisturbed = rows(tmp_path / "undisturbed")
    for line in undisturbed:
        line["columns"].pop("preferences", None)
    assert rows(run) == undisturbed
    assert (run / "models.safetensors").read_bytes() == (tmp_path / "undisturbed" / "models.safetensors").read_bytes()
    np.testing.assert_array_equal(reading.load(run).preferences(1), spec_of().preferences_of(1))


@pytest.mark.parametrize("algorithm", ["fedpref", "cfl"])
def test_of_many_clients_the_same_sample_is_compared_in_every_round(algorithm: str, tmp_path: Path) -> None:
    seen: dict[tuple[int, int], np.ndarray] = {}

    def watch(experiment: Experiment, run: int) -> dict[str, Any]:
        """All similarities, as the server has them."""
        state: Any = experiment.states[run]
        whole, who = np.eye(MANY), getattr(state, "compared", np.arange(MANY))
        if len(who):
            whole[np.ix_(who, who)] = state.similarity.numpy()
        seen[experiment.spec.seeds[run], state.round] = whole
        return {}

    start(spec_of(algorithm, MANY, participation=0.5), tmp_path / "run", observe=watch)
    record, compared = reading.load(tmp_path / "run"), []
    for seed in (0, 1):
        who = record.similarity_of(seed)
        compared.append(who)
        assert len(set(who)) == 64
        assert {line.similarity_of for line in record.of_seed(seed)} == {who}
        for done, found in record.similarity(seed).items():
            np.testing.assert_allclose(found, seen[seed, done][np.ix_(who, who)], atol=5e-5)
    assert compared[0] != compared[1], "each seed has its own"
    figure = figures.similarity_matrices(record, 0)
    assert f"64 of {MANY} clients" in figure.get_suptitle()
    last = figure.axes[-2].images[0].get_array()
    assert last.shape == (64, 64)
    assert sorted(np.ravel(last)) == pytest.approx(sorted(np.ravel(record.similarity(0)[3])))


def test_a_sample_that_does_not_fit_its_matrix_is_damage(tmp_path: Path) -> None:
    start(spec_of(), tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for wrong in ([0, 1], [4, 3, 2, 1, 0], [0, 1, 2, 3, 9], ["a"] * 5):
        path.write_text("".join(json.dumps(line | {"similarity_of": wrong}) + "\n" for line in lines))
        with pytest.raises(DamagedFile, match="similarity_of"):
            reading.load(tmp_path / "run")


def test_a_row_is_the_same_in_every_run_but_for_its_times(tmp_path: Path) -> None:
    first, second = (start(spec_of(), tmp_path / name).history for name in ("one", "two"))
    assert [without_times(row) for row in first] == [without_times(row) for row in second]
    assert set(first[0]) - set(without_times(first[0])) == {"seconds", "at"}
