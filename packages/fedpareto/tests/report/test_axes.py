"""A run over its rounds, its simulated clock or its costs: against grids and units by hand."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from fedpareto.config.errors import UserError
from fedpareto.record.reading import load
from fedpareto.record.units import BYTES, COUNT, ENERGY, TIME
from fedpareto.report.axes import axis_of, nearly_there, positions, shared
from fedpareto.report.client_figures import clients_curves, share_improved_curves
from fedpareto.report.comparison import comparison
from fedpareto.report.figures import hypervolume_curves
from fedpareto.report.terminal import show


@pytest.fixture
def slow(write_run):
    """Two seeds of three rounds, of 60 and 120 seconds each."""
    return load(write_run("slow", rounds=3, seeds=(0, 1), slow=60.0))


def with_hypervolumes(record, *by_seed):
    """The same run with these hypervolumes, row by row."""
    found = {seed: iter(values) for seed, values in zip(record.started, by_seed, strict=True)}
    lines = (dataclasses.replace(line, hypervolume=next(found[line.seed])) for line in record.lines)
    return dataclasses.replace(record, lines=tuple(lines))


# -- units -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "value", "text"),
    [
        (TIME, 0.0, "0 s"),
        (TIME, 0.0421, "42.1 ms"),
        (TIME, 59.0, "59 s"),
        (TIME, 90.0, "1.5 min"),
        (TIME, 3.2 * 3600, "3.2 h"),
        (TIME, 1234.4 * 86400, "1,234 days"),
        (ENERGY, 14_000.0, "14 kJ"),
        (ENERGY, 2.5e6, "2.5 MJ"),
        (BYTES, 999.0, "999 B"),
        (BYTES, 12_345_678.0, "12.3 MB"),
        (COUNT, 1200.0, "1,200"),
    ],
)
def test_quantities_are_told_in_the_largest_unit_of_which_there_is_one(quantity, value, text):
    assert quantity.text(value) == text


def test_the_unit_is_that_of_the_end_of_the_longest_run(slow, write_run):
    short = load(write_run("short", "fedpref", rounds=3, seeds=(0, 1), slow=1.0))
    assert axis_of([short]).label == "clock time (s)"
    assert axis_of([short, slow]).label == "clock time (min)"
    assert axis_of([slow], "joules").label == "energy of all clients (J)"
    assert axis_of([slow], "bytes").label == "bytes sent, both ways (kB)"
    assert axis_of([slow], "updates").label == "replies so far"


# -- the common axis -------------------------------------------------------------------------------------------------


def test_a_value_stands_until_the_next_one():
    """At 0, 2 and 4 the first seed has 1, 3 and 5; the second has 10, 20 and 30 at 1, 2 and 7."""
    grid, values = shared(np.array([[0.0, 2.0, 4.0], [1.0, 2.0, 7.0]]), np.array([[1.0, 3.0, 5.0], [10.0, 20.0, 30.0]]))
    assert grid.tolist() == [1, 2, 4, 7], "from where both have a value, to the last"
    assert values.tolist() == [[1, 3, 5, 5], [10, 20, 20, 30]]


def test_of_two_values_at_the_same_time_the_later_one_counts():
    grid, values = shared(np.array([[0.0, 1.0, 1.0], [0.0, 1.0, 2.0]]), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    assert grid.tolist() == [0, 1, 2]
    assert values.tolist() == [[1, 3, 3], [4, 5, 6]]


def test_a_curve_of_many_rounds_keeps_both_ends():
    places = np.sort(np.random.default_rng(0).uniform(size=(3, 5000)))
    places[:, 0] = 0
    grid, values = shared(places, places)
    assert len(grid) == 1000
    assert (grid[0], grid[-1]) == (0, places.max())
    assert (values <= grid).all()


def test_costs_of_a_place_are_those_of_all_rounds_before_it(slow):
    rounds = slow.common_rounds
    assert positions(slow, "round", rounds).tolist() == [[0, 1, 2, 3]] * 2
    assert positions(slow, "clock", rounds).tolist() == [[0, 60, 120, 180], [0, 120, 240, 360]]
    assert positions(slow, "updates", rounds).tolist() == [[0, 10, 20, 30]] * 2
    assert positions(slow, "bytes", rounds).tolist() == [[0, 20_000, 40_000, 60_000]] * 2
    np.testing.assert_allclose(positions(slow, "seconds", rounds)[1], [0, 0.11, 0.22, 0.33])
    assert np.isnan(positions(slow, "clock", np.array([4]))).all()


def test_mean_and_band_are_made_over_the_same_time(slow):
    record = with_hypervolumes(slow, [0.1, 0.2, 0.4, 0.4], [0.1, 0.3, 0.5, 0.6])
    (axes,) = hypervolume_curves([record]).axes
    sent, trained = axes.lines
    assert axes.get_xlabel() == "clock time (min)"
    assert sent.get_drawstyle() == "steps-post"
    assert sent.get_xdata().tolist() == [0, 1, 2, 3, 4, 6]
    np.testing.assert_allclose(sent.get_ydata(), [0.1, 0.15, 0.35, 0.35, 0.45, 0.5])
    tops = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert tops.max() == pytest.approx(0.6), "at the end 0.4 and 0.6 deviate by 0.1"
    assert trained.get_xdata()[0] == 2, "what is trained in the first round is there when both seeds have done it"


def test_every_figure_of_a_course_has_every_axis(write_run):
    record = load(write_run("a", measured=True, rounds=3, seeds=(0, 1), slow=60.0))
    for draw in (hypervolume_curves, clients_curves, share_improved_curves):
        labels = [draw([record], over).axes[-1].get_xlabel() for over in (None, "round", "joules", "seconds")]
        assert labels == [
            "clock time (min)",
            "round",
            "energy of all clients (J)",
            "time on this machine (ms)",
        ]


def test_without_a_choice_rounds_are_the_axis_unless_all_runs_have_a_clock(slow, write_run):
    plain = load(write_run("plain", "fedpref", rounds=3))
    assert axis_of([slow]).over == "clock"
    assert axis_of([slow, plain]).over == "round"
    with pytest.raises(UserError, match=r"plain cannot be drawn over clock: it was run without devices; .* round, "):
        axis_of([slow, plain], "clock")
    with pytest.raises(UserError, match="unknown axis 'clok'; did you mean 'clock'"):
        axis_of([slow], "clok")


# -- the way there ---------------------------------------------------------------------------------------------------


def test_the_way_to_95_per_cent_ends_where_a_run_stays_within_five(slow):
    """Seed 0 begins with more, loses it, and stays from round 2 on; seed 1 is there only at the end."""
    record = with_hypervolumes(slow, [0.6, 0.1, 0.39, 0.4], [0.1, 0.5, 0.5, 0.6])
    assert nearly_there(record, "clock").tolist() == [120, 360]
    assert nearly_there(record, "round").tolist() == [2, 3]
    assert nearly_there(record, "joules").tolist() == [100, 150]
    special = with_hypervolumes(slow, [0, 0, 0, np.nan], [0.6, 0.6, 0.6, 0.6])
    np.testing.assert_array_equal(nearly_there(special, "round"), [np.nan, 0])


def test_a_table_tells_time_in_a_unit_and_a_program_gets_seconds(slow):
    table = comparison([with_hypervolumes(slow, [0.6, 0.1, 0.39, 0.4], [0.1, 0.5, 0.5, 0.6])])
    headings = [column.heading for column in table.columns]
    assert headings[-4:] == [
        "clock time (min)",
        "energy (J)",
        "time to 95 % (min) ↓",
        "staleness (rounds)",
    ]
    assert table.cell("fedavg", "clock").text == "4.5 ± 1.5"
    assert table.cell("fedavg", "nearly").text == "4 ± 2"
    assert table.cell("fedavg", "staleness").values == (0, 1)
    plain = table.to_plain()
    assert plain["rows"][0]["values"]["clock"]["per_seed"] == [180, 360]
    assert next(one for one in plain["columns"] if one["key"] == "clock")["unit"] == "s"


def test_runs_without_a_clock_have_no_columns_about_time_unless_asked(write_run):
    record = load(write_run("a", rounds=3))
    keys = {column.key for column in comparison([record]).columns}
    assert not keys & {"clock", "joules", "nearly", "staleness"}
    assert "bytes to 95 %" in {column.title for column in comparison([record], "bytes").columns}


def test_the_terminal_shows_a_course_at_even_times(slow):
    """Seed 0 has its step after one of six minutes, seed 1 after four."""
    record = with_hypervolumes(slow, [0, 1, 1, 1], [0, 0, 1, 1])
    stream = io.StringIO()
    Console(file=stream, width=120).print(show(record, 120))
    (line,) = [line for line in stream.getvalue().splitlines() if "▁" in line]
    assert line.split()[2] == "▁" * 8 + "▅" * 24 + "█" * 16
    assert "0 → 1 in 6 min of clock time" in line
