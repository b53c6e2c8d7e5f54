"""Whatever comes in, a machine answers by what was agreed or not at all; it never breaks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpareto_space.session.drive import Plan, Simulation
from fedpareto_space.session.events import Received
from fedpareto_space.wire import messages
from fedpareto_space.wire.manifest import Manifest, Tensor
from sessions import small


@pytest.fixture
def recorded():
    """All messages of a session, and its nodes as they were in the middle of it."""
    sent, nodes = [], Simulation(Plan.of(small(rounds=3)))
    for host in nodes.hosts:
        host.on_send = lambda node, effect, now: sent.append((node, effect.to, effect.data))
    nodes.on_exchange = lambda exchange, now: None
    nodes.horizon = 1.5
    nodes.run()
    return nodes, sent


def mutated(data, stream):
    """The bytes with something else in them, or less, or more of them."""
    found = bytearray(data)
    for _ in range(int(stream.integers(1, 4))):
        place = int(stream.integers(len(found)))
        match int(stream.integers(4)):
            case 0:
                found[place] ^= 1 << int(stream.integers(8))
            case 1:
                found[place] = int(stream.integers(256))
            case 2:
                del found[place:]
            case _:
                found[place:place] = stream.bytes(3)
        if not found:
            return b""
    return bytes(found)


def test_mutated_messages_break_no_machine(recorded):
    nodes, sent = recorded
    machines = {host.node: host.machine for host in nodes.hosts}
    stream = np.random.default_rng(1)
    for number in range(600):
        source, to, data = sent[int(stream.integers(len(sent)))]
        effects = machines[to].handle(Received(source, mutated(data, stream)), 2.0 + number)
        assert isinstance(effects, list)


def test_old_and_foreign_messages_break_no_machine(recorded):
    nodes, sent = recorded
    machines = {host.node: host.machine for host in nodes.hosts}
    for source, _, data in sent:
        for node, machine in machines.items():
            if node != source:
                machine.handle(Received(source, data), 3.0)
                machine.handle(Received(77, data), 3.0)


def forged(recorded, **fields):
    """What the server says to an update with other fields."""
    nodes, sent = recorded
    update = next(found for _, _, data in sent if isinstance(found := messages.decode(data), messages.Update))
    server = nodes.servers[0].machine
    server.members[update.client].answered.clear()
    effects = server.handle(Received(update.client, messages.encode(replace(update, **fields))), 9.0)
    return [effect for effect in effects if type(effect).__name__ == "Told"]


def test_tensors_that_no_step_replies_with_are_refused_before_memory_is_taken(recorded):
    huge = Manifest((Tensor("updates", (2**30, 2), coded=True),))
    (told,) = forged(recorded, manifest=huge, manifest_digest=huge.digest)
    assert "are not those that the rule's step replies with" in told.detail


def test_a_client_cannot_submit_for_another(recorded):
    (told,) = forged(recorded, client=11)
    assert "it says that it is node 11" in told.detail
