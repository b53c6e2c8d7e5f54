from __future__ import annotations

import dataclasses
import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from fedpareto.record.reading import load
from fedpareto.record.run_record import Record
from fedpareto.report.comparison import _differences, comparison, marked_cells
from fedpareto.report.table import Column


@pytest.fixture
def records(write_run) -> list[Record]:
    events = [{"seed": 0, "round": 1, "client": 3, "reason": "refused: too late"}]
    return [
        load(write_run("a", "fedpref", known=True)),
        load(write_run("b", "fedavg", known=True)),
        load(write_run("c", "local", known=True, events=events)),
    ]


def with_indicator(record: Record, name: str, values: list[float]) -> Record:
    changed = [
        dataclasses.replace(solution, indicators=solution.indicators | {name: value})
        for solution, value in zip(record.solutions, values, strict=True)
    ]
    return dataclasses.replace(record, solutions=tuple(changed))


def rendered(table) -> str:
    stream = io.StringIO()
    Console(width=160, file=stream).print(table.to_rich(160))
    return stream.getvalue()


def test_numbers_are_numpys_mean_and_population_deviation(records):
    table = comparison(records)
    for record in records:
        points = np.stack([solution.objectives["test"] for solution in record.solutions])
        expected = {
            "hypervolume": [s.indicators["hypervolume"] for s in record.solutions],
            "sparsity": [s.indicators["sparsity"] for s in record.solutions],
            "spread_1": [s.indicators["spread_1"] for s in record.solutions],
            "mean_0": points[:, :, 0].mean(axis=1),
            "mean_1": points[:, :, 1].mean(axis=1),
            "seconds": [
                13 * (0.1 + 0.01)
            ],  # The mean of the three seeds: their time is shared out, so it has no deviation.
            "bytes_up": [1000, 1000, 1000],
        }
        for key, values in expected.items():
            cell = table.cell(record.label, key)
            assert cell.mean == pytest.approx(np.mean(values)), key
            assert cell.deviation == pytest.approx(np.std(values), abs=1e-12), key
    assert table.cell("local", "refused").mean == 1.0
    assert table.cell("fedavg", "refused").mean == 0.0


def test_every_metric_has_its_column_with_the_right_arrow(records):
    assert [column.heading for column in comparison(records).columns] == [
        "hypervolume ↑",
        "IGD ↓",
        "IGD+ ↓",
        "IGD to all ↓",
        "sparsity ↓",
        "cardinality ↑",
        "own utility ↑",
        "own utility, trained ↑",
        "worst client's utility ↑",
        "expected utility ↑",
        "gain over local ↑",
        "worst gain over local ↑",
        "share of clients better off ↑",
        "spread of accuracy",
        "spread of equal opportunity gap",
        "mean accuracy ↑",
        "mean equal opportunity gap ↓",
        "seconds per seed ↓",
        "missing replies ↓",
        "bytes up per round and client ↓",
    ]


def test_distance_to_an_unknown_front_has_no_column(write_run):
    keys = [column.key for column in comparison([load(write_run("a"))]).columns]
    assert "igd" not in keys
    assert "hypervolume" in keys


def test_best_marks_follow_the_direction(records):
    table = comparison(records)
    pick = {"hypervolume": max, "igd": min, "mean_0": max, "mean_1": min, "cardinality": max, "sparsity": min}
    marks = 0
    for key, best in pick.items():
        means = {record.label: table.cell(record.label, key).mean for record in records}
        marked = [label for label in means if table.cell(label, key).best]
        assert marked in ([], [label for label in means if means[label] == best(means.values())]), key
        marks += len(marked)
    assert marks >= 3


def test_no_run_is_marked_where_the_paired_difference_includes_zero(records):
    """Two runs over the same seeds: what counts is the difference under each seed, not how far the seeds scatter."""
    column, scatter = Column("hypervolume", "hypervolume", 1), np.array([0.1, 0.5, 0.9])

    def marks(*rows):
        return [cell.best for cell in marked_cells([np.array(row) for row in rows], column, records[: len(rows)])]

    assert marks(scatter + np.array([0.01, 0.012, 0.011]), scatter) == [True, False]
    assert marks(scatter + 0.01, scatter) == [False, False]  # No scatter of three differences says nothing of others.
    assert marks(scatter + np.array([0.3, -0.1, 0.2]), scatter) == [False, False]
    assert marks(scatter + 0.01, scatter, scatter + np.array([0.02, 0.0, 0.009])) == [False, False, False]


