"""A matrix of attacks and defences: every cell is the run it says it is, none vanishes, finished ones are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedpareto
from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.record.store import RunFolder
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
from fedpareto_audit import matrix as matrices
from fedpareto_audit.matrix import Matrix

TEXT = """
problem: convex
clients: 8
rounds: 2
seeds: 2
preferences: 0.5,0.5
learner: {steps: 2}
matrix:
  algorithm: [fedavg, dsfl]
  attack:
    - none
    - {kind: sign-flip, clients: [1, 2]}
    - {kind: gaussian, clients: [2, 5], strength: 1e25}
  defence: [none, median]
"""


def written(folder: Path, text: str = TEXT) -> Path:
    path = folder / "matrix.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def silent(line: str) -> None:
    """Nobody reads it."""


def never() -> bool:
    return False


def finished(folder: Path, text: str = TEXT) -> dict[str, Any]:
    return matrices.run(Matrix.read(written(folder, text)), folder / "out", 1, silent, never)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("matrix")
    return folder, finished(folder)


def cell_at(record: dict[str, Any], *at: int) -> dict[str, Any]:
    (found,) = [cell for cell in record["cells"] if cell["at"] == list(at)]
    return dict(found)


def test_a_cells_value_is_the_mean_of_clients_that_never_attack_in_the_run_it_names(
    done: tuple[Path, dict[str, Any]],
) -> None:
    _, record = done
    result = fedpareto.run(
        "convex",
        "fedavg",
        clients=8,
        rounds=2,
        seeds=2,
        preferences="0.5,0.5",
        learner={"steps": 2},
        engine={"threads": 1, "chunk": 16},
        attack={"kind": "sign-flip", "clients": [1, 2]},
        defence={"rule": "median"},
    )
    honest = [0, 3, 4, 6, 7]
    assert record["judged"] == [honest, honest]
    values = np.array([solutions.points[honest, 0] for solutions in result.solutions])
    cell = cell_at(record, 0, 1, 1)
    assert cell["value"] == pytest.approx(values.mean(), abs=1e-5)
    assert cell["worst"] == pytest.approx(values.max(axis=1).mean(), abs=1e-5), "distances are to be small"


def test_every_cell_has_a_value_a_reason_or_a_failure(done: tuple[Path, dict[str, Any]]) -> None:
    _, record = done
    assert record["labels"] == {
        "algorithm": ["fedavg", "dsfl"],
        "attack": ["none", "sign-flip", "gaussian"],
        "defence": ["none", "median"],
    }
    assert sorted(cell["at"] for cell in record["cells"]) == [
        [row, column, panel] for row in range(2) for column in range(3) for panel in range(2)
    ]
    values, refused = matrices.values_of(record)
    assert values.shape == (2, 2, 3)
    assert refused.tolist() == [[[False] * 3] * 2, [[False] * 3, [True] * 3]]
    assert "median does not fit dsfl" in cell_at(record, 1, 0, 1)["refused"]
    assert "training diverged" in cell_at(record, 0, 2, 0)["failed"]
    assert np.isnan(values[0, 0, 2]), "what came to nothing is no number"
    assert values[1, 0, 2] == pytest.approx(values[1, 0, 0], rel=0.2), "and the median saves it"
    assert values[0, 0, 1] > values[0, 0, 0], "a flipped sign costs something"


def test_both_pictures_and_the_record_are_written(done: tuple[Path, dict[str, Any]]) -> None:
    folder, record = done
    assert (folder / "out" / "matrix.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "out" / "matrix.pdf").read_bytes().startswith(b"%PDF")
    assert json.loads((folder / "out" / "matrix.json").read_text(encoding="utf-8")) == record


@pytest.mark.takes_long
def test_a_stopped_matrix_goes_on_with_what_is_missing(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter([False] * 4 + [True] * 100)
    with pytest.raises(Stopped):
        matrices.run(Matrix.read(written(tmp_path)), tmp_path / "out", 1, silent, lambda: next(asked))
    kept = json.loads((tmp_path / "out" / "matrix.json").read_text(encoding="utf-8"))["cells"]
    assert 4 <= len(kept) < 12
    runs: list[Any] = []
    measure = matrices._measure

    def counted(out: Path, values: dict[str, Any], stop: Callable[[], bool]) -> dict[str, Any]:
        runs.append(values)
        return measure(out, values, stop)

    monkeypatch.setattr(matrices, "_measure", counted)
    lines: list[str] = []
    record = matrices.run(Matrix.read(written(tmp_path)), tmp_path / "out", 1, lines.append, never)
    assert len(runs) == 12 - len(kept)
    assert lines[0] == f"12 cells: {len(kept) - 3} done before, {len(runs)} to run, 3 that do not fit together"
    assert without_times(record) == without_times(done[1])
    runs.clear()
    assert finished(tmp_path) == record
    assert not runs


@pytest.mark.parametrize("name", ["matrix.yaml", "matrix-selfish.yaml", "matrix-poisoning.yaml"])
def test_the_examples_are_matrices(name: str) -> None:
    examples = Path(__file__).parents[3] / "examples"
    assert len(Matrix.read(examples / name).cells) > 50


def test_selfish_clients_and_a_server_that_remembers_are_cells_like_others(tmp_path: Path) -> None:
    start = TEXT.index("  attack:")
    text = TEXT[:start].replace("convex", "{name: synthetic, rows: 400, hidden: [4]}").replace("seeds: 2", "")
    kinds = "[free-rider, {kind: seldom, strength: 2}, low-quality]"
    record = finished(tmp_path, f"{text}  attack: {kinds}\n  defence: [confidence]\n")
    found = [cell_at(record, row, column, 0) for row in range(2) for column in range(3)]
    assert [cell.get("value") is not None for cell in found] == [True] * 3 + [False] * 3, "dsfl has no server"


def without_times(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: value for key, value in cell.items() if key != "seconds"} for cell in record["cells"]]


@pytest.mark.takes_long
def test_another_entry_keeps_the_finished_cells_and_another_base_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = TEXT.replace("[fedavg, dsfl]", "[fedavg]").replace("[none, median]", "[none]").replace("seeds: 2", "")
    before = finished(tmp_path, small)
    more = small.replace("defence: [none]", "defence: [clip, none]")
    after = finished(tmp_path, more)
    for column in range(3):
        one, other = cell_at(before, 0, column, 0), cell_at(after, 0, column, 1)
        assert one.get("seconds") == other.get("seconds"), "it was not run again"
    with pytest.raises(UserError, match="was made with rounds=2, not 3; name another --out"):
        finished(tmp_path, small.replace("rounds: 2", "rounds: 3"))
    (tmp_path / "out" / "matrix.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DamagedFile, match="is not a fedpareto matrix, or is damaged"):
        finished(tmp_path, small)


def test_a_cell_fails_with_its_own_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise UserError("the clients went home")

    monkeypatch.setattr(matrices.runner, "start", refused)
    record = finished(tmp_path)
    assert {cell["failed"] for cell in record["cells"] if "refused" not in cell} == {"the clients went home"}


def test_a_cell_without_a_number_of_an_honest_client_says_so_as_long_as_that_one_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"clients": [[None, *[0.5] * 7]] * 2, "seconds": 0.1}
    monkeypatch.setattr(matrices, "_measure", lambda out, values, stop: dict(found))
    assert "training diverged" in cell_at(finished(tmp_path), 0, 0, 0)["failed"]
    other = TEXT.replace("clients: [1, 2]", "clients: [0, 1]")
    cell = cell_at(finished(tmp_path, other), 0, 0, 0)
    assert cell["value"] == 0.5
    assert "failed" not in cell


def test_a_second_process_is_turned_away(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with RunFolder(tmp_path / "out") as other:
        other.lock()
        with pytest.raises(UserError, match="another process is working on"):
            finished(tmp_path)
    assert not (tmp_path / "out" / "matrix.json").exists()


@pytest.mark.parametrize("setting", ["attack=bias", "attack.share=0.3", "defence=median", "algorithm=fedavg"])
def test_an_axis_cannot_be_set_for_every_cell(setting: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        Matrix.read(written(tmp_path), [setting])
    axis = setting.partition("=")[0].partition(".")[0]
    assert str(caught.value).startswith(f"--set {setting}: {axis} is outside the section 'matrix'")


def test_entries_with_the_same_name_are_told_apart_by_their_parameters(tmp_path: Path) -> None:
    text = TEXT.replace("[fedavg, dsfl]", "[fedavg, {name: fedavg, weighting: equal}]")
    assert Matrix.read(written(tmp_path, text)).labels("algorithm") == ["fedavg", "fedavg weighting=equal"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (TEXT[TEXT.index("matrix:") :], "", "a matrix has a section 'matrix' with lists: algorithm, attack, defence"),
        ("  defence: [none, median]", "  rounds: [1, 2]", "a matrix has a section 'matrix' with lists"),
        ("[fedavg, dsfl]", "[]", "matrix.algorithm is empty"),
        ("[fedavg, dsfl]", "[3]", "matrix.algorithm holds 3; an entry is a name"),
        ("[fedavg, dsfl]", "[fedavg, fedavg]", "matrix.algorithm holds an entry twice"),
        ("[fedavg, dsfl]", "[fedavgg]", "unknown algorithm 'fedavgg'; did you mean 'fedavg'?"),
        ("[none, median]", "[medium]", "unknown value of defence: rule 'medium'; did you mean 'median'?"),
        ("kind: sign-flip", "kind: sign-flop", "unknown value of attack: kind 'sign-flop'; did you mean 'sign-flip'?"),
        ("clients: [1, 2]", "clients: [0, 1, 3, 4, 6, 7]", "every client attacks in some cell"),
        ("rounds: 2", "rounds: 2\nattack: bias", "attack is outside the section 'matrix'"),
        ("kind: sign-flip", "kind: sign-flip, from_round: 3", "from_round is 3, but there are only 2 rounds"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(before: str, after: str, words: str, tmp_path: Path) -> None:
    assert before in TEXT
    with pytest.raises(UserError) as caught:
        Matrix.read(written(tmp_path, TEXT.replace(before, after)))
    assert str(caught.value).startswith(str(tmp_path / "matrix.yaml"))
    assert words in str(caught.value)


def test_a_mistake_in_an_entry_names_file_line_and_key(tmp_path: Path) -> None:
    for axis, before, after in (
        ("algorithm", "[fedavg, dsfl]", "[fedavgg]"),
        ("attack", "kind: sign-flip", "kind: sign-flop"),
        ("defence", "[none, median]", "[medium]"),
    ):
        text = TEXT.replace(before, after)
        line = next(number for number, words in enumerate(text.splitlines(), start=1) if f"  {axis}:" in words)
        with pytest.raises(UserError) as caught:
            Matrix.read(written(tmp_path, text))
        assert str(caught.value).startswith(f"{tmp_path / 'matrix.yaml'}, line {line}: matrix.{axis}: unknown")


@pytest.mark.takes_long
def test_a_backdoor_opens_while_accuracy_stays_and_the_median_shuts_it(tmp_path: Any) -> None:
    text = """
