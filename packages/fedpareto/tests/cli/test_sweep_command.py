"""`fedpareto sweep` from the outside: one table, one page, failures by name, and one line for every mistake."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedpareto.campaigns import sweep

TEXT = """
problem: convex
clients: 4
rounds: 2
sweep:
  faults.dropout: [1.0, 0.0]
  algorithm: [fedavg, local]
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "grid.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_a_table_of_what_was_varied_and_the_failures_by_name(spec: Path, fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("sweep", spec, "--jobs", "1")
    assert answer.code == 1, "some failed"
    header, *_ = [line for line in answer.out.splitlines() if "hypervolume" in line]
    assert header.split()[1:6:2] == ["faults.dropout", "algorithm", "hypervolume"]
    assert "No choice is named: 'convex' has no validation rows to choose by." in answer.out
    assert answer.out.endswith("page: runs/sweep/comparison/index.html\n")
    assert answer.err.startswith("4 of 4 runs, 2 failed\n")
    failed = [line for line in answer.err.splitlines() if line.startswith("failed: ")]
    assert [line.split(": ")[1] for line in failed] == ["dropout=1,algorithm=fedavg", "dropout=1,algorithm=local"]


def test_json_and_nothing_else_and_every_failure_is_an_error(spec: Path, fedpareto: Callable[..., Any]) -> None:
    spec.write_text(TEXT.replace("[1.0, 0.0]", "[1.0, 0.99999]").replace("[fedavg, local]", "fedavg"))
    answer = fedpareto("sweep", spec, "--jobs", "1", "--json", "--quiet", "--set", "quorum=4")
    assert answer.code == 2
    record = json.loads(answer.out)
    assert [run["status"] for run in record["runs"]] == ["failed", "failed"]
    assert record["tables"] == []
    assert answer.err.splitlines()[-1].startswith("Error: every run failed, for the reason")


def test_a_reason_that_runs_share_is_said_once(spec: Path, fedpareto: Callable[..., Any]) -> None:
    spec.write_text(TEXT.replace("[1.0, 0.0]", "1.0").replace("[fedavg, local]", "[fedavg, fedprox, fedavgm]"))
    answer = fedpareto("sweep", spec, "--jobs", "1", "--set", "quorum=4")
    assert answer.code == 2
    failed = [line for line in answer.err.splitlines() if line.startswith("failed: ")]
    assert [line.split(": ", 2)[2] for line in failed[1:]] == ["as algorithm=fedavg"] * 2
    assert answer.err.splitlines()[-1] == "Error: every run failed, for the reason above"


def test_an_interrupt_keeps_what_was_done(
    spec: Path, fedpareto: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure = sweep.ensure

    def interrupted(*arguments: Any) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return ensure(*arguments)

    monkeypatch.setattr(sweep, "ensure", interrupted)
    spec.write_text(TEXT.replace("[1.0, 0.0]", "0.0"))
    answer = fedpareto("sweep", spec, "--out", "grid", "--jobs", "1")
    assert answer.code == 143
    assert "stopped after 0 of 2 runs; everything is kept in grid, the same command continues" in answer.err
    monkeypatch.setattr(sweep, "ensure", ensure)
    assert fedpareto("sweep", spec, "--out", "grid", "--jobs", "1", "-q").out == "page: grid/comparison/index.html\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sweep"], "Missing argument 'SPEC...'"),
        (["sweep", "none.yaml"], "the spec none.yaml cannot be read: No such file or directory"),
        (["sweep", "grid.yaml", "--jobs", "0"], "--jobs 0: write how many, at least 1, or ray"),
        (["sweep", "grid.yaml", "--jobs", "rya"], "--jobs rya: write how many, at least 1, or ray"),
        (["matrix", "grid.yaml", "--jobs", "-1"], "--jobs -1: write how many, at least 1, or ray"),
        (["reproduce", "thesis-5.4", "--jobs", "some"], "--jobs some: write how many, at least 1, or ray"),
        (["sweep", "grid.yaml", "--address", "auto"], "--address auto is that of a Ray cluster; it goes with"),
        (["sweep", "grid.yaml", "--set", "faults.dropout=0"], "faults.dropout is in the section 'sweep' of the file"),
        (["sweep", "grid.yaml", "--out", "grid.yaml"], "the folder grid.yaml cannot be made: File exists"),
        (
            ["run", "--spec", "grid.yaml"],
            "line 5: a section 'sweep' lists many runs; this file is for 'fedpareto sweep'",
        ),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], words: str, spec: Path, fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    answer = fedpareto(*arguments)
    assert answer.code == 2
    assert words in answer.err
    assert answer.err.count("\n") == 1
    assert not (tmp_path / "runs").exists()
