"""CFDP over simulated channels and contacts: whatever a link does to frames, files arrive and both ends close."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from fedpareto.config.errors import UserError
from fedpareto_space.links.cfdp_network import CfdpNetwork, timed_for
from fedpareto_space.links.channel import Channel, Line
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.transports import Delivery

_spec = importlib.util.spec_from_file_location("links_benchmark", Path(__file__).parents[3] / "benchmarks" / "links.py")
links = importlib.util.module_from_spec(_spec)
sys.modules["links_benchmark"] = links  # what dataclasses look for
_spec.loader.exec_module(links)

DATA = bytes(range(256)) * 40
SLOW = Channel(rate=8000.0, delay=0.2)


def test_whatever_happens_to_frames_all_files_arrive_whole_and_both_ends_close(monkeypatch):
    monkeypatch.setattr(links, "SIZE", 20_000)
    found = list(links.outcomes(100, jobs=1))
    assert all(one.equal and one.closed for one in found)
    assert sum(one.refused for one in found) > 100  # frames were damaged
    assert {one.transfer.channel.loss for one in found} == set(links.LOSSES)


def test_the_bytes_sent_are_close_to_the_bound():
    losses = [number for number in range(0, 400, 4) if links.transfer(number).channel.loss == 0.2][:8]
    found = [links.run(links.transfer(number)) for number in losses]
    assert all(one.equal and one.closed for one in found)
    assert links.over_the_bound(found) <= links.ALLOWED


def sent_once(seed):
    network = CfdpNetwork(Channel(9600.0, 0.3, 1e-5, 0.1, 0.05, 0.1), seed=seed)
    network.transport(1).send(2, DATA, 0.0)
    network.advance(1e6)
    return network.transport(2).poll(1e6), network.transport(1).traffic


def test_the_same_seed_gives_the_same_fate_and_another_one_another():
    assert sent_once(1) == sent_once(1)
    assert sent_once(1) != sent_once(2)


def test_time_without_loss_is_bytes_over_rate_and_the_delay():
    network = CfdpNetwork(SLOW)
    here = network.transport(1)
    here.send(2, DATA, 0.0)
    at = network.advance(1e6)
    (delivery,) = network.transport(2).poll(at)
    assert delivery == Delivery(1, DATA, at)
    assert at == pytest.approx(8 * here.traffic.bytes_sent / 8000.0 + 0.2)
    network.pass_time(1e6)
    assert network.open == 0
    assert (here.traffic.messages_sent, here.traffic.bytes_repeated) == (1, 0)


def test_a_message_goes_on_over_contacts_and_no_frame_is_begun_that_cannot_end():
    contacts = [(100.0 * number, 100.0 * number + 4.0, 1, 2) for number in range(10)]
    network = CfdpNetwork(SLOW, contacts)
    network.transport(1).send(2, DATA, 0.0)
    at = network.advance(1e6)
    assert 200.0 < at < 700.0
    assert network.transport(2).poll(at)[0].data == DATA
    network.pass_time(1e6)
    assert network.open == 0
    assert network.transport(1).traffic.bytes_sent < 1.06 * len(DATA)


def test_an_outage_of_which_nobody_is_told_only_takes_time():
    network = CfdpNetwork(Channel(8000.0, delay=0.2, outages=((2.0, 30.0),)))
    network.transport(1).send(2, DATA, 0.0)
    at = network.advance(1e6)
    assert at > 30.0
    assert network.transport(2).poll(at)[0].data == DATA
    network.pass_time(1e6)
    assert network.open == 0
    assert network.drowned(1, 2) > 5000


def test_an_urgent_message_overtakes_one_that_is_under_way():
    network = CfdpNetwork(SLOW)
    here, there = network.transport(1), network.transport(2)
    here.send(2, DATA, 0.0)
    here.send(2, b"later", 0.0)
    here.send(2, b"urgent", 1.0, priority=9)
    network.pass_time(1e6)
    assert [one.data for one in there.poll(1e6)] == [b"urgent", DATA, b"later"]


def test_a_newer_message_replaces_one_of_which_nothing_was_sent_but_not_one_under_way():
    network = CfdpNetwork(SLOW)
    here, there = network.transport(1), network.transport(2)
    for version in range(4):
        here.send(2, DATA + bytes([version]), version * 0.5, replaces="global")
    network.pass_time(1e6)
    assert [one.data[-1] for one in there.poll(1e6)] == [0, 3]
    assert here.traffic.messages_dropped == 2


@pytest.mark.parametrize("contacts", [None, [(50.0, 60.0, 1, 2)]])
def test_a_message_that_is_too_old_is_given_up_at_both_ends(contacts):
    network = CfdpNetwork(SLOW, contacts)
    here, there = network.transport(1), network.transport(2)
    here.send(2, DATA, 0.0, lifetime=5.0)
    network.pass_time(1e6)
    assert there.poll(1e6) == []
    assert network.open == 0
    assert here.traffic.messages_dropped == 1


def test_many_nodes_send_to_each_other_at_once_over_lossy_channels():
    network = CfdpNetwork(Channel(100_000.0, 0.2, delay=0.05))
    for node in range(1, 5):
        for other in range(1, 5):
            if node != other:
                network.transport(node).send(other, bytes([node, other]) * 2000, 0.0)
    network.pass_time(1e6)
    for node in range(1, 5):
        arrived = {one.source: one.data for one in network.transport(node).poll(1e6)}
        assert arrived == {other: bytes([other, node]) * 2000 for other in range(1, 5) if other != node}
    assert network.open == 0


def test_hundreds_of_messages_at_once_are_sent_as_the_other_end_can_take_them():
    network = CfdpNetwork(Channel(delay=1.0))
    for number in range(400):
        network.transport(1).send(2, number.to_bytes(2, "big"), 0.0)
    network.pass_time(1e6)
    arrived = [int.from_bytes(one.data, "big") for one in network.transport(2).poll(1e6)]
    assert arrived == [*range(400)]
    assert network.transport(1).traffic.bytes_repeated == 0


def test_each_direction_may_have_a_channel_of_its_own():
    network = CfdpNetwork({(1, 2): Channel(1e6), (2, 1): Channel(1000.0, delay=2.0)})
    network.transport(1).send(2, DATA, 0.0)
    network.transport(2).send(1, DATA, 0.0)
    first = network.advance(1e6)
    assert network.transport(2).poll(first)[0].data == DATA
    second = network.advance(1e6)
    assert network.transport(1).poll(second)[0].data == DATA
    assert first < 1.0
    assert second > 80.0
    network.pass_time(1e6)
    assert network.open == 0


def test_timers_are_longer_than_a_round_trip_of_the_slowest_channel():
    managed = timed_for(Managed(), {(1, 2): Channel(1e6), (2, 1): Channel(2400.0, delay=1.3, reordering=0.1, late=2.0)})
    frame = Channel(2400.0).seconds(managed.largest_pdu)
    assert managed.nak_timeout > 2 * (1.3 + 2.0) + frame
    assert managed.nak_delay == 2.0


def test_a_channel_loses_damages_doubles_and_delays_the_share_that_it_is_told_to():
    channel = Channel(loss=0.25, bit_errors=1e-3, delay=1.0, duplication=0.1, reordering=0.2, late=3.0)
    line, frame, frames = Line(channel, 1, 1, 2), bytes(100), 20_000
    arrivals = [one for _ in range(frames) for one in line.carry(frame, 0.0)]
    assert len(arrivals) / frames == pytest.approx(1.1 * 0.75, rel=0.02)
    assert sum(data == frame for _, data in arrivals) / len(arrivals) == pytest.approx(0.999**800, rel=0.03)
    assert sum(at > 1.0 for at, _ in arrivals) / len(arrivals) == pytest.approx(0.2, rel=0.05)
    assert max(at for at, _ in arrivals) <= 4.0
    assert channel.survives(100) == pytest.approx(0.75 * 0.999**800)


def test_wrong_channels_are_named():
    for wrong, said in (
        ({"loss": 1.0}, "loss is 1;"),
        ({"rate": 0.0}, "rate is 0;"),
        ({"delay": -1.0}, "delay is -1;"),
        ({"outages": ((2.0, 1.0),)}, "outages are pairs"),
    ):
        with pytest.raises(UserError, match=said):
            Channel(**wrong)
