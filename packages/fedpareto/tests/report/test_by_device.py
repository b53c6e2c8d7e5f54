"""Whether slow clients have their share: by hand, from run folders with devices."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from fedpareto.record.columns import in_folder
from fedpareto.record.reading import load
from fedpareto.report.by_device import by_device, in_terminal
from fedpareto.report.comparison import comparison
from fedpareto.report.machines import of_clients, rank_correlation, updates
from fedpareto.report.terminal import clients_plain

SECONDS = np.array([9.0, 8.0, 7.0, 1.0, 2.0, 3.0])


def with_devices(folder, tier):
    """Adds what clients run on to round 0; in round r the clients r, r + 1, … of six reply."""
    columns = in_folder(folder, 6, ("train", "test"), 2)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if line["round"] == 0:
            line["columns"]["device_tier"] = columns.put(np.array(tier))
            line["columns"]["device_seconds"] = columns.put(SECONDS)
        heard = np.arange(line["round"], 6)
        line["columns"]["traffic"] = columns.put(np.stack([np.zeros(6), np.isin(np.arange(6), heard)], axis=1))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return load(folder)


@pytest.fixture
def tiered(write_run):
    extra = {"tiers": ["phones", "servers"]}
    return with_devices(write_run("a", clients=6, rounds=2, seeds=(0, 1), extra=extra), [0, 0, 0, 1, 1, 1])


def test_updates_are_the_rounds_in_which_a_client_was_heard(tiered):
    assert updates(tiered, 0).tolist() == [1, 2, 3, 3, 3, 3]


def test_a_table_by_device_is_that_of_its_clients(tiered):
    (table,) = by_device([tiered])
    assert [row.label for row in table.rows] == ["fedavg, phones", "fedavg, servers"]
    own = [of_clients(tiered, seed).utility for seed in (0, 1)]
    expected = {
        "clients": [3, 3],
        "exchange": [8, 8],
        "updates": [2, 2],
        "utility": [one[:3].mean() for one in own],
        "worst": [one[:3].min() for one in own],
    }
    for key, values in expected.items():
        assert table.cell("fedavg, phones", key).values == pytest.approx(values), key
    assert "exchange (s)" in [column.heading for column in table.columns]
    assert np.isclose(own[0], tiered.own_utilities(0)).all()


def test_without_tiers_there_are_thirds_by_speed(write_run):
    record = with_devices(write_run("a", clients=6, rounds=2, seeds=(0,)), [0] * 6)
    (table,) = by_device([record])
    exchanges = [table.cell(row.label, "exchange").mean for row in table.rows]
    assert exchanges == [8.5, 5.0, 1.5]
    assert [row.label.split(", ")[1] for row in table.rows] == ["slowest third", "middle third", "fastest third"]
    assert by_device([load(write_run("b"))]) == []


def test_rank_correlation_by_hand():
    assert rank_correlation(np.array([1.0, 2, 3]), np.array([10.0, 20, 1000])) == pytest.approx(1)
    assert rank_correlation(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(0.8)
    # Ranks 1.5, 1.5, 3 and 1, 2, 3: covariance 1.5, variances 1.5 and 2.
    assert rank_correlation(np.array([5.0, 5, 7]), np.array([1.0, 2, 3])) == pytest.approx(1.5 / np.sqrt(1.5 * 2))
    assert np.isnan(rank_correlation(np.array([1.0, 1]), np.array([1.0, 2])))


def test_those_who_are_fast_have_more_where_the_correlation_is_positive(tiered):
    found = comparison([tiered]).cell("fedavg", "utility_by_speed").values
    expected = [rank_correlation(1 / SECONDS, of_clients(tiered, seed).utility) for seed in (0, 1)]
    assert found == pytest.approx(expected)


def test_a_client_is_listed_with_its_device_and_the_terminal_fits(tiered):
    first = clients_plain(tiered, 0)[0]
    assert (first["device"], first["exchange_seconds"], first["updates"]) == ("phones", 9.0, 1)
    stream = io.StringIO()
    Console(file=stream, width=80).print(in_terminal([tiered]))
    assert max(map(len, stream.getvalue().splitlines())) <= 80
    assert "phones" in stream.getvalue()
