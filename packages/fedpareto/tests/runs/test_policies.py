"""For whom a round waits: what must be the same whatever the policy is, and what can be computed by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from fedpareto.clock.policy import Policy
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.runs.loop import Experiment
from fedpareto.runs.runner import resume, start
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from folders import assert_same_results

SMALL = {"problem": "convex", "clients": 7, "rounds": 6}
"""Seven unequal clients."""


def spec_of(algorithm="fedavg", policy="sync", devices="lognormal", chunk=4, **values):
    engine = {"precision": "float64", "threads": 1, "chunk": chunk}
    given = {"algorithm": algorithm, "policy": policy, "devices": devices, "engine": engine}
    return Draft({**SMALL, **given, **values}).finish()


def models(result, run=0):
    return torch.stack([result.models[run][client] for client in sorted(result.models[run])])


def column(result, name):
    return [row.get(name) for row in result.history]


ASYNCHRONOUS = {
    "buffered": {"kind": "buffered", "buffer": 3, "concurrency": 4},
    "asynchronous": {"kind": "asynchronous", "concurrency": 3},
    "tiers": {"kind": "tiers", "tiers": 3},
    "deadline": {"kind": "deadline", "deadline": 0.07},
}


# -- what is the same ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["fedavg", "fedpref", "fedmgda-plus", "ditto", "fedfew", "cfl", "fedavg+ft"])
def test_a_buffer_for_all_of_equal_devices_is_the_synchronous_run_to_the_bit(algorithm):
    sync = start(spec_of(algorithm, devices="none"))
    policy = {"kind": "buffered", "buffer": SMALL["clients"]}
    buffered = start(spec_of(algorithm, policy, "equal"))
    assert torch.equal(models(sync), models(buffered))


@pytest.mark.parametrize("policy", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
@pytest.mark.parametrize("algorithm", ["fedavg", "ditto"])
def test_arrivals_and_models_do_not_depend_on_the_chunks(algorithm, policy):
    results = [start(spec_of(algorithm, policy, chunk=chunk)) for chunk in (1, 2, 7)]
    for one, other in itertools.pairwise(results):
        assert column(one, "clock") == column(other, "clock")
        assert column(one, "staleness") == column(other, "staleness")
        assert float((models(one) - models(other)).abs().max()) <= 1e-12


def test_the_order_of_arrivals_is_a_function_of_the_seed_alone():
    policy = ASYNCHRONOUS["buffered"]
    together, alone = start(spec_of(policy=policy, seeds=[3, 5])), start(spec_of(policy=policy, seeds=[5]))
    of_seed = [row["clock"] for row in together.history if row["seed"] == 5]
    assert of_seed == column(alone, "clock")
    assert torch.equal(models(together, 1), models(alone))


def test_devices_cost_time_and_change_nothing_where_everybody_is_waited_for():
    plain, timed = start(spec_of(devices="none")), start(spec_of(devices="tiers"))
    assert torch.equal(models(plain), models(timed))
    clock = column(timed, "clock")
    assert clock[0] == 0
    assert all(np.diff(clock) > 0)
    assert "clock" not in plain.history[0]


# -- what a late reply is worth --------------------------------------------------------------------------------------


def test_staleness_weights_by_hand():
    late = np.array([0, 1, 3, 8])
    assert Policy(staleness="constant").weights(late).tolist() == [1, 1, 1, 1]
    assert Policy(staleness="polynomial", exponent=1).weights(late).tolist() == [1, 1 / 2, 1 / 4, 1 / 9]
    assert Policy(staleness="hinge", grace=3, slope=2).weights(late).tolist() == [1, 1, 1, 1 / 11]


def test_fedbuff_with_a_buffer_of_one_is_fedasync():
    """Of updates, to the bit; FedAsync's own way, mixing late models, differs where replies are late."""
    policy = {"kind": "asynchronous", "concurrency": 4}
    buffered = {"kind": "buffered", "buffer": 1, "concurrency": 4}
    fedbuff = start(spec_of({"name": "fedbuff", "server_lr": 0.5}, buffered))
    of_updates = start(spec_of({"name": "fedasync", "mixing": 0.5, "mixes": "updates"}, policy))
    of_models = start(spec_of({"name": "fedasync", "mixing": 0.5}, policy))
    assert torch.equal(models(fedbuff), models(of_updates))
    assert not torch.equal(models(of_models), models(of_updates))
    assert max(filter(None, column(of_updates, "staleness"))) > 0