def test_runs_measured_differently_are_not_ranked_and_the_table_says_so(write_run):
    own = load(write_run("own", "fedavg"))
    common = dataclasses.replace(load(write_run("common", "fedpref")), splits=("train", "test", "own-test"))
    table = comparison([own, common])
    assert not any(cell.best for row in table.rows for cell in row.cells)
    (note,) = [note for note in table.notes if "not measured alike" in note]
    assert "fedavg on each client's own test rows; fedpref on the test rows of all clients" in note


def test_the_constant_stands_beside_the_runs_and_is_never_the_best(write_run):
    tested = [{"rows": 300, "smallest": 18, "constants": [[[0.3, 0.0]], [[0.7, 0.0]]]}] * 3
    record = load(write_run("a", "fedavg", extra={"tested": tested}))
    table = comparison([record, load(write_run("b", "fedpref", extra={"tested": tested}))])
    assert [row.label for row in table.rows] == ["fedavg", "fedpref", "constant"]
    assert table.cell("constant", "hypervolume").mean == pytest.approx(0.7 * 1.3)
    assert table.cell("constant", "mean_0").mean == pytest.approx(0.7)
    weights = record.solutions[0].preferences
    assert table.cell("constant", "own_utility").mean == pytest.approx(0.7 * weights[:, 0].mean())
    assert not any(cell.best for cell in table.rows[-1].cells)
    assert any("18 test rows of its own" in note for note in table.notes)


def test_a_run_whose_models_all_score_like_a_constant_says_so(write_run):
    def record(values):
        constants = [[[values, 1.0]], [[1 - values, 1.0]]]
        extra = {"tested": [{"rows": 300, "smallest": 100, "constants": constants}] * 3}
        return load(write_run(f"run{values}", extra=extra))

    one = record(0.7)
    atone = [dataclasses.replace(s, objectives={"test": np.tile([0.702, 1.0], (10, 1))}) for s in one.solutions[:2]]
    fallen = dataclasses.replace(one, solutions=(*atone, one.solutions[2]))
    assert fallen.collapsed == [0, 1]
    assert one.collapsed == []
    (note,) = [note for note in comparison([fallen]).notes if "ollapsed" in note]
    assert note == "Collapsed: every model of seeds 0, 1 scores what the same answer for everybody does."


def test_what_has_no_direction_or_no_difference_is_not_marked(records):
    table = comparison(records)
    for key in ("spread_0", "bytes_up", "seconds"):
        assert not any(table.cell(record.label, key).best for record in records), key
    alone = comparison(records[:1])
    assert not any(cell.best for cell in alone.rows[0].cells)


def test_equal_bests_share_the_mark(records):
    table = comparison(records)
    assert [table.cell(r.label, "refused").best for r in records] == [True, True, False]


def test_a_single_point_does_not_win_by_sparsity(records):
    poor = with_indicator(records[0], "sparsity", [0.0, 0.0, 0.0])
    poor = with_indicator(poor, "cardinality", [1.0, 1.0, 1.0])
    table = comparison([poor, *records[1:]])
    assert table.cell("fedpref", "sparsity").text == "–"
    assert not any(table.cell(r.label, "sparsity").best for r in records)
    once = with_indicator(records[0], "cardinality", [1.0, 4.0, 4.0])
    assert math.isnan(comparison([once, *records[1:]]).cell("fedpref", "sparsity").mean)


def test_an_unfinished_run_is_noted_and_does_not_win_by_having_done_less(write_run):
    runs = [load(write_run("a")), load(write_run("b", "local", reached=3, status="running"))]
    table = comparison(runs)
    assert not table.cell("local", "seconds").best
    assert table.cell("local", "expected_utility").text == "–"
    assert any("local: running, 3 of 3 seeds, after round 3 of 12" in note for note in table.notes)


def test_a_value_that_is_not_finite_is_shown_and_never_best(records):
    bad = with_indicator(records[1], "igd", [math.inf, 0.1, 0.1])
    table = comparison([records[0], bad])
    cell = table.cell("fedavg", "igd")
    assert cell.text.startswith("∞")
    assert not cell.best
    assert table.cell("fedpref", "igd").best
    values = json.loads(table.to_json())["rows"][1]["values"]["igd"]
    assert values["mean"] is None
    assert values["per_seed"] == [None, 0.1, 0.1]


