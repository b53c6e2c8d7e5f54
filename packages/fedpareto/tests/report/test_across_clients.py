"""How evenly clients fare, in tables, pictures and the terminal: from run folders, against plain arithmetic."""

from __future__ import annotations

import dataclasses
import io
import json
import sys

import numpy as np
import pytest
from rich.console import Console

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.moo.intervals import interval
from fedpareto.record.columns import Columns, Nowhere, in_folder
from fedpareto.record.reading import load
from fedpareto.report.across import across_clients, in_terminal
from fedpareto.report.client_figures import clients_at_the_end, clients_curves, share_improved_curves
from fedpareto.report.comparison import comparison
from fedpareto.report.figures import fronts
from fedpareto.report.terminal import clients_in_terminal, front_in_terminal, show


def printed(part, width: int = 100) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=False).print(part)
    return stream.getvalue()


def rewrite(folder, change) -> None:
    path = folder / "metrics.jsonl"
    lines = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def with_last_values(record, values):
    """The record with these values of a single objective, sent in the last round."""
    *before, last = record.lines
    points = np.array(values, dtype=float)[:, None]
    columns = Columns(Nowhere(), len(points), record.splits, 1)
    row = {"columns": {"sent": columns.put(np.stack([points] * len(record.splits), axis=1))}}
    known = points[np.isfinite(points)]
    means = np.full((2, len(record.splits), 1), np.nan)
    means[0] = known.mean() if len(known) else np.nan
    changed = dataclasses.replace(last, row=row, columns=columns, averages=means)
    return dataclasses.replace(record, lines=(*before, changed))


# -- numbers ---------------------------------------------------------------------------------------------------------


def test_across_clients_of_both_evaluations_and_any_round(write_run):
    record = load(write_run("a", seeds=(0, 1), rounds=4))
    for line in record.lines:
        place = record.started.index(line.seed)
        gap = line.sent["test"][:, 1]
        found = record.across_clients(round=line.round)[place]["equal opportunity gap"]
        expected = (gap.mean(), gap.std(), gap.max(), gap.min(), np.percentile(gap, 90))
        assert (found.mean, found.deviation, found.worst, found.best, found.low) == pytest.approx(expected)
        if line.trained:
            accuracy = line.trained["test"][1:, 0]  # The first client has none.
            found = record.across_clients("trained", line.round)[place]["accuracy"]
            expected = (accuracy.mean(), accuracy.min(), accuracy.max(), np.percentile(accuracy, 10))
            assert (found.mean, found.worst, found.best, found.low) == pytest.approx(expected)
            assert found.jain == pytest.approx(accuracy.sum() ** 2 / (9 * (accuracy**2).sum()))
    assert record.across_clients() == record.across_clients(round=4)
    assert record.across_clients("trained") == record.across_clients("trained", round=3)
    with pytest.raises(UserError, match="no evaluation 'trained' after round 4"):
        record.across_clients("trained", round=4)


def test_the_share_improved_counts_participants_of_consecutive_rounds(write_run):
    folder = write_run("a", seeds=(3,), clients=4, rounds=4, measured=True)
    losses = {0: [4, 4, 4, 4], 1: [3, 5, 3, 5], 2: [3, 1, np.nan, 1], 4: [0, 0, 0, 0]}
    columns = in_folder(folder, 4, ("train", "test"), 2)

    def change(line):
        r, blocks = line["round"], line["columns"]
        del blocks["losses"]
        if r in losses:
            blocks["losses"] = columns.put(np.array(losses[r], dtype=float))
            blocks["participants"] = columns.put(np.zeros((3, 0)), np.arange(3))
        return line

    rewrite(folder, change)
    rounds, shares = load(folder).share_improved()
    assert rounds.tolist() == [1, 2]
    np.testing.assert_allclose(shares, [[2 / 3, 2 / 3]])
    assert comparison([load(folder)]).cell("fedavg", "improved").mean == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda columns: {"losses": columns.put(np.zeros(1))}, "has values of 1 clients; there are 10"),
        (lambda columns: {"losses": columns.put(np.zeros((10, 2)))}, r"has \(\) values, not \(2,\)"),
        (
            lambda columns: {"participants": columns.put(np.zeros((2, 0)), np.array([3, 10]))},
            "names a client that is not one",
        ),
        (lambda columns: {"losses": "low"}, "a block is not an object"),
    ],
)
def test_damaged_losses_are_named(write_run, change, message):
    folder = write_run("a", measured=True, rounds=2)
    columns = in_folder(folder, 10, ("train", "test"), 2)
    rewrite(folder, lambda line: line | {"columns": line["columns"] | change(columns)})
    with pytest.raises(DamagedFile, match=message):
        load(folder).share_improved()


