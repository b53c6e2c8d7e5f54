"""Polls become rarer in a long wait, and still nobody waits much longer for that."""

from __future__ import annotations

import pytest

from fedpareto_flower.engine.pauses import LONGEST, SHARE, pause_after


def polls(shortest, until):
    """The times of all polls, in seconds since the first, up to the first after `until`."""
    times = [0.0]
    while times[-1] < until:
        times.append(times[-1] + pause_after(times[-1], shortest))
    return times


@pytest.mark.parametrize("came", [0.05, 0.7, 3.0, 8.0, 100.0])
def test_what_came_is_seen_within_a_tenth_of_the_wait_and_a_second(came):
    shortest = 0.1
    late = polls(shortest, came)[-1] - came
    assert late <= max(shortest, min(SHARE * came, LONGEST)) + 1e-9


def test_ten_times_the_wait_takes_as_many_polls_again_and_not_ten_times():
    some, more = (len(polls(0.01, until)) for until in (1.0, 10.0))
    assert more - some <= some
    assert len(polls(0.01, 10.0)) < 10.0 / 0.01 / 10


def test_a_pause_is_never_shorter_than_asked_for():
    assert pause_after(0.0, 0.1) == 0.1
    assert pause_after(1000.0, 5.0) == 5.0
