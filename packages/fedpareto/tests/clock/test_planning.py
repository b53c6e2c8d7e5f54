"""When a planned round closes: by hand, and in its limits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.clock.planning import idling, is_cheapest_now
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.runs.loop import Experiment
from fedpareto.runs.runner import resume, start
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft

CLIENTS = 6


def spec_of(policy, devices, **values):
    engine = {"precision": "float64", "threads": 1, "chunk": 4}
    given = {"problem": "convex", "algorithm": "fedbuff", "clients": CLIENTS, "rounds": 8, "engine": engine}
    return Draft({**given, "policy": policy, "devices": devices, **values}).finish()


def models(result):
    return torch.stack([result.models[0][client] for client in sorted(result.models[0])])


def column(result, name):
    return [row.get(name) for row in result.history]


DIFFERENT = {"kind": "equal", "speed": [1e5, 1.1e5, 1.3e5, 1.7e5, 1.9e5, 2.3e5]}
AT_TIMES = {
    **DIFFERENT,
    "availability": "periodic",
    "period": 1.0,
    "present": 0.3,
    "phase": [0.1, 0.25, 0.4, 0.5, 0.7, 0.9],
}


def test_the_cheapest_moment_by_hand():
    """Staleness costs 6 in each round. A reply alone costs 6; with another that makes it idle for 1, each costs 3.5."""
    assert not is_cheapest_now(6.0, np.array([0.0, 1.0]), 1)
    assert is_cheapest_now(6.0, np.array([0.0, 7.0]), 1)  # (6 + 7) / 2 is more than 6.
    assert is_cheapest_now(6.0, np.array([0.0]), 1)  # Nobody else comes.
    assert not is_cheapest_now(6.0, np.array([0.0, 7.0, 8.0]), 1)  # The one after it makes up for it: 14 / 3.


def test_idling_is_counted_until_a_client_can_be_reached_again():
    """Two clients of which one leaves: what it cannot fetch before it leaves, it fetches when it comes back."""
    devices = {**DIFFERENT, "availability": "periodic", "period": 10.0, "present": 0.2, "phase": 0.0, "latency": 0}
    spec = spec_of("planned", {**devices, "speed": 1e15, "down": 1e30, "up": 1e30}, clients=2)
    with backends.opened(spec) as engine:
        flight = Experiment(spec, engine).dispatch.flights[0]
        flight.left[:], flight.landed[:], flight.arrives[:] = 0.0, [0.5, np.inf], [np.inf, 2.5]
        flight.now = 0.5
        # The second arrives when the first, which was present until 2, is away until 10.
        assert idling(flight, np.array([0]), np.array([1])).tolist() == [0.0, (10.0 - 0.5) / 0.5]


@pytest.mark.parametrize("limit", ["buffered", "asynchronous"])
def test_its_limits_are_buffered_and_asynchronous_to_the_bit(limit):
    policy = {"buffered": {"idling": 0.0}, "asynchronous": {"idling": 1e9, "least": 1}}[limit]
    planned = start(spec_of({"kind": "planned", "buffer": 3, **policy}, DIFFERENT))
    other = start(spec_of({"kind": limit, **({"buffer": 3} if limit == "buffered" else {})}, DIFFERENT))
    assert torch.equal(models(planned), models(other))
    assert column(planned, "clock") == column(other, "clock")


def test_a_round_has_as_many_replies_as_it_may_have():
    result = start(spec_of({"kind": "planned", "least": 2, "buffer": 4}, AT_TIMES, rounds=20))
    replies = column(result, "replies")[:-1]
    assert 2 <= min(replies) < max(replies) <= 4


def test_clients_that_come_and_go_are_asked_once_they_are_there():
    """So what they begin from is as fresh as can be: with the same number of replies they are less stale."""
    policy = {"kind": "planned", "buffer": 3, "least": 3}
    planned = start(spec_of(policy, AT_TIMES, rounds=20))
    buffered = start(spec_of({"kind": "buffered", "buffer": 3}, AT_TIMES, rounds=20))
    assert set(column(planned, "replies")[:-1]) == set(column(buffered, "replies")[:-1]) == {3}
    assert np.mean(column(planned, "staleness")[:-1]) < np.mean(column(buffered, "staleness")[:-1])


@pytest.mark.takes_long
def test_it_gets_more_replies_in_the_same_time_than_a_buffer():
    results = [
        start(spec_of({"kind": kind, "buffer": 5}, AT_TIMES, rounds=1000, hours=60 / 3600))
        for kind in ("planned", "buffered")
    ]
    planned, buffered = (sum(column(result, "replies")) for result in results)
    assert planned > buffered


def test_a_planned_run_goes_on_after_a_stop_bit_for_bit(tmp_path):
    spec = spec_of({"kind": "planned", "buffer": 4}, AT_TIMES, rounds=12)
    whole = start(spec)
    stops = iter([False] * 4 + [True])
    with pytest.raises(Stopped):
        start(spec, tmp_path / "run", stop=lambda: next(stops))
    again = resume(tmp_path / "run")
    assert torch.equal(models(whole), models(again))
    assert column(whole, "clock") == column(again, "clock")


def test_nobody_knows_when_real_nodes_come():
    with pytest.raises(UserError, match="nobody knows when nodes"):
        Draft({"clients": 3, "policy": "planned", "engine": "flower-local"}).finish()
