"""Messages as a fluid: the mean of what packets do."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto_space.links.cfdp_network import CfdpNetwork
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.fluid import FluidNetwork, cost

DATA = bytes(30_000)


def seconds_and_bytes(network):
    network.transport(1).send(2, DATA, 0.0)
    at = network.advance(1e7)
    assert [one.data for one in network.transport(2).poll(at)] == [DATA]
    network.pass_time(1e7)
    return at, network.transport(1).traffic.bytes_sent


def test_without_loss_it_takes_as_long_as_packets_to_the_last_digit():
    channel = Channel(9600.0, delay=0.7)
    seconds, sent = seconds_and_bytes(CfdpNetwork(channel))
    assert seconds_and_bytes(FluidNetwork(channel)) == pytest.approx((seconds, sent), rel=1e-3)


@pytest.mark.parametrize(("loss", "rate"), [(0.1, 2400.0), (0.4, 1e6)])
def test_with_loss_it_takes_as_long_and_as_many_bytes_as_packets_on_average(loss, rate):
    channel = Channel(rate, loss, delay=0.3)
    packets = np.mean([seconds_and_bytes(CfdpNetwork(channel, seed=seed)) for seed in range(24)], axis=0)
    assert seconds_and_bytes(FluidNetwork(channel)) == pytest.approx(tuple(packets), rel=0.08)


def test_the_cost_of_a_message_is_its_bytes_and_headers_over_what_survives():
    clean, lossy = cost(76_225, Channel(), 1024), cost(76_225, Channel(loss=0.5), 1024)
    assert clean.bytes / 76_225 == pytest.approx(1.033, rel=0.003)
    assert lossy.bytes == 2 * clean.bytes
    assert (clean.rounds, cost(0, Channel(loss=0.5), 1024).rounds) == (0.0, 0.0)
    assert cost(1, Channel(loss=0.5), 1024).rounds == pytest.approx(1 / np.log(2) - 0.5)  # about 1: as often as not


def test_progress_is_kept_from_contact_to_contact():
    channel = Channel(8000.0)
    whole, _ = seconds_and_bytes(FluidNetwork(channel))
    contacts = [(100.0 * number, 100.0 * number + 10.0, 1, 2) for number in range(9)]
    at, _ = seconds_and_bytes(FluidNetwork(channel, contacts))
    assert at == pytest.approx(100.0 * (whole // 10.0) + whole % 10.0)


def test_an_outage_only_takes_its_time():
    whole, _ = seconds_and_bytes(FluidNetwork(Channel(8000.0)))
    at, _ = seconds_and_bytes(FluidNetwork(Channel(8000.0, outages=((5.0, 55.0),))))
    assert at == pytest.approx(whole + 50.0)


def test_urgent_messages_overtake_newer_ones_replace_and_old_ones_are_given_up():
    network = FluidNetwork(Channel(8000.0))
    here, there = network.transport(1), network.transport(2)
    here.send(2, DATA, 0.0)
    here.send(2, b"urgent", 1.0, priority=1)
    here.send(2, b"old", 1.0, replaces="global")
    here.send(2, b"new", 2.0, replaces="global")
    here.send(2, b"brief", 2.0, lifetime=3.0)
    network.pass_time(1000.0)
    assert [one.data for one in there.poll(1000.0)] == [b"urgent", DATA, b"new"]
    assert (here.traffic.messages_sent, here.traffic.messages_dropped) == (3, 2)


def test_a_message_under_way_that_is_too_old_is_given_up_and_lets_the_next_one_pass():
    network = FluidNetwork(Channel(8000.0))
    here, there = network.transport(1), network.transport(2)
    here.send(2, DATA, 0.0, lifetime=10.0)
    here.send(2, b"next", 0.0)
    at = network.advance(1000.0)
    assert 10.0 < at < 11.0
    assert [one.data for one in there.poll(at)] == [b"next"]


def test_two_directions_do_not_wait_for_each_other():
    network = FluidNetwork(Channel(8000.0))
    network.transport(1).send(2, DATA, 0.0)
    network.transport(2).send(1, DATA, 0.0)
    at = network.advance(1000.0)
    network.pass_time(at)
    assert [len(network.transport(node).poll(at)) for node in (1, 2)] == [1, 1]
