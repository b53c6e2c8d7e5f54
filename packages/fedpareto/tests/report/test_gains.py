"""What clients gain over training alone, against what is computed here by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from fedpareto.config.errors import UserError
from fedpareto.record.reading import load
from fedpareto.report.client_figures import gains, render
from fedpareto.report.gains import gain


def by_hand(run, alone):
    """`[seeds, n]` of the final values on test rows; the first objective is maximised, the others are minimised."""
    sense = np.array([1] + [-1] * (len(run.objectives) - 1))
    found = []
    for mine, theirs in zip(run.solutions, alone.solutions, strict=True):
        difference = mine.objectives["test"] - theirs.objectives["test"]
        found.append((mine.preferences * sense * difference).sum(axis=1))
    return np.array(found)


@pytest.fixture
def pair(write_run):
    return load(write_run("a", "local")), load(write_run("b", "fedpref"))


def test_a_gain_is_the_difference_in_utility_of_each_client_in_each_seed(pair):
    alone, run = pair
    found, expected = gain(run, alone), by_hand(run, alone)
    assert found.by_client == pytest.approx(expected, abs=1e-12)
    assert found.better_off == (expected > 0).sum()
    assert found.mean == pytest.approx(expected.mean())
    sure = ttest_1samp(expected.mean(axis=1), 0).confidence_interval(0.95)
    assert (found.over_seeds.low, found.over_seeds.high) == pytest.approx((sure.low, sure.high))


def test_in_words_it_says_how_sure_it_is_and_for_how_many(pair):
    alone, run = pair
    found = gain(run, alone)
    words = found.in_words()
    assert words.startswith(f"{found.mean:+.3f} (")
    assert words.endswith(f"95 % over 3 seeds), {found.better_off} of {found.by_client.size} clients better off")


def test_there_is_no_gain_where_clients_are_not_the_same(write_run):
    alone, other = load(write_run("a", "local", clients=4)), load(write_run("b", "fedpref", clients=5))
    assert gain(other, alone) is None
    assert gain(alone, alone) is None
    with pytest.raises(UserError, match="gains need a run of 'local' and another with the same"):
        gains([alone, other])
    with pytest.raises(UserError, match="gains need a run of 'local'"):
        gains([other])


def test_the_figure_has_every_client_where_its_preference_is_with_its_mean_over_seeds(write_run):
    records = [load(write_run(name, name)) for name in ("local", "fedavg", "fedpref")]
    figure = gains(records)
    (axes,) = figure.axes
    wants = records[0].preferences(records[0].started[0])[:, 0]
    step = np.diff(np.unique(wants)).min()
    drawn = [line for line in axes.lines if line.get_marker() not in ("None", "")]
    assert len(drawn) == 2
    for line, record in zip(drawn, records[1:], strict=True):
        places, heights = line.get_data()
        assert np.abs(places - wants).max() < step / 4
        assert heights == pytest.approx(by_hand(record, records[0]).mean(axis=0))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["fedavg", "fedpref"]
    assert records[0].objectives[0].name in axes.get_xlabel()
    assert render(figure, "png").startswith(b"\x89PNG")


def test_with_three_objectives_clients_stand_side_by_side(write_run):
    records = [load(write_run(name, name, m=3)) for name in ("local", "fedpref")]
    (axes,) = gains(records).axes
    assert axes.get_xlabel() == "client"
