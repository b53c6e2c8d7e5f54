"""The demo ends with what a newcomer can look at, and its words are those of the runs it made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedpareto.record import reading
from fedpareto.report import gains
from fedpareto.report.comparison import comparison


def test_the_demo_says_who_gains_and_ends_with_the_page(tmp_path: Path, fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("demo", "--seeds", "2")
    assert answer.code == 0
    folder = tmp_path / "runs" / "demo"
    alone, *others = [reading.load(folder / name) for name in ("local", "fedavg", "fedavg+ft", "fedpref")]
    for record in others:
        found = gains.gain(record, alone)
        assert found is not None
        assert f"  {record.algorithm:<10} {found.in_words()}\n" in answer.out
        assert (found.by_client > 0).mean() > 0.9, "federation is to pay here"
    (line,) = [line for line in answer.out.splitlines() if line.startswith("What that is to be held against")]
    for name, value in re.findall(r"(local|constant|plain alone|plain pooled) (0\.\d+)", line):
        runs = comparison([alone]).cell(name, "own_utility")
        assert abs(runs.mean - float(value)) < 6e-4
    assert line.count(" 0.") == 4
    for name in ("index.html", "gains.png"):
        assert (folder / name).stat().st_size > 0
        assert f"runs/demo/{name}" in answer.out
    assert answer.out.endswith("  fedpareto page runs/demo\n")
