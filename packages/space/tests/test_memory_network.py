"""The network in memory, and the interface that all transports have."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import fedpareto_space.links
from fedpareto.config.errors import UserError
from fedpareto_space.links.transports import Delivery, MemoryNetwork


def test_a_message_arrives_whole_at_the_next_poll():
    network = MemoryNetwork()
    network.transport(1).send(2, b"model", 3.0)
    assert network.transport(2).next() == 3.0
    assert network.transport(2).poll(3.0) == [Delivery(1, b"model", 3.0)]
    assert network.transport(2).poll(4.0) == []
    assert network.transport(2).next() is None


def test_messages_wait_for_a_contact_and_go_by_priority_then_by_age():
    network = MemoryNetwork(contacts=[(10.0, 20.0, 1, 2)])
    here, there = network.transport(1), network.transport(2)
    for data, priority in ((b"first", 0), (b"second", 0), (b"urgent", 5)):
        here.send(2, data, 0.0, priority=priority)
    assert there.poll(9.9) == []
    assert there.next() == 10.0
    assert [one.data for one in there.poll(10.0)] == [b"urgent", b"first", b"second"]
    here.send(2, b"too late", 20.0)
    assert there.poll(100.0) == []


def test_only_the_newest_of_one_key_is_sent_and_only_what_is_young_enough():
    network = MemoryNetwork()
    here, there = network.transport(1), network.transport(2)
    here.contact(2, False, 0.0)
    here.send(2, b"old", 1.0, replaces="global")
    here.send(2, b"brief", 1.0, lifetime=5.0)
    here.send(2, b"new", 2.0, replaces="global")
    there.contact(1, True, 7.0)
    assert [one.data for one in there.poll(7.0)] == [b"new"]
    assert here.traffic.messages_dropped == 2
    assert (here.traffic.messages_sent, there.traffic.messages_received) == (1, 1)


def test_time_stops_at_a_delivery_so_that_nobody_hears_of_it_late():
    network = MemoryNetwork(contacts=[(5.0, 6.0, 1, 2)], delay=0.25)
    network.transport(1).send(2, b"model", 0.0)
    assert network.advance(100.0) == 5.25
    assert network.transport(2).poll(5.25) == [Delivery(1, b"model", 5.25)]
    assert network.advance(100.0) == 100.0


def test_a_node_that_nobody_polls_does_not_hold_up_the_others():
    network = MemoryNetwork()
    network.transport(1).send(2, b"for nobody", 0.0)
    network.transport(1).send(3, b"for somebody", 5.0)
    assert network.advance(100.0) == 5.0
    assert network.transport(3).poll(5.0)
    assert {network.advance(100.0), network.advance(100.0)} == {5.0, 100.0}


def test_without_the_extra_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fedpareto\[space\]'"):
        runpy.run_path(str(Path(fedpareto_space.links.__file__)))


def test_mistakes_are_named():
    with pytest.raises(UserError, match="cannot send to itself"):
        MemoryNetwork().transport(1).send(1, b"", 0.0)
    with pytest.raises(UserError, match=r"contact \(2.0, 1.0, 1, 2\)"):
        MemoryNetwork(contacts=[(2.0, 1.0, 1, 2)])
