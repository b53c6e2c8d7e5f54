"""Coded replies on a simulated clock: their bytes decide when they arrive, and nothing else of them does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.messages import Failure, Outcome, Replies, Tasks, tasks_for
from fedpareto.runs.loop import Experiment
from fedpareto.runs.runner import resume, start
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from folders import assert_same_results, rows

SMALL = {"problem": {"name": "convex", "dimension": 40}, "clients": 7, "rounds": 5}
POLICIES = {
    "sync": "sync",
    "buffered": {"kind": "buffered", "buffer": 3, "concurrency": 4},
    "asynchronous": {"kind": "asynchronous", "concurrency": 3},
    "tiers": {"kind": "tiers", "tiers": 3},
    "deadline": {"kind": "deadline", "deadline": 0.07},
    "dropped": {"kind": "deadline", "deadline": 0.07, "late": "dropped"},
}
NO_WAY = {"latency": 0, "down": 1e30, "up": 1e30}
"""Links that take no time beside the training."""


def spec_of(algorithm="fedavg", policy="sync", devices="lognormal", chunk=4, **values):
    given = {"algorithm": algorithm, "policy": policy, "devices": devices, "engine": {"threads": 1, "chunk": chunk}}
    return Draft({**SMALL, **given, **values}).finish()


def models(result, run=0):
    return torch.stack([result.models[run][client] for client in sorted(result.models[run])])


def column(result, name, seed=0):
    return [row.get(name) for row in result.history if row["seed"] == seed]


def sizes_alone(spec):
    """Bytes of everybody's first reply, and where the clients are."""
    with backends.opened(spec) as engine:
        tasks = spec.algorithm.ask(spec.algorithm.begin(engine.settings[0]))
        return engine.run(tasks).replies.sizes, engine.operations(0)


# -- what is the same ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_lossless_codec_on_links_that_take_no_time_changes_nothing(policy):
    devices = {"kind": "lognormal", "spread": 1.0, "speed": 1e7, **NO_WAY}
    plain, coded = (
        start(spec_of(policy=policy, devices=devices, codec=codec)) for codec in ("float32", "float32-delta")
    )
    for name in ("clock", "staleness", "replies", "bytes_down"):
        assert column(plain, name) == column(coded, name), name
    assert column(plain, "bytes_up") != column(coded, "bytes_up")
    assert torch.equal(models(plain), models(coded))


def test_devices_change_nothing_of_a_lossy_codec_where_everybody_is_waited_for():
    """A buffer for all of equal devices is such a round, too."""
    alone = start(spec_of(devices="none", codec="int8-delta"))
    buffer = {"kind": "buffered", "buffer": SMALL["clients"]}
    for policy, devices in (("sync", "lognormal"), (buffer, {"kind": "equal", **NO_WAY})):
        timed = start(spec_of(policy=policy, devices=devices, codec="int8-delta"))
        assert torch.equal(models(alone), models(timed))
        assert column(alone, "bytes_up") == column(timed, "bytes_up")


def test_a_seed_does_not_feel_the_others():
    policy = POLICIES["buffered"]
    together, alone = (start(spec_of(policy=policy, seeds=seeds, codec="int8-delta")) for seeds in ([3, 5], [5]))
    assert column(together, "clock", 5) == column(alone, "clock", 5)
    assert torch.equal(models(together, 1), models(alone))


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_time_only_goes_on_and_fewer_bytes_take_less_of_it(policy):
    devices = {"kind": "equal", "latency": 0.001, "up": [3000.0 + 500 * k for k in range(7)], "down": 1e6}
    plain, coded = (start(spec_of(policy=policy, devices=devices, codec=codec)) for codec in ("float32", "int4-delta"))
    for clock in (column(plain, "clock"), column(coded, "clock")):
        assert all(after >= before for before, after in itertools.pairwise(clock))
    assert column(coded, "clock")[-1] <= column(plain, "clock")[-1]


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_bytes_decide_the_arrival_by_hand():
    """Two clients, of whom the second is faster and has the slower link: who is first depends on the codec."""
    up, speed = np.array([100.0, 60.0]), np.array([6e3, 6e4])
    for codec, first in (("float32-delta", 0), ("top2.5%-delta", 1)):
        devices = {"kind": "equal", "speed": speed.tolist(), "latency": 0.5, "down": 1000.0, "up": up.tolist()}
        given = {"clients": 2, "rounds": 2, "codec": codec}
        sizes, operations = sizes_alone(spec_of(devices="none", **given))
        down = 4 * SMALL["problem"]["dimension"]
        arrive = 0.5 + down / 1000 + operations / speed + 0.5 + sizes / up
        assert np.argmin(arrive) == first, "else this test shows nothing"
        for policy, wanted in (("sync", arrive.max()), ({"kind": "asynchronous"}, arrive.min())):
            spec = spec_of(policy=policy, devices=devices, **given)
            with backends.opened(spec) as engine:
                experiment = Experiment(spec, engine)
                experiment._one_round()
                assert experiment.dispatch.flights[0].now == pytest.approx(wanted, rel=1e-12)