def test_they_run_under_their_own_policies_where_none_is_given():
    for name, kind in {
        "fedbuff": "buffered",
        "fedasync": "asynchronous",
        "fedasync+ft": "asynchronous",
        "fedavg": "sync",
    }.items():
        assert Draft({"algorithm": name, "clients": 10}).finish().policy.kind == kind


def test_a_late_update_counts_from_the_model_that_it_meets():
    """Two clients, one 2.5 times as fast, constant weights: the slow one's first update is added to the third model."""
    devices = {"kind": "equal", "speed": [1e6, 2.5e6], "latency": 0, "down": 1e30, "up": 1e30}
    policy = {"kind": "asynchronous", "staleness": "constant"}
    spec = spec_of("fedbuff", policy, devices, clients=2, problem={"name": "convex", "unequal": False})
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        models, clock = [experiment.states[0].model], []
        for _ in range(3):
            experiment._one_round()
            models.append(experiment.states[0].model)
            clock.append(experiment.dispatch.flights[0].now)
        alone = engine.operations(0)[0] / 1e6
        tasks = spec.algorithm.ask(spec.algorithm.begin(engine.settings[0]))
        slow = engine.run(tasks).replies["model"][0]
    assert clock == pytest.approx([0.4 * alone, 0.8 * alone, alone], rel=1e-12)
    assert torch.allclose(models[3], models[2] + (slow - models[0]), rtol=0, atol=1e-12)


# -- the clock -------------------------------------------------------------------------------------------------------


def test_the_clock_by_hand():
    """Speeds 1 and 3: a round that waits takes 1 unit; without waiting the fast one has replied three times by then."""
    devices = {"kind": "equal", "speed": [1e6, 3e6], "latency": 0.5, "down": 1000.0, "up": 500.0}
    spec = spec_of("fedavg", "sync", devices, clients=2, rounds=3)
    with backends.opened(spec) as engine:
        operations = engine.operations(0)
        size = 8 * spec.problem.layout.size
        experiment = Experiment(spec, engine)
        experiment._one_round()
        # A model down; the model and the number of rows up.
        seconds = 0.5 + size / 1000 + operations / np.array([1e6, 3e6]) + 0.5 + (size + 8) / 500
        assert experiment.dispatch.flights[0].now == pytest.approx(seconds.max(), rel=1e-12)
        experiment._one_round()
        assert experiment.dispatch.flights[0].now == pytest.approx(2 * seconds.max(), rel=1e-12)


def test_a_deadline_closes_a_round_and_late_replies_count_later_or_never():
    devices = {"kind": "equal", "speed": 1e15, "latency": [0.01] * 6 + [0.06]}
    used, dropped = (
        start(spec_of("fedavg", {"kind": "deadline", "deadline": 0.05, "late": late}, devices))
        for late in ("used", "dropped")
    )
    assert column(used, "replies")[:2] == [6, 6]
    assert set(column(dropped, "replies")[:-1]) == {6}
    assert max(filter(None, column(used, "staleness"))) > 0
    assert set(filter(None, column(dropped, "staleness"))) == set()


