"""Only runs on the same rows, of the same clients, under the same seeds are held against each other."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import fedpareto
from fedpareto.moo.intervals import interval
from fedpareto.problems.synthetic import Synthetic
from fedpareto.record.reading import load
from fedpareto.record.run_record import Record
from fedpareto.report.comparison import comparison, differ, paired
from fedpareto.report.likeness import same_preferences, unlike
from fedpareto.tensors.rows import Rows


def made_on(test: str = "a1", clients: str = "b1", accuracy: float = 0.7, seeds: int = 3) -> dict:
    one = {"rows": 300, "smallest": 118, "constants": [[[accuracy, 0.0]]]}
    return {"tested": [one | {"test_digest": test, "clients_digest": clients}] * seeds}


def marked(table) -> list[str]:
    return [row.label for row in table.rows for cell in row.cells if cell.best]


def pair(write_run, mine: dict, theirs: dict, **choices) -> list[Record]:
    return [load(write_run("a", "fedpref", extra=mine)), load(write_run("b", "local", extra=theirs, **choices))]


def test_the_same_rows_and_clients_are_compared(write_run):
    runs = pair(write_run, made_on(), made_on())
    assert unlike(runs) == []
    assert marked(comparison(runs))


@pytest.mark.parametrize(
    ("theirs", "what"),
    [
        (made_on(test="a2"), "test rows"),
        (made_on(clients="b2"), "training rows"),
        (made_on(accuracy=0.6), "test rows"),
    ],
)
def test_other_rows_are_named_and_nothing_is_marked_paired_or_gained(write_run, theirs, what):
    runs = pair(write_run, made_on(), theirs)
    assert unlike(runs) == [f"Other {what} than fedpref: local. No winner is marked, and nothing is paired."]
    table = comparison(runs)
    assert not marked(table)
    assert unlike(runs)[0] in table.notes
    assert not any("paired over seeds" in note or "Bold" in note for note in table.notes)
    assert not {"gain", "igd_to_all"} & {column.key for column in table.columns}
    # Each has a constant answer of its own.
    labels = ["fedpref", "local", "constant (fedpref)", "constant (local)"]
    assert [row.label for row in table.rows] == labels


def test_folders_without_digests_are_told_apart_by_what_a_constant_answer_scores(write_run):
    old = {"tested": [{"rows": 300, "smallest": 118, "constants": [[[0.7, 0.0]]]}] * 3}
    other = {"tested": [{"rows": 130, "smallest": 18, "constants": [[[0.846, 0.0]]]}] * 3}
    assert unlike(pair(write_run, old, other)) != []
    assert unlike([load(write_run("c", extra=old)), load(write_run("d", extra=made_on()))]) == []


def test_other_clients_are_named(write_run):
    runs = pair(write_run, {}, {}, clients=5)
    assert unlike(runs) == ["Other clients than fedpref: local. No winner is marked, and nothing is paired."]
    assert not marked(comparison(runs))


def test_without_rows_the_problem_s_parameters_decide(write_run):
    runs = pair(write_run, {"parameters": {"name": "convex", "noise": 0.1}}, {"parameters": {"name": "convex"}})
    assert "parameters of the problem (noise)" in unlike(runs)[0]


def test_clients_with_other_preferences_are_not_ranked_by_what_models_are_worth_to_them(write_run):
    a, b = load(write_run("a", "fedpref", clients=10)), load(write_run("b", "local", sizes=(3, 7)))
    assert not same_preferences([a, b])
    table = comparison([a, b])
    assert not any(table.cell(run.label, "own_utility").best for run in (a, b))
    assert any("different preferences" in note for note in table.notes)


def test_runs_are_paired_by_seed_not_by_place(write_run):
    a = load(write_run("a", "fedpref", seeds=(0, 1, 2)))
    b = load(write_run("b", "local", seeds=(3, 5, 1)))
    mine, theirs = np.array([0.1, 0.5, 0.9]), np.array([0.2, 0.3, 0.4])
    assert paired(0, 1, [mine, theirs], [a, b]).tolist() == [0.5 - 0.4]
    assert not differ(0, 1, [mine + 9, theirs], [a, b])  # One pair says nothing.
    assert not any("paired over seeds" in note for note in comparison([a, b]).notes)
    c = load(write_run("c", "fedavg", seeds=(2, 0, 1)))
    assert paired(0, 1, [mine, np.array([0.9, 0.1, 0.5])], [a, c]).tolist() == [0, 0, 0]


def test_equal_differences_are_no_certainty_before_the_sign_test_would_be():
    assert interval([1, 1]) is None
    assert interval([0.3] * 5) is None
    assert interval(np.array([0.1, 0.5, 0.9]) + 0.01 - np.array([0.1, 0.5, 0.9])) is None  # But for rounding equal.
    six = interval([1] * 6)
    assert six is not None
    assert six.excludes_zero  # 2 / 2^6 < 5 %.
    assert not interval([0.0] * 6).excludes_zero
    assert interval([1, 1.1]) is not None


def test_the_digest_is_of_what_clients_hold_and_who_holds_it():
    rows = Rows.end_to_end({"x": torch.arange(6.0), "label": torch.ones(6)}, [2, 4])
    assert rows.digest() == Rows.end_to_end({"label": torch.ones(6), "x": torch.arange(6.0)}, [2, 4]).digest()
    others = [
        Rows.end_to_end({"x": torch.arange(6.0), "label": torch.ones(6)}, [4, 2]),
        Rows.end_to_end({"x": torch.arange(6.0) + 1, "label": torch.ones(6)}, [2, 4]),
        Rows.end_to_end({"x": torch.arange(6.0).double(), "label": torch.ones(6)}, [2, 4]),
    ]
    assert len({rows.digest(), *(one.digest() for one in others)}) == 4


def test_a_run_tells_its_rows_and_algorithm_and_network_may_differ(tmp_path):
    def made(name: str, algorithm: str, **problem) -> Record:
        chosen = {"clients": 3, "rounds": 1, "engine": {"threads": 1, "chunk": 3}, "out": tmp_path / name}
        fedpareto.run(Synthetic(**{"rows": 300, **problem}), algorithm, **chosen)
        return dataclasses.replace(load(tmp_path / name), label=name)

    one, network = made("a", "fedavg"), made("b", "local", hidden=(4,))
    assert one.tested[0].test_digest
    assert one.parameters["name"] == "synthetic"
    assert unlike([one, network]) == []
    (test, training) = unlike([one, made("c", "fedavg", rows=330)])
    assert test.startswith("Other test rows than a: c.")
    assert training.startswith("Other training rows than a: c.")
