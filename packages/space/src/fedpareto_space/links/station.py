"""One node's whole stack of the profile "direct": messages, CFDP, space packets and frames, without IO or a clock."""

from __future__ import annotations

from math import inf

from fedpareto_space.links.cfdp import Entity
from fedpareto_space.links.frames import Deframer, Framer
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.refusal import Refused
from fedpareto_space.links.stores import BytesSink, BytesSource
from fedpareto_space.links.transactions import Delivered, Ended, Id
from fedpareto_space.links.transports import Delivery, Outbox, Traffic

MOST_AT_ONCE = 64
"""Messages that are on their way to a peer at a time; others accept 256 from all of theirs."""


class Station:
    """Gives frames when asked for them, takes frames that arrive, and hands out messages that are complete."""

    def __init__(self, node: int, managed: Managed, outbox: Outbox, traffic: Traffic, first_number: int = 1) -> None:
        self.entity = Entity(node, managed, first_number=first_number)
        self.outbox, self.traffic = outbox, traffic
        self._framers: dict[int, Framer] = {}
        self._deframers: dict[int, Deframer] = {}
        self._expiries: dict[Id, float] = {}

    def pull(self, peer: int, now: float) -> bytes | None:
        """The next frame for a peer. A message is begun when it goes before all that is under way, not earlier."""
        if not self.entity.reaches(peer):
            return None
        room = self.entity.sending_to(peer) < MOST_AT_ONCE
        parcel = self.outbox.take(peer, above=self.entity.priority(peer)) if room else None
        if parcel is not None:
            transaction = self.entity.put(peer, BytesSource(parcel.data), now, priority=parcel.priority)
            if parcel.expires < inf:
                self._expiries[transaction] = parcel.expires
        found = self.entity.pull(peer, now)
        if found is None:
            return None
        if peer not in self._framers:
            self._framers[peer] = Framer(self.entity.node)
        frame = self._framers[peer].frame(found[0])
        self.traffic.sends(len(frame), again=found[1])
        return frame

    def take(self, frame: bytes, peer: int, now: float) -> list[Delivery]:
        """Take a frame of a peer; the messages that it completes. A damaged one is counted and forgotten."""
        if peer not in self._deframers:
            self._deframers[peer] = Deframer(peer)
        try:
            pdu = self._deframers[peer].pdu(frame)
        except Refused:
            self.traffic.packets_refused += 1
            return []
        self.traffic.receives(len(frame))
        self.entity.receive(pdu, now, peer)
        return self._told(now)

    def tick(self, now: float) -> list[Delivery]:
        """Let timers act, and give up messages that are too old, whether begun or not."""
        self.traffic.messages_dropped += self.outbox.expire(now)
        for transaction in [one for one, at in self._expiries.items() if at <= now]:
            del self._expiries[transaction]
            self.entity.cancel(transaction, now)
        self.entity.tick(now)
        return self._told(now)

    def next_time(self) -> float:
        return min(self.entity.next_time(), self.outbox.next_expiry(), *self._expiries.values(), inf)

    def _told(self, now: float) -> list[Delivery]:
        arrived = []
        for told in self.entity.indications():
            if isinstance(told, Delivered) and isinstance(told.sink, BytesSink):
                self.traffic.messages_received += 1
                arrived.append(Delivery(told.peer, told.sink.data, now))
            elif isinstance(told, Ended) and told.sending:
                self._expiries.pop(told.transaction, None)
                if told.complete:
                    self.traffic.messages_sent += 1
                else:
                    self.traffic.messages_dropped += 1
        return arrived

    def missed(self, peer: int) -> int:
        """Frames of a peer that had not come when a later one came."""
        return self._deframers[peer].missed if peer in self._deframers else 0
