"""Messages as a fluid: how many bytes and seconds CFDP would take, without its packets. Nothing is left to chance.

A message of many segments takes, with headers, its bytes divided by the share of frames that survive, and as many
rounds of asking again as the unluckiest segment needs on average. Progress is kept from contact to contact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf, log

from fedpareto_space.links.cfdp_network import ChannelNetwork, Channels, channel_of
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.frames import OVERHEAD
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.pdus import Condition, Eof, Header, Metadata, encode
from fedpareto_space.links.transports import Contact, Delivery, Parcel

SEGMENT_HEADERS = Header(1, 1, 2).size + 4 + OVERHEAD
"""Bytes around a segment: the PDU's header and offset, packet and frame."""
FIRST, LAST = (
    len(encode(Header(1, 1, 2), pdu)) + OVERHEAD
    for pdu in (Metadata(0, 3, "message", "message"), Eof(Condition.NO_ERROR, 0, 0))
)
"""Bytes of the frames with the metadata and the EOF."""
SMALL = 64
"""Bytes of a frame with an EOF or a short NAK."""


@dataclass(frozen=True)
class Cost:
    """Bytes, frames and rounds of a message on average."""

    bytes: float
    """Bytes that the source sends, frames and all."""
    first: int
    """Bytes that are sent for the first time."""
    frames: float
    rounds: float
    """Number of times that missing segments are asked for."""


def cost(size: int, channel: Channel, segment: int) -> Cost:
    segments = ceil(size / segment)
    first = size + segments * SEGMENT_HEADERS + FIRST + LAST
    survives = channel.survives(min(size, segment) + SEGMENT_HEADERS)
    if survives == 1:
        return Cost(first, first, segments + 2, 0.0)
    lost = 1 - survives
    # The mean of the largest of n geometric numbers, H(n) / −ln p + 1/2, less the first time.
    rounds = max(0.0, _harmonic(segments) / -log(lost) - 0.5) if segments else 0.0
    return Cost(first / survives, first, (segments + 2) / survives, rounds)


def _harmonic(count: int) -> float:
    """1 + 1/2 + … + 1/n; from 20 on by Euler's constant, right to six digits."""
    return sum(1 / one for one in range(1, count + 1)) if count < 20 else log(count) + 0.5772157 + 0.5 / count


def seconds(found: Cost, channel: Channel, back: Channel, managed: Managed) -> tuple[float, float]:
    """For how long a message needs the channel, and how long what was lost of it is asked for after that."""
    again = 1 / channel.survives(SMALL) - 1  # how often the EOF is lost
    asking = again * managed.ack_timeout
    if found.rounds:
        # The first NAK follows the EOF; each later one, and each that is lost, takes a timer.
        timers = max(0.0, found.rounds / back.survives(SMALL) - 1)
        asking += managed.nak_delay + found.rounds * (channel.delay + back.delay) + timers * managed.nak_timeout
    return 8 * found.bytes / channel.rate, asking


