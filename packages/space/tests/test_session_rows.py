"""Rows of an agreement that change what a session does, each acted on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.testing.conformance import People
from fedpareto_space.links.transports import MemoryNetwork
from fedpareto_space.session.agreement import changed, policy_of, server_half, terms_of
from fedpareto_space.session.drive import Plan, Simulation
from fedpareto_space.session.events import Answer
from fedpareto_space.wire import messages, rows
from fedpareto_space.wire.refusals import ProtocolError
from fedpareto_space.wire.rows import Action
from sessions import on_the_local_engine, simulated, small, undisturbed


def watched(spec, network=None, seconds=None, **options):
    """A session, and all updates that were sent in it."""
    updates = []

    def sent(node, effect, now):
        message = messages.decode(effect.data)
        if isinstance(message, messages.Update):
            updates.append(message)

    given = {name: options.pop(name) for name in ("contacts", "horizon") if name in options}
    plan = Plan(spec, changed(terms_of(spec), **options))
    simulation = Simulation(plan, network or MemoryNetwork(), **given)
    if seconds:
        for host in simulation.clients:
            host.seconds = seconds
    for host in simulation.clients:
        host.on_send = sent
    return simulation.run(), updates, simulation


# -- 6.2, row 3: trigger -----------------------------------------------------------------------------------------------


def test_a_client_submits_after_the_agreed_number_of_steps():
    finished, updates, simulation = watched(small(), trigger=rows.Steps(3))
    assert [update.steps for update in updates] == [3] * 4
    assert [host.steps for host in simulation.clients] == [6, 6]
    assert finished.digest != undisturbed()


def test_a_trigger_that_never_fires_runs_into_the_time_out():
    never = {"trigger": rows.Loss(-1.0), "client_failures": {"timeout": 5.5, "on_timeout": Action.RETRY}}
    finished, updates, _ = watched(small(), **never)
    assert ("server-silent", "retry") in finished.faults()
    assert {update.steps for update in updates} == {5}
    assert finished.reasons[1] == "done"


def test_a_loss_that_is_reached_at_once_needs_one_step():
    finished, updates, _ = watched(small(), trigger=rows.Loss(1e9))
    assert {update.steps for update in updates} == {1}
    assert finished.digest == undisturbed()


# -- 6.2, row 4: waiting -----------------------------------------------------------------------------------------------


def slow_for_one(ask):
    """The second client takes much longer, so that the first waits."""
    return 10.0 if ask.client else 1.0


@pytest.mark.parametrize(("waiting", "steps"), [(rows.Pause(), 2), (rows.ContinueFor(4), 10), (rows.Continue(), 20)])
def test_between_submission_and_update_a_client_does_what_was_agreed(waiting, steps):
    _, updates, simulation = watched(small(), seconds=slow_for_one, waiting=waiting, integration=rows.Rebase())
    first = simulation.clients[0]
    assert first.steps >= steps if isinstance(waiting, rows.Continue) else first.steps == steps
    assert [update.base for update in updates if update.client == first.node] == [0, 1]


# -- 6.2, row 5: integration -------------------------------------------------------------------------------------------


def test_proximal_integration_of_fedavg_is_fedprox_bit_for_bit():
    prox = small("fedprox")
    found = simulated(small("fedavg"), rows={"integration": rows.Proximal(prox.algorithm.mu)})
    assert found.digest == on_the_local_engine(prox)[0]
    assert simulated(small(), rows={"integration": rows.Proximal(0.0)}).digest == undisturbed()


def test_interpolation_1_is_replace_and_0_is_local_training():
    assert simulated(rows={"integration": rows.Interpolate(1.0)}).digest == undisturbed()
    alone = simulated(rows={"integration": rows.Interpolate(0.0)})
    assert alone.digest != undisturbed()
    assert simulated(rows={"integration": rows.Partial(("*",))}).digest == undisturbed()
    assert simulated(rows={"integration": rows.Partial(("nothing",))}).digest == alone.digest


# -- 6.2, row 6: format ------------------------------------------------------------------------------------------------


def test_what_is_not_submitted_stays_as_it_was():
    spec = small("lft-fedavg", rounds=1)
    layout = spec.problem.layout
    finished = simulated(spec, rows={"format": {"tensors": ("0.*",)}})
    began, ended = spec.problem.initial(0).numpy(), finished.models[0]
    kept = slice(layout.slices["0.bias"].stop, None)
    assert np.allclose(ended[kept], began[kept], atol=1e-6)  # The mean of equal numbers rounds.
    assert not np.allclose(ended[: kept.start], began[: kept.start], atol=1e-6)


def test_differences_and_weights_give_the_same_model_up_to_rounding():
    spec = small()
    weights = simulated(spec)
    difference = simulated(spec, rows={"format": {"content": rows.Content.DIFFERENCE}})
    assert np.allclose(weights.models[0], difference.models[0], atol=1e-5)


def test_a_lossy_codec_has_the_numbers_of_the_local_engine_with_that_codec():
    spec = replace(small("lft-fedavg"), problem=People(hidden=(16, 8)))
    agreed = {"format": {"codec": "int8-delta", "error_feedback": True}}
    assert simulated(spec, rows=agreed).digest == on_the_local_engine(replace(spec, codec="int8-delta"))[0]


@pytest.mark.parametrize("codec", ["int8-delta", "int4-delta", "float16-delta", "top10%-delta", "float32+zstd"])
def test_a_coded_session_ends_and_all_clients_hold_one_model(codec):
    spec = small("lft-fedavg")
    finished = simulated(spec, rows={"format": {"codec": codec, "error_feedback": True}})
    assert set(finished.reasons.values()) == {"done"}
    assert not finished.faults()
    assert np.array_equal(*finished.models.values())


# -- 6.3, row 1: aggregation -------------------------------------------------------------------------------------------


def test_the_rule_that_was_agreed_on_is_the_one_that_runs():
    equal = {"aggregation": {"weighting": rows.Weighting.UNIFORM}}
    plain = {"aggregation": {"parameters": {"weighting": "equal"}}}
    assert simulated(rows=equal).digest == simulated(rows=plain).digest
    with pytest.raises(ProtocolError, match=r"table 6\.3, row 1: fedpref cannot weight clients by uniform"):
        simulated(small("fedpref"), rows=equal)


def test_a_servers_learning_rate_of_1_changes_nothing_and_of_0_5_goes_half_the_way():
    spec = small(rounds=1)
    began, whole = spec.problem.initial(0).numpy(), simulated(spec).models[0]
    half = simulated(spec, rows={"aggregation": {"server_lr": 0.5}}).models[0]
    assert np.allclose(half, (began + whole) / 2, atol=1e-6)
    with pytest.raises(UserError, match="no one global model"):
        simulated(small("fedpref"), rows={"aggregation": {"server_lr": 0.5}})


@pytest.mark.parametrize(("name", "minimum"), [("fedbuff", 2), ("fedasync", 1)])
def test_a_rule_that_does_not_wait_learns_from_the_first_and_takes_late_updates(name, minimum):
    spec = small(name, clients=3, rounds=4)
    finished, updates, simulation = watched(
        spec, seconds=lambda ask: 1.0 + 2.5 * ask.client, aggregation={"minimum": minimum}
    )
    assert simulation.servers[0].machine.enough == minimum
    assert finished.reasons[1] == "done"
    assert len({update.round - update.base for update in updates}) >= 1
    late = [update for update in updates if update.client == 12]
    assert late
    assert late[0].base == 0


@pytest.mark.parametrize("name", ["fedasync", "fedasync+ft"])
def test_a_late_model_is_mixed_as_the_algorithm_says_whatever_is_around_it(name):
    """θ ← θ + α s(τ) (θ_i − θ) of the model that arrives, not of what it changed."""
    spec = small(name, clients=3, rounds=4)
    half = server_half(spec, terms_of(spec))
    began = half.ask()
    first, second = began.asks[:2]
    now = half.tell([Answer(first, {"model": first.tensors["model"] + 1.0})])
    theta, trained = now.asks[0].tensors["model"], second.tensors["model"] + 5.0
    after = half.tell([Answer(second, {"model": trained})]).asks[0].tensors["model"]
    weight = half.policy.weights(np.array([1]))[0]
    assert after == pytest.approx(theta + 0.6 * weight * (trained - theta), abs=1e-5)


def test_staleness_weights_are_those_that_were_agreed_on():
    spec = small("fedbuff", clients=3)
    terms = terms_of(spec)
    agreed = {rows.Fresh(): 1.0, rows.Polynomial(1.0): 0.25, rows.Hinge(1.0, 2.0): 0.5}
    for staleness, weight in agreed.items():
        other = replace(terms, aggregation=replace(terms.aggregation, staleness=staleness))
        assert policy_of(spec, other).weights(np.array([3]))[0] == pytest.approx(weight)
    assert server_half(spec, terms).policy.kind == "sync"


# -- 6.3, row 2: collection --------------------------------------------------------------------------------------------


def test_pushed_polled_and_at_contacts_end_with_the_same_model():
    contacts = [(10.0 * number, 10.0 * number + 4.0, 1, 10 + number % 2) for number in range(60)]
    plan = rows.Contacts(bytes(8))
    found = {
        "push": simulated(rows={"collection": rows.Push()}),
        "poll": simulated(rows={"collection": rows.Poll(), "trigger": rows.Polled()}),
        "either": simulated(rows={"collection": rows.Either()}),
        "contacts": simulated(network=MemoryNetwork(contacts), rows={"collection": plan}, contacts=contacts),
        "trigger": simulated(network=MemoryNetwork(contacts), rows={"trigger": rows.AtContact()}, contacts=contacts),
    }
    assert {name: one.digest for name, one in found.items()} == dict.fromkeys(found, undisturbed())