# -- tables ----------------------------------------------------------------------------------------------------------


def test_a_table_for_each_objective_with_both_evaluations(write_run):
    records = [load(write_run(name, name)) for name in ("fedpref", "fedavg")]
    accuracy, gap = across_clients(records)
    assert accuracy.title == "accuracy across clients"
    labels = ["fedpref, sent", "fedavg, sent", "fedpref, trained", "fedavg, trained"]
    assert [row.label for row in accuracy.rows] == labels
    assert [row.evaluation for row in gap.rows] == ["sent", "sent", "trained", "trained"]
    found = records[1].across_clients("trained")
    for key in ("mean", "deviation", "worst", "low", "best", "jain"):
        values = [getattr(of_seed["accuracy"], key) for of_seed in found]
        assert accuracy.cell("fedavg, trained", key).values == pytest.approx(values)
    headings = [column.heading for column in gap.columns]
    assert headings == ["mean ↓", "deviation", "worst ↓", "90th percentile ↓", "best ↓", "Jain's index"]


def test_the_best_is_marked_within_each_evaluation(write_run):
    records = [load(write_run(name, name, m=1)) for name in ("fedpref", "fedavg", "local")]
    (table,) = across_clients(records)
    assert [column.heading for column in table.columns][1] == "deviation ↓"
    for evaluation in ("sent", "trained"):
        rows = [row for row in table.rows if row.evaluation == evaluation]
        for j, pick in ((0, max), (1, min), (5, max)):
            seeds = np.array([row.cells[j].values for row in rows])
            best = pick(range(len(rows)), key=lambda i: seeds[i].mean())
            paired = [interval(seeds[best] - other) for i, other in enumerate(seeds) if i != best]
            is_certain = all(found is not None and found.excludes_zero for found in paired)
            assert [row.cells[j].best for row in rows] == [is_certain and i == best for i in range(len(rows))]


def test_negative_values_have_no_jain_index(write_run):
    record = with_last_values(load(write_run("a", m=1, seeds=(0,), clients=3)), [-1, 2, 3])
    (table,) = across_clients([record])
    assert table.cell("fedavg, sent", "jain").text == "–"
    assert table.cell("fedavg, sent", "worst").text == "−1"


def test_a_client_alone_has_no_such_table(write_run):
    record = load(write_run("a", clients=1))
    assert across_clients([record]) == []
    assert in_terminal([record]) is None


def test_one_objective_has_no_indicators_of_fronts(write_run):
    keys = [column.key for column in comparison([load(write_run("a", m=1))]).columns]
    assert keys == ["mean_0", "seconds", "refused", "bytes_up"]


# -- terminal --------------------------------------------------------------------------------------------------------


def test_the_terminal_shows_one_objective_without_front_or_hypervolume(write_run):
    record = load(write_run("a", m=1, measured=True))
    text = printed(show(record), 80)
    assert "hypervolume" not in text
    sent = record.across_clients()
    mean = np.mean([of_seed["accuracy"].mean for of_seed in sent])
    assert f"→ {mean:.4g}" in text
    assert "share improved" in text
    line = next(line for line in text.splitlines() if " sent " in line)
    assert f"{np.mean([of_seed['accuracy'].worst for of_seed in sent]):.4f}" in line
    assert "clients by accuracy" in front_in_terminal(record)