problem: {name: synthetic, hidden: [16], rows: 2000}
clients: 5
rounds: 12
preferences: 1,0
learner: {lr: 0.1, batch_size: 64, steps: 10}
matrix:
  measure: own
  algorithm: [fedavg]
  attack: [none, {kind: backdoor, clients: [4], strength: 3, value: 10}]
  defence: [none, median]
"""
    path = tmp_path / "matrix.yaml"
    path.write_text(text, encoding="utf-8")
    record = matrices.run(Matrix.read(path), tmp_path / "out", 1, lambda line: None, lambda: False)
    cells = {tuple(cell["at"]): cell for cell in record["cells"]}
    assert record["measure"]["name"] == "value under the own preference"
    assert "opens" not in cells[0, 0, 0]
    assert cells[0, 1, 0]["opens"] > cells[0, 1, 1]["opens"] + 0.2
    spec = {"algorithm": "fedavg", "engine": {"threads": 1, "chunk": 5}, "evaluate_every": 12}
    values = Matrix.read(path).base.values | spec
    calm = runner.start(Draft(values).finish()).solutions[0].own_utilities()
    assert calm is not None
    np.testing.assert_allclose(cells[0, 0, 0]["clients"][0], calm, atol=1e-4)
    path.write_text(text.replace("measure: own", "measure: mine"), encoding="utf-8")
    with pytest.raises(UserError, match=r"line 8: matrix\.measure is 'mine'; it is 'first', the first obj"):
        Matrix.read(path)