@pytest.mark.parametrize("policy", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_the_last_round_of_fine_tuning_has_everybody_whoever_is_at_work_before(policy):
    result = start(spec_of("fedavg+ft", policy))
    last = result.history[-2]
    assert (last["round"], last["replies"], last["staleness"]) == (5, SMALL["clients"], 0)


def test_a_tier_leads_by_a_few_rounds_at_most():
    """Even where nobody new can be asked: all others are at work, and the fast tier has to wait."""
    devices = {"kind": "tiers", "factor": [1e-6, 1e-3, 1], "shares": [0.4, 0.3, 0.3], "spread": 0}
    spec = spec_of("fedavg", {"kind": "tiers", "lead": 2}, devices, rounds=12)
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        for _ in range(12):
            experiment._one_round()
            done = experiment.dispatch._gatherings[0].done
            assert max(done) - min(done) <= 2
        assert min(done) >= 3


def test_a_client_that_is_at_work_still_has_the_model_of_before():
    """What it trains early, in the same stack as others, is not seen before it arrives."""
    devices = {"kind": "equal", "speed": [1e9] * 6 + [1e3]}
    spec = spec_of("ditto", {"kind": "buffered", "buffer": 3}, devices)
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        for _ in range(3):
            experiment._one_round()
        solutions = spec.algorithm.solutions(experiment.states[0])
        slow = engine.models(0, solutions)[6]
        assert torch.equal(slow, engine.settings[0].initial)
        assert not torch.equal(engine.models(0, solutions)[0], engine.settings[0].initial)


# -- a run that goes on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_a_stopped_run_goes_on_with_its_work_under_way_bit_for_bit(policy, tmp_path):
    spec = spec_of("ditto", policy, seeds=2, selection="power-of-choice", faults={"dropout": 0.2}, participation=0.7)
    start(spec, tmp_path / "undisturbed")
    for rounds in (1, 4):
        folder = tmp_path / f"stopped{rounds}"
        stops = iter([False] * (rounds - 1) + [True])
        with pytest.raises(Stopped):
            start(spec, folder, stop=lambda stops=stops: next(stops))
        resume(folder)
        assert_same_results(tmp_path / "undisturbed", folder)


# -- what is refused -------------------------------------------------------------------------------------------------


REFUSED = {
    "does not fit fedcmoo": {"algorithm": "fedcmoo", "policy": "buffered"},
    "does not fit fedfb": {"algorithm": "fedfb", "problem": "synthetic", "policy": "asynchronous"},
    "does not fit mofld": {"algorithm": "mofld", "policy": "tiers"},
    "a late one is moved and weighed": {
        "algorithm": {"name": "fedavg", "weighting": "equal"},
        "policy": "buffered",
        "privacy": "central",
    },
    "depends on rows without any noise": {"algorithm": "fedpref", "selection": "oort", "privacy": "local"},
    "set policy.deadline, in seconds": {"policy": "deadline"},
    "deadline is for the kind deadline": {"policy": {"kind": "buffered", "deadline": 3}},
    "buffer is 10, but there are only 7": {"policy": {"kind": "buffered", "buffer": 10}},
    "buffer is -1; it is at least 0": {"policy": {"kind": "buffered", "buffer": -1}},
    "unknown value of policy: kind": {"policy": "lazy"},
    "candidates is for the kind power-of-choice, not for oort": {"selection": {"kind": "oort", "candidates": 3}},
    "candidates is 9; it is from 7": {"selection": {"kind": "power-of-choice", "candidates": 9}},
    "at least 7 clients in a round, not 4": {"policy": "buffered", "defence": {"rule": "krum", "attackers": 2}},
    "work with the engine local": {"policy": "buffered", "engine": "ray"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_in_a_line(message):
    with pytest.raises(UserError) as refused:
        Draft({"algorithm": "fedavg", **SMALL, **REFUSED[message]}).finish()
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_deadline_that_nobody_can_meet_is_refused():
    spec = spec_of("fedavg", {"kind": "deadline", "deadline": 0.001}, {"kind": "equal", "latency": 0.5})
    with pytest.raises(UserError, match=r"deadline is 0.001 s, but the fastest client needs 1"):
        start(spec)


def test_a_device_that_cannot_hold_the_model_is_refused():
    with pytest.raises(UserError, match=r"client 0 \(and 6 more\) has 100 bytes of memory"):
        start(spec_of(devices={"kind": "equal", "memory": 100}))