def test_the_histogram_counts_every_client(write_run):
    record = load(write_run("a", m=1, seeds=(0,), clients=5))
    record = with_last_values(dataclasses.replace(record, lines=record.lines[-1:]), [0.5, 0.5, 0.52, 0.81, 0.9])
    first, heads, *lines = clients_in_terminal([record], 60).splitlines()
    assert first == "clients by accuracy (higher is better)"
    assert heads.split() == ["sent", "trained"]
    assert max(map(len, lines)) <= 60
    counts = [int(line.split()[-1]) if "█" in line else 0 for line in lines]
    assert lines[0].startswith("0.85 to 0.9 ")
    assert counts == [1, 1, 0, 0, 0, 0, 0, 3]
    assert lines[-1].count("█") > 2 * lines[0].count("█")


@pytest.mark.parametrize("values", [[0.7] * 4, [0.0] * 4, [-3e5, 2e5, 0, 1], [1e-9, 2e-9, 3e-9, 4e-9]])
def test_any_values_have_a_histogram(write_run, values):
    record = load(write_run("a", m=1, seeds=(0,), clients=4, rounds=1))
    record = with_last_values(dataclasses.replace(record, lines=record.lines[-1:]), values)
    bars = [line for line in clients_in_terminal([record]).splitlines() if "█" in line]
    assert sum(int(line.split()[-1]) for line in bars) == 4
    nobody = with_last_values(record, [np.nan] * 4)
    assert "no client has a finite value" in clients_in_terminal([nobody])


# -- pictures and the page -------------------------------------------------------------------------------------------


def test_every_client_is_a_dot_and_the_diamond_the_mean(write_run):
    records = [load(write_run(name, name, m=1)) for name in ("fedpref", "fedavg")]
    sent, trained = clients_at_the_end(records).axes
    for i, record in enumerate(records):
        for axes, evaluation, count in ((sent, "sent", 30), (trained, "trained", 27)):
            values = np.concatenate(record.last_values(evaluation))[:, 0]
            assert len(values) == count
            dots = axes.collections[i].get_offsets()
            np.testing.assert_allclose(np.sort(dots[:, 0]), np.sort(values))
            diamond = [line for line in axes.lines if line.get_marker() == "D"][i]
            assert diamond.get_xdata()[0] == pytest.approx(values.mean())
    assert len(fronts(records).axes) == 2


def test_the_curves_are_mean_and_worst_and_the_band_ends_at_the_percentile(write_run):
    record = load(write_run("a", rounds=3))
    figure = clients_curves([record])
    assert len(figure.axes) == 4  # two objectives, two evaluations
    trained = figure.axes[3]
    assert trained.get_title() == ""
    mean, worst = trained.lines
    assert mean.get_xdata().tolist() == [1, 2, 3], "what is trained in a round stands at its number"
    for r in (0, 2):
        found = [of_seed["equal opportunity gap"] for of_seed in record.across_clients("trained", r)]
        assert mean.get_ydata()[r] == pytest.approx(np.mean([one.mean for one in found]))
        assert worst.get_ydata()[r] == pytest.approx(np.mean([one.worst for one in found]))
        low = np.mean([one.low for one in found])
        assert np.isclose(trained.collections[0].get_paths()[0].vertices[:, 1], low).any()


def test_the_share_improved_is_drawn_for_runs_that_measured_it(write_run):
    with_losses, without = load(write_run("a", "fedpref", measured=True)), load(write_run("b"))
    (axes,) = share_improved_curves([without, with_losses]).axes
    (line,) = axes.lines
    rounds, shares = with_losses.share_improved()
    assert rounds.tolist() == list(range(1, 13))
    np.testing.assert_allclose(line.get_ydata(), shares.mean(axis=0))


def test_the_mean_of_one_seed_has_no_interval_and_needs_no_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    assert interval([1.0]) is None