def test_who_fails_is_heard_of_without_any_bytes():
    spec = spec_of(devices={"kind": "equal", "latency": 0.5, "up": 100.0}, codec="int8-delta")
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        flight, state = experiment.dispatch.flights[0], experiment.states[0]
        flight.send(np.arange(7), spec.algorithm.ask(state))
        spent = flight.joules
        failures = [Failure(client, 1, "raised") for client in (4, 2)]
        five = np.array([0, 1, 3, 5, 6])
        replies = Replies(five, {"model": torch.zeros(5, 40)}, coded=np.arange(10, 60, 10))
        flight.came_of_it(Outcome(replies, failures))
    back = flight.arrives - flight.ready - 0.5
    assert back == pytest.approx(np.array([10, 20, 0, 30, 0, 40, 50]) / 100, abs=1e-9)
    assert flight.weighed.all()
    assert flight.joules >= spent


def test_a_client_with_several_lanes_replies_in_each():
    tasks = [Tasks(np.array([0, 1, 4]), lane=0), Tasks(np.array([1, 4]), lane=1)]
    assert tasks_for(tasks, np.array([4, 0, 1])).tolist() == [2, 1, 2]
    assert tasks_for(tasks[:1], np.array([0, 1])) == 1


def test_failures_under_a_codec_are_those_without():
    """Who drops out or sends nonsense is drawn from the seed; on links that take no time at the same time."""
    devices = {"kind": "lognormal", "speed": 1e7, **NO_WAY}
    faults = {"dropout": 0.2, "corrupt": 0.1}
    for policy in (POLICIES["sync"], POLICIES["asynchronous"], POLICIES["deadline"]):
        plain, coded = (
            start(spec_of(policy=policy, devices=devices, faults=faults, codec=codec))
            for codec in ("float32", "float32-delta")
        )
        assert column(plain, "failures") == column(coded, "failures")
        assert column(plain, "clock") == column(coded, "clock")
        assert torch.equal(models(plain), models(coded))
    assert sum(filter(None, column(plain, "failures"))) > 0


def test_a_deadline_that_coded_replies_may_meet_is_not_refused():
    devices = {"kind": "equal", "latency": 0.01, "up": 1000.0, "down": 1e9}
    policy = {"kind": "deadline", "deadline": 0.1}  # 164 bytes take longer, 60 do not.
    with pytest.raises(UserError, match="the fastest client needs"):
        start(spec_of(policy=policy, devices=devices))
    assert max(column(start(spec_of(policy=policy, devices=devices, codec="int8-delta")), "clock")) > 0
    with pytest.raises(UserError, match="the fastest client needs"):
        start(spec_of(policy={"kind": "deadline", "deadline": 0.01}, devices=devices, codec="int8-delta"))


def mission_of(policy, codec):
    """Three of ten satellites are lost at once, and others see no station within the time-out."""
    lost = [f"lost sat-1-{number} at 0.001" for number in (1, 2, 3)]
    mission = {"name": "mission", "shell": "10/2/1", "threads": 1, "chunk": 8, "timeout": 2.0, "mishaps": lost}
    radio = {"up": 1e15, "down": 1e15, "loss": 0.0}
    given = {"problem": SMALL["problem"], "rounds": 8, "hours": 48, "policy": policy, "engine": {**mission, **radio}}
    devices = {"kind": "equal", "speed": 1e6}
    return Draft({"algorithm": "fedavg", "devices": devices, "codec": codec, "server_codec": codec, **given}).finish()


@pytest.mark.parametrize("policy", ["sync", {"kind": "buffered", "buffer": 6}])
def test_a_server_gives_up_on_satellites_at_the_same_time_whatever_the_codec(policy):
    plain, coded = (start(mission_of(policy, codec)) for codec in ("float32", "float32-delta"))
    assert column(plain, "failures") == column(coded, "failures")
    assert sum(column(plain, "failures")) > 1
    clocks = [column(one, "clock") for one in (plain, coded)]
    assert clocks[0] == pytest.approx(clocks[1], abs=1e-3)
    assert torch.equal(models(plain), models(coded))


def test_a_satellite_that_is_never_heard_of_is_given_up_before_its_reply_is_weighed():
    spec = mission_of("asynchronous", "int8-delta")
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        flight = experiment.dispatch.flights[0]
        flight.now = 7200.0
        flight.send(np.arange(10), spec.algorithm.ask(experiment.states[0]))
        assert not flight.weighed.any()
        assert (flight.arrives[:3] == 4 * 3600).all()
        bound = flight.arrives.copy()
        experiment.dispatch._weigh()
        assert (flight.arrives >= bound).all()
        assert (flight.arrives[:3] == 4 * 3600).all()
        assert flight.weighed.all()
        assert set(flight.failures) >= {0, 1, 2}


# -- a run that goes on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_stopped_run_goes_on_with_coded_messages_under_way_bit_for_bit(policy, tmp_path):
    spec = spec_of(
        "ditto",
        policy,
        {"kind": "lognormal", "up": 20_000.0},
        seeds=2,
        faults={"dropout": 0.2},
        codec="int4-delta",
        server_codec="int8-delta",
    )
    start(spec, tmp_path / "undisturbed")
    for rounds in (1, 3):
        folder = tmp_path / f"stopped{rounds}"
        stops = iter([False] * (rounds - 1) + [True])
        with pytest.raises(Stopped):
            start(spec, folder, stop=lambda stops=stops: next(stops))
        resume(folder)
        assert_same_results(tmp_path / "undisturbed", folder)
    assert len(rows(tmp_path / "undisturbed")) == 2 * (SMALL["rounds"] + 1)
