"""Presence against a loop over seconds."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from round_trips import trips

from fedpareto.clock.devices import Devices
from fedpareto.clock.presence import Presence

LAST = 30
"""Traces end by then, and periods are as long."""

whole_seconds = st.integers(0, LAST)
ascending = st.sets(whole_seconds, min_size=2, max_size=8).map(lambda some: sorted(some)[: len(some) // 2 * 2])
traces = st.lists(ascending.map(lambda some: np.reshape(some, (-1, 2))), min_size=1, max_size=4)
tasks = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3 * LAST), st.integers(0, 2 * LAST)), min_size=1)


def done_by_a_loop(is_present, task, end):
    """Second by second, until everything is over."""
    row, time, seconds = task
    while time < end and not is_present(row, time):
        time += 1
    if time >= end:
        return math.inf
    while time < end and seconds:
        seconds -= is_present(row, time)
        time += 1
    return math.inf if seconds else time


def must_equal_the_loop(presence, is_present, some, end=100 * LAST):
    """For each task: its client, its start and its seconds."""
    rows, start, seconds = np.array(some, dtype=float).T
    rows = rows.astype(int)
    assert presence.present(rows, start).tolist() == [is_present(row, time) for row, time, _ in some]
    assert presence.finish(rows, start, seconds).tolist() == [done_by_a_loop(is_present, one, end) for one in some]
    at_once = [done_by_a_loop(is_present, (row, time, 0), end) for row, time, _ in some]
    assert presence.following(rows, start).tolist() == at_once


@settings(max_examples=60)
@given(traces, tasks, st.booleans())
def test_presence_by_intervals_is_that_of_a_loop_over_seconds(intervals, some, repeats):
    def is_present(row, time):
        inside = time % LAST if repeats else time
        return any(start <= inside < end for start, end in intervals[row])

    some = [(row % len(intervals), *rest) for row, *rest in some]
    if repeats:
        must_equal_the_loop(Presence.of(intervals, LAST), is_present, some)
    else:
        must_equal_the_loop(Presence.of(intervals), is_present, some, LAST)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 40)), min_size=1, max_size=4), tasks)
def test_presence_by_cycles_is_that_of_a_loop_over_seconds(machines, some):
    def is_present(row, time):
        present, phase = machines[row]
        return (time + phase) % 8 < present

    present, phase = np.array(machines, dtype=float).T
    must_equal_the_loop(
        Presence.cycles(8.0, present / 8, phase), is_present, [(row % len(machines), *rest) for row, *rest in some]
    )


def test_who_never_leaves_is_done_when_the_work_is_to_the_last_bit():
    presence, rows = Presence.always(3), np.arange(3)
    start, seconds = np.array([0.1, 1e9, 1 / 3]), np.array([0.2, 1e-3, 1e6])
    assert presence.finish(rows, start, seconds).tolist() == (start + seconds).tolist()
    assert presence.finish(rows, np.array([math.inf, 0, 1]), np.array([1, math.inf, 0])).tolist() == [math.inf] * 2 + [
        1
    ]


def test_a_client_that_leaves_in_the_middle_of_its_work_goes_on_when_it_returns():
    """Present in the first 4 of every 10 seconds: 1 to receive, 6 to compute, 2 to send."""
    machines = Devices(
        "equal", speed=(1.0,), down=(8.0,), up=(4.0,), latency=(0.0,), loss=(0.0,), compute_watts=(2.0,),
        radio_watts=(1.0,), availability="periodic", period=10.0, present=(0.4,), phase=(0.0,)
    )  # fmt: skip
    found = trips(machines.fleet(np.arange(1), 0), np.zeros(1, int), 2.0, 6.0, 8.0, 8.0)
    assert [one.tolist() for one in (found.received, found.computed, found.arrived)] == [[3.0], [21.0], [23.0]]
    assert found.joules.tolist() == [6 * 2 + 3 * 1]


def test_who_is_gone_for_good_never_replies(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("client,start,end\n4,0,2\n9,0,10\n4,5,inf\n", encoding="utf-8")
    machines = Devices(
        "equal", speed=(1.0,), down=(1.0,), up=(1.0,), latency=(0.0,), loss=(0.0,), availability=str(trace)
    )
    fleet = machines.fleet(np.array([4, 9]), 0)
    found = trips(fleet, np.arange(2), 1.0, 8.0, 1.0, 1.0)
    assert found.received.tolist() == [2.0, 2.0]
    assert found.arrived.tolist() == [14.0, math.inf]
    assert fleet.presence.present(np.arange(2), 3.0).tolist() == [False, True]


def test_phases_are_drawn_from_the_seed_and_the_share_of_present_clients_is_what_was_said():
    clients = np.arange(4_000)
    machines = Devices("equal", availability="periodic", present=(0.3,))
    fleet, again, other = (machines.fleet(clients, seed) for seed in (0, 0, 1))
    noon = np.full(4_000, 43_200.0)
    here = fleet.presence.present(clients, noon)
    assert abs(here.mean() - 0.3) < 0.03
    assert (here == again.presence.present(clients, noon)).all()
    assert (here != other.presence.present(clients, noon)).any()
    few = machines.fleet(clients[5:8], 0)
    assert few.presence.present(np.arange(3), 43_200.0).tolist() == here[5:8].tolist()