def test_one_seed_has_no_deviation(write_run):
    table = comparison([load(write_run("a", seeds=(4,)))])
    assert "±" not in table.cell("fedavg", "hypervolume").text


def test_counts_are_written_as_counts(records):
    table = comparison(records)
    assert table.cell("local", "refused").text == "1 ± 0"
    assert table.cell("local", "bytes_up").text == "1,000 ± 0"


def test_different_known_fronts_are_noted(records):
    other = dataclasses.replace(records[1], known_front=records[1].known_front[1:])
    assert any("different known fronts" in note for note in comparison([records[0], other]).notes)


def test_markdown_has_a_line_per_run_and_the_best_in_bold(records):
    table = comparison([dataclasses.replace(records[0], label="a|b*"), *records[1:]])
    head, rule, *rows = table.to_markdown().split("\n\n")[0].splitlines()
    assert head.startswith("| run | hypervolume ↑ |")
    assert rule.count("---") == len(table.columns) + 1
    assert rows[0].startswith(r"| a\|b\* | **1.0")
    assert len(rows) == 3


def test_json_holds_every_seed(records):
    data = json.loads(comparison(records).to_json())
    row = data["rows"][0]
    assert (row["label"], row["folder"], row["status"], row["seeds"]) == (
        "fedpref",
        "a",
        "finished",
        [0, 1, 2],
    )
    assert row["values"]["hypervolume"]["per_seed"] == records[0].indicator("hypervolume").tolist()
    assert row["values"]["hypervolume"]["best"] is True
    assert data["columns"][0] == {"key": "hypervolume", "title": "hypervolume", "better": "higher"}


def test_the_terminal_shows_every_metric_and_no_markup(records):
    text = rendered(comparison([dataclasses.replace(records[0], label="[red]x"), *records[1:]]))
    assert "[red]x" in text
    for column in comparison(records).columns:
        assert column.heading in text


def test_unlike_runs_are_compared_with_a_note_on_what_differs(write_run):
    records = [
        load(write_run("a", "fedavg", rounds=3, seeds=(0,))),
        load(write_run("b", "fedpref", rounds=5, seeds=(0, 1))),
    ]
    notes = " ".join(comparison(records).notes)
    assert "different rounds (fedavg 3, fedpref 5)" in notes
    assert "different seeds (fedavg 0, fedpref 0/1)" in notes


def test_gains_are_over_the_run_without_communication_client_by_client(records):
    table = comparison(records)
    fedpref, _, local = records
    mine, alone = (np.array([record.own_utilities(seed) for seed in record.started]) for record in (fedpref, local))
    assert table.cell("fedpref", "gain").values == pytest.approx((mine - alone).mean(axis=1))
    assert table.cell("fedpref", "worst_gain").values == pytest.approx((mine - alone).min(axis=1))
    assert table.cell("fedpref", "worst_utility").values == pytest.approx(mine.min(axis=1))
    assert table.cell("fedpref", "better_off").values == pytest.approx((mine > alone).mean(axis=1))
    assert table.cell("local", "gain").text == "–"
    assert "gain" not in [column.key for column in comparison(records[:2]).columns]


def test_the_differences_below_the_table_are_paired_and_have_an_interval(records):
    values = {record.label: record.indicator("hypervolume") for record in records}
    best = max(values, key=lambda label: values[label].mean())
    (note,) = [note for note in comparison(records).notes if note.startswith("Difference in hypervolume")]
    for label in values.keys() - {best}:
        difference = values[label] - values[best]
        half = 4.302653 * difference.std(ddof=1) / np.sqrt(3)  # Student's t with two degrees of freedom
        ends = f"({difference.mean() - half:.4f} to {difference.mean() + half:.4f})".replace("-", "−")
        assert f"{label} {difference.mean():.4f} {ends}".replace(" -", " −") in note


def test_differences_are_to_the_smallest_mean_where_less_is_better(records):
    values = [record.indicator("hypervolume") for record in records]
    smallest = records[int(np.argmin([v.mean() for v in values]))].label
    (note,) = _differences(records, Column("regret", "regret", -1), values)
    assert note.startswith(f"Difference in regret to {smallest}, paired")
