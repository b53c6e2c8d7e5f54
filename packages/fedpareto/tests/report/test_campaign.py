"""What is said about the runs of a sweep: a choice on validation rows, and none that the seeds do not support."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedpareto
from fedpareto.record import reading
from fedpareto.record.run_record import Record
from fedpareto.report.campaign import Summary, summary

SEEDS = 4


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    folder = tmp_path_factory.mktemp("run") / "run"
    engine = {"threads": 1, "chunk": 64}
    fedpareto.run("convex", "fedavg", clients=3, rounds=1, seeds=SEEDS, engine=engine, out=folder)
    return reading.load(folder)


def named(record: Record, name: str, gains: list[float] | None) -> Record:
    """The run in another folder; on validation rows every seed's points are nearer to the goals by its gain."""
    found = replace(record, folder=Path(name))
    if gains is None:
        return found
    solutions = [
        replace(one, objectives=one.objectives | {"validation": np.full((3, len(record.objectives)), 0.5 - gain)})
        for one, gain in zip(record.solutions, gains, strict=True)
    ]
    return replace(found, splits=("train", "validation", "test"), solutions=tuple(solutions))


def summed_up(record: Record, **runs: list[float] | None) -> Summary:
    return summary([named(record, name, gains) for name, gains in runs.items()], [{"run": name} for name in runs])


def test_the_best_run_on_validation_rows_is_chosen_where_every_seed_agrees(record: Record) -> None:
    found = summed_up(record, a=[0.0, 0.01, 0.02, 0.0], b=[0.2, 0.21, 0.22, 0.21], c=[0.1, 0.1, 0.11, 0.1])
    assert found.chosen == "b"
    assert found.columns[0].heading == "hypervolume on validation rows ↑"
    assert [cells[0].best for cells in found.cells] == [False, True, False]
    assert found.sentence.startswith("Chosen: b, the best hypervolume on validation rows;")
    assert found.to_plain()["chosen"] == "b"


def test_the_best_local_run_is_drawn_however_far_behind_it_is(record: Record) -> None:
    runs = [named(record, f"run{i}", [0.2 + i / 100] * SEEDS) for i in range(9)]
    runs += [replace(named(record, f"local{i}", [i / 100] * SEEDS), algorithm="local") for i in range(2)]
    best = summary(runs, [{"run": str(one.folder)} for one in runs]).best
    assert [str(folder) for folder in best] == [*(f"run{i}" for i in range(3, 9)), "local1"]


def test_a_narrow_terminal_shows_means_without_deviations(record: Record) -> None:
    found = summed_up(record, a=[0.0, 0.01, 0.02, 0.0], b=[0.2, 0.21, 0.22, 0.21])
    wide, narrow = (list(found.to_rich(width).columns[1].cells) for width in (500, 40))
    assert all("±" in str(cell) for cell in wide)
    assert not any("±" in str(cell) for cell in narrow)


def test_no_run_is_chosen_where_seeds_disagree(record: Record) -> None:
    found = summed_up(record, a=[0.0, 0.2, 0.1, 0.1], b=[0.2, 0.0, 0.1, 0.15], c=[-0.2, -0.21, -0.2, -0.2])
    assert found.chosen == ""
    assert found.sentence == (
        "No choice is named: 2 runs cannot be told apart by the hypervolume on validation rows over these seeds (a, b)."
    )


def test_one_seed_names_no_choice(record: Record) -> None:
    one = replace(record, seeds=(0,), lines=tuple(record.of_seed(0)), solutions=record.solutions[:1])
    found = summed_up(one, a=[0.0], b=[0.2])
    assert found.chosen == ""
    assert "one seed says nothing about others" in found.sentence


def test_test_rows_have_no_say_in_a_choice(record: Record) -> None:
    found = summed_up(record, a=None, b=None)
    assert found.chosen == ""
    assert found.sentence == "No choice is named: 'convex' has no validation rows to choose by."
    assert found.columns[0].key == "hypervolume"
