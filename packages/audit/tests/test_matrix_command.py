"""`fedpareto matrix` from the outside: a table for each defence, three files, and a stop that keeps what was done."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedpareto_audit import matrix

TEXT = """
problem: convex
clients: 5
rounds: 9
matrix:
  algorithm: [fedavg, dsfl]
  attack: [none, collusion]
  defence: [none, median]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "matrix.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_tables_and_files(spec: Path, fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    answer = fedpareto("matrix", spec, "--out", "cells", "--jobs", "1", "--set", "rounds=1")
    assert answer.code == 0, answer.err
    assert answer.err.startswith("8 cells: 6 to run, 2 that do not fit together\n")
    assert "distance 1, mean of honest clients; defence: median" in answer.out
    rows = [line for line in answer.out.splitlines() if "dsfl" in line]
    assert [row.count("–") for row in rows] == [0, 2]
    assert answer.out.endswith("written: cells/matrix.png, cells/matrix.pdf, cells/matrix.json\n")
    assert {path.name for path in (tmp_path / "cells").glob("[!.]*")} == {"matrix.png", "matrix.pdf", "matrix.json"}


@pytest.mark.needs_data("fashion-mnist")
def test_rows_that_are_too_few_for_every_cell_are_one_line(
    spec: Path, fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    answer = fedpareto("matrix", spec, "--jobs", "1", "--set", "problem=fashion-mnist", "--set", "problem.rows=2")
    assert answer.code == 2
    assert "no cell can begin: 5 clients need at least 10 rows" in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_matrix_of_failures_is_an_error(spec: Path, fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    answer = fedpareto("matrix", spec, "--jobs", "1", "--set", "rounds=1", "--set", "learner.lr=1e38")
    assert answer.code == 2
    assert "every cell failed; the first reason: " in answer.err
    assert (tmp_path / "runs" / "matrix" / "matrix.png").exists()


def test_a_run_of_a_matrix_names_the_right_command(spec: Path, fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("run", "--spec", spec)
    assert answer.code == 2
    assert f"{spec}, line 5: a section 'matrix' lists many runs; this file is for 'fedpareto matrix'" in answer.err


def test_an_interrupt_keeps_the_finished_cells(
    spec: Path, fedpareto: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, calls = matrix._measure, []

    def interrupted(out: Path, values: dict[str, Any], stop: Callable[[], bool]) -> dict[str, Any]:
        calls.append(values)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(out, values, stop)

    monkeypatch.setattr(matrix, "_measure", interrupted)
    command = ("matrix", spec, "--out", "cells", "--jobs", "1", "--set", "rounds=2")
    answer = fedpareto(*command)
    assert answer.code == 130
    assert "stopped after 2 of 6 cells; finished cells are kept in cells: run it again" in answer.err
    assert not (tmp_path / "cells" / "matrix.png").exists()
    kept = json.loads((tmp_path / "cells" / "matrix.json").read_text(encoding="utf-8"))["cells"]
    assert len(kept) == 2 + 2, "two were run, two do not fit together"
    assert fedpareto(*command).code == 0
    assert len(calls) == 3 + 4
