"""Power of satellites: what can be computed by hand, and what must hold of every battery."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.clock.presence import Presence
from fedpareto.config.errors import UserError
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft
from fedpareto_space.missions.options import MissionOptions
from fedpareto_space.missions.power import Battery, Sunlight

ONE = np.array([0])
DAY_AND_NIGHT = Presence.of([np.array([[0.0, 1000.0], [1600.0, math.inf]])])
"""A shadow from 1000 to 1600 s."""


def battery(light=DAY_AND_NIGHT, capacity=1000.0, solar=10.0, idle=2.0):
    return Battery.full(light, capacity, solar, idle)


def done(power, start, seconds, watts=6.0):
    """When the only satellite is done."""
    return power.finish(ONE, np.array([start]), np.array([seconds]), np.array([watts]))[0]


def begin(power, start, seconds, watts=6.0):
    power.begin(ONE, np.array([start]), np.array([seconds]), np.array([watts]))


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_a_satellite_computes_in_the_shadow_until_its_battery_is_empty_and_goes_on_in_sunlight():
    power = battery()
    # 100 s in sunlight; then 1000 J at 6 + 2 W, 125 s; 275 s are left for after the shadow, each with 2 W to spare.
    assert done(power, 900.0, 500.0) == 1875.0
    begin(power, 900.0, 500.0)
    assert power.pauses(0) == [(1125.0, 1600.0)]
    assert [power.level(0, time) for time in (900.0, 1000.0, 1100.0, 1300.0, 1700.0)] == [1000, 1000, 200, 0, 200]
    assert power.level(0, 1875.0) == 550.0
    assert power.level(0, 2000.0) == 1000.0  # 550 J and 125 s of 8 W are more than it holds.


def test_work_that_fits_into_the_battery_takes_as_long_in_the_shadow_as_in_sunlight():
    power = battery()
    assert done(power, 1000.0, 125.0) == 1125.0
    begin(power, 1000.0, 125.0)
    assert power.pauses(0) == []


def test_panels_too_weak_for_the_work_charge_the_battery_first():
    power = battery(solar=5.0)
    begin(power, 1000.0, 125.0)  # to the last joule
    # At 3 W for 100 J, which last at 6 - 3 W for as long: half of the time is work, in 33 1/3 s each.
    third = 100.0 / 3
    assert done(power, 1125.0, 2.5 * third) == pytest.approx(1600 + 5.5 * third)
    begin(power, 1125.0, 2.5 * third)
    expected = [(1125.0, 1600 + third), (1600 + 2 * third, 1600 + 3 * third), (1600 + 4 * third, 1600 + 5 * third)]
    assert np.array(power.pauses(0)) == pytest.approx(np.array(expected))


def test_without_light_what_the_battery_has_not_is_never_done():
    dark = Presence.of([np.array([[0.0, 1000.0]])])
    power = battery(dark)
    assert done(power, 1000.0, 125.0) == 1125.0
    assert done(power, 1000.0, 126.0) == math.inf
    begin(power, 1000.0, 126.0)
    assert power.pauses(0) == [(1125.0, math.inf)]
    assert done(power, math.inf, 1.0) == math.inf
    assert done(battery(dark), 1126.0, 1.0, 0.0) == 1127.0  # 1000 J are more than 126 s of 2 W


def test_new_work_takes_the_place_of_the_old_with_what_that_left_in_the_battery():
    power = battery()
    begin(power, 1000.0, 500.0)
    begin(power, 1050.0, 500.0)
    assert power.book[0].tolist() == [1050.0, 600.0, 500.0, 6.0]
    assert power.pauses(0) == [(1125.0, 1600.0)]
    begin(power, math.inf, 500.0)
    begin(power, 900.0, 1.0)  # Nobody is asked for work before what was asked last.
    assert power.book[0].tolist() == [1050.0, 600.0, 1.0, 6.0]


def test_to_ask_when_work_would_be_done_changes_nothing():
    power = battery()
    before = power.book.copy()
    assert done(power, 1000.0, 400.0) == done(power, 1000.0, 400.0)
    assert np.array_equal(power.book, before)


def test_without_a_battery_the_pauses_are_the_shadows():
    power = Sunlight.of(DAY_AND_NIGHT)
    assert done(power, 900.0, 500.0) == 2000.0
    begin(power, 900.0, 500.0)
    assert power.pauses(0) == [(1000.0, 1600.0)]
    assert power.pauses(0, until=1000.0) == []
    begin(power, 1200.0, 10.0)
    assert power.pauses(0) == [(1200.0, 1600.0)]
    begin(power, 1600.0, 10.0)
    assert power.pauses(0) == []


# -- limits ----------------------------------------------------------------------------------------------------------

edges = st.sets(st.integers(1, 2000), max_size=8).map(sorted)
work = st.tuples(st.integers(0, 2000), st.floats(0.5, 800.0), st.floats(0.5, 20.0))


def light_of(changes, shines_first):
    """Light that changes at these seconds, and is there at the end."""
    times = [0, *changes] if shines_first else list(changes)
    times = times if len(times) % 2 else [*times, 2500]
    return Presence.of([np.array([*times, math.inf], dtype=float).reshape(-1, 2)])


@given(edges, st.booleans(), work)
def test_a_battery_without_end_knows_no_shadow(changes, shines, task):
    start, seconds, watts = task
    found = done(battery(light_of(changes, shines), capacity=1e9), start, seconds, watts)
    assert found == pytest.approx(start + seconds, abs=1e-9)


@given(edges, st.booleans(), work)
def test_a_battery_of_next_to_nothing_is_sunlight(changes, shines, task):
    start, seconds, _ = task
    light = light_of(changes, shines)
    found = done(battery(light, capacity=1e-9), start, seconds)
    assert found == pytest.approx(done(Sunlight.of(light), start, seconds), abs=1e-6)


# -- what holds always -----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(edges, st.booleans(), st.lists(work, min_size=1, max_size=4), st.floats(300.0, 5000.0), st.floats(0.0, 9.0))
def test_energy_is_conserved_and_never_negative_nor_above_what_the_battery_holds(
    changes, shines, tasks, capacity, idle
):
    light = light_of(changes, shines)
    power = battery(light, capacity, 10.0, idle)
    for at, seconds, watts in sorted(tasks):
        before = power.level(0, at)
        begin(power, at, seconds, watts)
        assert power.level(0, at) == pytest.approx(before)
        worked = 0.0
        for piece, following in pairwise(power.course(0, power.book[0].tolist())):
            assert 0 <= piece.level <= capacity
            length = piece.end - piece.start
            assert following.start == piece.end
            assert following.level == pytest.approx(piece.level + piece.slope * length, abs=1e-6)
            if length > 1e-9:
                is_lit = bool(light.present(ONE, (piece.start + piece.end) / 2)[0])
                panels = 10.0 * is_lit - idle
                flow = panels - watts * piece.works
                full, empty = piece.level == capacity and flow > 0, piece.level == 0 and flow < 0
                assert piece.slope == (0.0 if full or empty else flow)
                assert not (empty and piece.works)
                assert not (piece.waits and panels >= watts)
            worked += piece.works * length
        if done(power, at, seconds, watts) < math.inf:
            assert worked == pytest.approx(seconds)


# -- of a mission ----------------------------------------------------------------------------------------------------


def test_panels_that_leave_nothing_for_learning_are_refused():
    with pytest.raises(UserError, match="nothing is left for learning"):
        MissionOptions(solar_watts=5.0, idle_watts=5.0)
    with pytest.raises(UserError, match="with solar_watts only"):
        MissionOptions(battery=5.0)


def test_pauses_for_power_are_in_the_log_with_the_satellites_name(tmp_path):
    engine = {"name": "mission", "shell": "4/2/1", "threads": 1, "chunk": 8}
    engine |= {"solar_watts": 4.0, "idle_watts": 1.0, "battery": 0.2}
    values = {
        "algorithm": "fedavg",
        "problem": "convex",
        "rounds": 1,
        "hours": 24,
        "devices": {"kind": "equal", "speed": 1.0, "compute_watts": 5.0},
        "engine": engine,
    }
    start(Draft(values).finish(), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "mission.jsonl").read_text().splitlines()]
    trips = {one["satellite"]: one for one in lines if one["what"] == "trip"}
    pauses = [one for one in lines if one["what"] == "fault" and one["fault"] == "low power"]
    assert pauses
    names = json.loads((tmp_path / "run" / "mission.json").read_text())["satellites"]
    for one in pauses:
        trip = trips[names.index(one["who"])]
        assert trip["received"] <= one["time"] <= trip["ready"]
        assert one["action"].startswith("paused until ")
