"""PraFFL's table and figures: what is measured, what is run, what is shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from fedpareto.config.errors import UserError
from fedpareto.record.store import RunFolder
from fedpareto_papers import catalogue
from fedpareto_papers.praffl import published
from fedpareto_papers.praffl import reproduction as praffl
from fedpareto_papers.praffl.reproduction import Decided, measures


def quick(name, tmp_path, **options):
    """Runs the quick version on SYNTHETIC; gives the outcome and what was said."""
    said = []
    study = catalogue.prepare(name, catalogue.Options(quick=True, rounds=1, seeds=1, **options))
    return study.run(tmp_path, said.append, lambda: False), said


def test_error_and_gap_are_those_of_all_rows_together():
    first = Decided(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0]))
    second = Decided(torch.tensor([[1.0, 1.0]]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
    # Group 0: three of three positive; group 1: none of one. Two of four are wrong.
    assert measures([first, second]).tolist() == [[0.5, 1.0, 0.75]]


def test_the_published_hypervolumes_follow_from_error_and_gap_but_for_two():
    odd = []
    for data, entries in published.TABLE_1.items():
        for algorithm in published.BASELINES:
            entry = entries[algorithm]
            point = np.array([[entry.error, entry.gap, entry.gap]])
            if abs(praffl.volume(point, praffl.EQUATION_3) - entry.hypervolume) > 0.005:
                odd.append((data, algorithm))
    assert odd == [("synthetic", "lft-ensemble"), ("adult", "fairfed")]


@pytest.mark.takes_long
def test_the_table_stands_beside_what_was_published_and_is_kept(tmp_path):
    algorithms = ("fedfb", "praffl")
    outcome, said = quick("praffl-table-1", tmp_path, algorithms=algorithms)
    cells = outcome.record["cells"]
    assert [cell["label"] for cell in cells] == list(algorithms)
    assert cells[1]["published"]["hypervolume"] == 0.971
    assert np.shape(cells[1]["points"]) == (1, 101, 3)
    assert np.shape(cells[0]["points"]) == (1, 1, 3)
    json.dumps(outcome.record, allow_nan=False)
    assert all(path.exists() for path in outcome.files)
    assert len(said) == 2
    again, said = quick("praffl-table-1", tmp_path, algorithms=algorithms)
    assert all("already done" in line for line in said)
    assert again.record["cells"] == cells


@pytest.mark.takes_long
def test_figures_share_the_runs_of_the_table(tmp_path):
    quick("praffl-table-1", tmp_path, algorithms=("praffl",))
    for name in ("praffl-fig-6", "praffl-fig-7", "praffl-fig-10"):
        outcome, said = quick(name, tmp_path, algorithms=("praffl",))
        assert all("already done" in line for line in said)
        assert {path.suffix for path in outcome.files} == {".png", ".pdf"}


def test_every_level_and_every_number_of_epochs_has_its_own_cells():
    levels = praffl.cells_of("praffl-fig-8", ["synthetic"], ["praffl"])
    assert [cell.problem["partition"] for cell in levels] == ["fedfb-low", "fedfb", "fedfb-high"]
    epochs = praffl.cells_of("praffl-fig-9", ["compas"], [])
    assert [cell.own["head_epochs"] + cell.own["body_epochs"] for cell in epochs] == [30, 30, 30]
    assert len(praffl.cells_of("praffl-ablation", ["compas"], [])) == len(praffl.ABLATIONS)


def test_the_runs_are_as_the_paper_says():
    options = catalogue.Options(problems=("adult",), algorithms=("praffl",))
    (cell,) = catalogue.prepare("praffl-table-1", options).cells()
    spec = cell.spec()
    assert (spec.rounds, len(spec.seeds), spec.clients) == (10, 3, 2)
    assert (spec.algorithm.body_epochs, spec.algorithm.head_epochs, spec.algorithm.sampled) == (10, 20, 64)
    assert (spec.learner.lr, spec.learner.batch_size, spec.learner.weight_decay) == (0.005, 128, 1e-4)


def test_hypervolume_and_points_are_recorded_every_round(tmp_path):
    quick("praffl-table-1", tmp_path, algorithms=("praffl",))
    rows = RunFolder(tmp_path / "praffl" / "synthetic" / "praffl").read_lines("metrics.jsonl")
    assert [(row["round"], len(row["pooled"])) for row in rows] == [(0, 101), (1, 101)]


@pytest.mark.parametrize(
    ("options", "word"),
    [({"problems": ("adlt",)}, "adult"), ({"algorithms": ("prafl",)}, "praffl"), ({"clients": 3}, "clients")],
)
def test_what_there_is_not_is_named(options, word):
    with pytest.raises(UserError, match=word):
        catalogue.prepare("praffl-table-1", catalogue.Options(**options))
