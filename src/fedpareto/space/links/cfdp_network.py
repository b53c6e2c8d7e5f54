"""Messages as files of CFDP, packet by packet over simulated channels and contacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from fedpareto.space.links.cfdp import Entity
from fedpareto.space.links.channel import Channel, Line
from fedpareto.space.links.frames import OVERHEAD, Deframer, Framer
from fedpareto.space.links.managed import Managed
from fedpareto.space.links.refusal import Refused
from fedpareto.space.links.stores import BytesSink, BytesSource
from fedpareto.space.links.transactions import Delivered, Ended, Id
from fedpareto.space.links.transports import Contact, Delivery, Parcel, SimulatedNetwork

Channels = Channel | Mapping[tuple[int, int], Channel]
"""One channel for all links, or one for each (from, to)."""

FRAMES_AHEAD = 4
"""Frames that may be before an acknowledgement or what was asked for, on the way there and back."""


def channel_of(channels: Channels, source: int, destination: int) -> Channel:
    """The channel from one node to another."""
    return channels if isinstance(channels, Channel) else channels.get((source, destination), Channel())


def timed_for(managed: Managed, channels: Sequence[Channel]) -> Managed:
    """Managed parameters with timers for the slowest of these channels: a round trip, and the frames before it."""
    slowest = max((one.slowest for one in channels), default=0.0)
    frame = max((one.seconds(managed.largest_pdu + OVERHEAD) for one in channels), default=0.0)
    round_trip = 2 * slowest + FRAMES_AHEAD * frame + 0.1
    late = max((one.late for one in channels if one.reordering), default=0.0)
    return replace(managed, ack_timeout=round_trip, nak_timeout=round_trip, nak_delay=late)


class CfdpNetwork(SimulatedNetwork):
    """CFDP class 2 in space packets in USLP frames: the profile "direct"."""

    def __init__(
        self,
        channels: Channels | None = None,
        contacts: Sequence[Contact] | None = None,
        seed: int = 0,
        managed: Managed | None = None,
    ) -> None:
        """Timers are set for the channels, unless `managed` says what they are."""
        super().__init__(contacts)
        self.channels: Channels = Channel() if channels is None else channels
        all_of_them = [self.channels] if isinstance(self.channels, Channel) else [*self.channels.values()]
        self.managed = timed_for(Managed(), all_of_them) if managed is None else managed
        self.seed = seed
        self._entities: dict[int, Entity] = {}
        self._ways: dict[tuple[int, int], _Way] = {}
        self._wakes: dict[int, float] = {}

    def entity(self, node: int) -> Entity:
        """The CFDP entity of a node."""
        if node not in self._entities:
            self._entities[node] = Entity(node, self.managed)
        return self._entities[node]

    def _way(self, node: int, peer: int) -> _Way:
        if (node, peer) not in self._ways:
            line = Line(channel_of(self.channels, node, peer), self.seed, node, peer)
            self._ways[node, peer] = _Way(line, node)
            self.entity(node).link(peer, self.connected(node, peer), self.now)
        return self._ways[node, peer]

    def contact_changed(self, node: int, peer: int, up: bool) -> None:
        """Suspend or resume; the frame that is being sent when a contact ends is lost."""
        self._way(node, peer).cut()
        self.entity(node).link(peer, up, self.now)

    def work(self, node: int, peer: int) -> None:
        """Hand waiting messages to CFDP once they can be sent, and send a frame if the channel is free."""
        way, entity, here = self._way(node, peer), self.entity(node), self.transport(node)
        here.traffic.messages_dropped += here.outbox.expire(self.now)
        while self.connected(node, peer) and not way.busy:
            parcel = here.outbox.take(peer, above=entity.priority(peer))
            if parcel is not None:
                self._begin(entity, parcel)
            found = entity.pull(peer, self.now)
            if found is None:
                break
            pdu, again = found
            frame = way.framer.frame(pdu)
            here.traffic.sends(len(frame), again=again)
            seconds = way.line.channel.seconds(len(frame))
            if seconds:
                way.busy = True
                self.at(self.now + seconds, partial(self._sent, node, peer, frame, way.cuts))
            else:
                self._carry(node, peer, frame)
        self._wake(node)

    def _begin(self, entity: Entity, parcel: Parcel) -> None:
        transaction = entity.put(parcel.to, BytesSource(parcel.data), self.now, priority=parcel.priority)
        if parcel.expires < inf:
            self.at(parcel.expires, partial(self._expire, entity, parcel.to, transaction))

    def _expire(self, entity: Entity, peer: int, transaction: Id) -> None:
        entity.cancel(transaction, self.now)
        self._see(entity.node)
        self.work(entity.node, peer)

    def _sent(self, node: int, peer: int, frame: bytes, cuts: int) -> None:
        way = self._way(node, peer)
        if way.cuts == cuts:
            way.busy = False
            self._carry(node, peer, frame)
            self.work(node, peer)

    def _carry(self, node: int, peer: int, frame: bytes) -> None:
        for at, arrived in self._way(node, peer).line.carry(frame, self.now):
            self.at(at, partial(self._arrive, node, peer, arrived))

    def _arrive(self, node: int, peer: int, frame: bytes) -> None:
        there = self.transport(peer)
        try:
            pdu = self._way(node, peer).deframer.pdu(frame)
        except Refused:
            there.traffic.packets_refused += 1
            return
        there.traffic.receives(len(frame))
        self.entity(peer).receive(pdu, self.now, node)
        self._see(peer)
        self.work(peer, node)

    def _see(self, node: int) -> None:
        """Hand on what an entity tells."""
        here = self.transport(node)
        for told in self.entity(node).indications():
            if isinstance(told, Delivered) and isinstance(told.sink, BytesSink):
                here.arrived(Delivery(told.peer, told.sink.data, self.now))
            elif isinstance(told, Ended) and told.sending:
                if told.complete:
                    here.traffic.messages_sent += 1
                else:
                    here.traffic.messages_dropped += 1

    def _wake(self, node: int) -> None:
        """See to it that timers act when they run out."""
        at = self.entity(node).next_time()
        if at < self._wakes.get(node, inf):
            self._wakes[node] = at
            self.at(at, partial(self._tick, node, at))

    def _tick(self, node: int, at: float) -> None:
        if self._wakes.get(node) == at:
            del self._wakes[node]
        self.entity(node).tick(self.now)
        self._see(node)
        for here, peer in list(self._ways):
            if here == node:
                self.work(node, peer)
        self._wake(node)

    def drowned(self, node: int, peer: int) -> int:
        """Bytes that a node sent to a peer into an outage."""
        return self._way(node, peer).line.drowned

    @property
    def open(self) -> int:
        """Transactions that have not ended, at all nodes."""
        return sum(entity.open for entity in self._entities.values())


class _Way:
    """One direction between two nodes: its channel, and whether a frame is being sent."""

    def __init__(self, line: Line, node: int) -> None:
        self.line, self.framer, self.deframer = line, Framer(node), Deframer(node)
        self.busy, self.cuts = False, 0

    def cut(self) -> None:
        """Whatever is being sent is lost."""
        self.busy = False
        self.cuts += 1