class FluidNetwork(ChannelNetwork):
    """The time and bytes of `CfdpNetwork` in a few events for each message: for long simulations."""

    def __init__(
        self,
        channels: Channels | None = None,
        contacts: Sequence[Contact] | None = None,
        managed: Managed | None = None,
    ) -> None:
        super().__init__(channels, contacts, managed)
        self._ways: dict[tuple[int, int], _Way] = {}

    def _way(self, node: int, peer: int) -> _Way:
        if (node, peer) not in self._ways:
            self._ways[node, peer] = _Way(channel_of(self.channels, node, peer))
            for edge in (edge for outage in self._ways[node, peer].channel.outages for edge in outage):
                self.at(edge, partial(self.work, node, peer))
        return self._ways[node, peer]

    def contact_changed(self, node: int, peer: int, up: bool) -> None:
        """A contact that ends keeps what has flown so far."""
        self._flow(node, peer)
        self._way(node, peer).open = up and self._way(node, peer).open

    def work(self, node: int, peer: int) -> None:
        """Let flow what can flow, begin what comes next, and come again when something will be through."""
        self._flow(node, peer)
        way, here = self._way(node, peer), self.transport(node)
        here.traffic.messages_dropped += here.outbox.expire(self.now) + way.expire(self.now)
        way.open = self.connected(node, peer) and not way.in_outage(self.now)
        if not way.open:
            return
        while (parcel := here.outbox.take(peer, above=way.priority)) is not None:
            way.sending.append(_Flow.of(parcel, way.channel, channel_of(self.channels, peer, node), self.managed))
            way.sending.sort(key=lambda flow: (-flow.parcel.priority, flow.parcel.number))
            if parcel.expires < inf:
                self.at(parcel.expires, partial(self.work, node, peer))
            self._flow(node, peer)
        seconds = way.seconds()
        if seconds < inf:
            self.at(self.now + seconds, partial(self.work, node, peer))

    def _flow(self, node: int, peer: int) -> None:
        way, here, there = self._way(node, peer), self.transport(node), self.transport(peer)
        seconds, way.since = self.now - way.since if way.open else 0.0, self.now
        sent, arrived = way.flow(seconds)
        for flow in sent:
            traffic, cost_of_it = here.traffic, flow.cost
            traffic.bytes_sent += round(cost_of_it.bytes)
            traffic.bytes_repeated += round(cost_of_it.bytes) - cost_of_it.first
            traffic.packets_sent += round(cost_of_it.frames)
        for flow in arrived:
            here.traffic.messages_sent += 1
            there.traffic.messages_received += 1
            there.traffic.bytes_received += flow.cost.first
            at = self.now + way.channel.delay
            self.at(at, partial(there.arrived, Delivery(node, flow.parcel.data, at)))


@dataclass
class _Flow:
    """A message under way: seconds for which it still needs the channel, then seconds of asking again."""

    parcel: Parcel
    cost: Cost
    sending: float
    asking: float

    @staticmethod
    def of(parcel: Parcel, channel: Channel, back: Channel, managed: Managed) -> _Flow:
        found = cost(len(parcel.data), channel, managed.segment)
        return _Flow(parcel, found, *seconds(found, channel, back, managed))


class _Way:
    """One direction between two nodes: one message flows, and others wait for the last of their segments."""

    ALMOST = 1e-9
    """Seconds that are as good as none."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.since, self.open = channel, 0.0, False
        self.sending: list[_Flow] = []
        self.asking: list[_Flow] = []

    @property
    def priority(self) -> float:
        """The priority of what is being sent; below all if there is nothing."""
        return max((flow.parcel.priority for flow in self.sending), default=-inf)

    def in_outage(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.channel.outages)

    def expire(self, now: float) -> int:
        before = len(self.sending) + len(self.asking)
        self.sending = [flow for flow in self.sending if flow.parcel.expires > now]
        self.asking = [flow for flow in self.asking if flow.parcel.expires > now]
        return before - len(self.sending) - len(self.asking)

    def flow(self, seconds: float) -> tuple[list[_Flow], list[_Flow]]:
        """Let seconds pass; which messages were sent, and which of all have arrived."""
        sent, left = [], seconds
        for flow in self.asking:
            flow.asking -= seconds
        while self.sending and self.sending[0].sending <= left + self.ALMOST:
            flow = self.sending.pop(0)
            left -= flow.sending
            flow.asking -= left
            self.asking.append(flow)
            sent.append(flow)
        if self.sending:
            self.sending[0].sending -= left
        arrived = [flow for flow in self.asking if flow.asking <= self.ALMOST]
        self.asking = [flow for flow in self.asking if flow.asking > self.ALMOST]
        return sent, arrived

    def seconds(self) -> float:
        first = [flow.sending for flow in self.sending[:1]]
        return max(min([*first, *(flow.asking for flow in self.asking)], default=inf), 0.0)
