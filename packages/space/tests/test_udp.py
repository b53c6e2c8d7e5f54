"""CFDP over real sockets of this machine."""

from __future__ import annotations

import random
import socket
import time

import pytest

from fedpareto.config.errors import UserError
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.udp import UdpTransport
from waiting import until

DATA = random.Random(22).randbytes(60_000)


@pytest.fixture
def pair():
    """Two nodes, each of whose frames are lost in one case of five."""
    lossy = Channel(loss=0.2, bit_errors=1e-6, duplication=0.05, reordering=0.05, late=0.02)
    with UdpTransport(1, {}, channel=lossy, seed=1) as one, UdpTransport(2, {1: one.address}, channel=lossy) as two:
        one.meet(2, two.address)
        yield one, two


def poll_until(nodes, done):
    """Poll in turn until a condition holds; what arrived at each."""
    arrived = {node.node: [] for node in nodes}

    def polled():
        for node in nodes:
            arrived[node.node] += node.poll(time.monotonic())
        return done(arrived)

    until(polled, lambda: str([node.traffic for node in nodes]))
    return arrived


def test_files_cross_sockets_that_lose_damage_double_and_reorder_frames(pair):
    one, two = pair
    now = time.monotonic()
    one.send(2, DATA, now)
    one.send(2, b"urgent", now, priority=1)
    two.send(1, DATA[::-1], now)
    arrived = poll_until(pair, lambda arrived: one.idle and two.idle and len(arrived[2]) == 2)
    assert sorted(delivery.data for delivery in arrived[2]) == sorted([b"urgent", DATA])
    assert [delivery.data for delivery in arrived[1]] == [DATA[::-1]]
    assert one.traffic.bytes_repeated > 6000
    assert (one.traffic.messages_sent, two.traffic.messages_sent) == (2, 1)


def test_nothing_is_sent_while_a_peer_cannot_be_reached(pair):
    one, two = pair
    now = time.monotonic()
    one.contact(2, False, now)
    for version in (b"old", b"older", b"new"):
        one.send(2, version, now, replaces="global")
        one.poll(now)
    assert one.traffic.packets_sent == 0
    assert one.next() is None
    one.contact(2, True, now)
    arrived = poll_until(pair, lambda arrived: one.idle and two.idle and arrived[2])
    assert [delivery.data for delivery in arrived[2]] == [b"new"]


def test_strangers_and_rubbish_are_refused(pair):
    one, two = pair
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(5):
            stranger.sendto(random.Random(1).randbytes(100), two.address)
    one._socket.sendto(b"rubbish", two.address)
    poll_until(pair, lambda arrived: two.traffic.packets_refused == 6)
    assert two.traffic.packets_received == 0


def test_mistakes_are_named(pair):
    with pytest.raises(UserError, match=r"node 7 has no address; known: 2"):
        pair[0].send(7, b"", 0.0)
    with pytest.raises(UserError, match="node 3 cannot use"):
        UdpTransport(3, {3: pair[0].address})
