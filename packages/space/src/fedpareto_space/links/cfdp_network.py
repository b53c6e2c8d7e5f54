"""Messages as files of CFDP, packet by packet over simulated channels and contacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from fedpareto_space.links.channel import Channel, Line
from fedpareto_space.links.frames import OVERHEAD
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.station import Station
from fedpareto_space.links.transports import Contact, Delivery, SimulatedNetwork

Channels = Channel | Mapping[tuple[int, int], Channel]
"""One channel for all links, or one for each (from, to)."""

FRAMES_AHEAD = 4
"""Frames that may be before an acknowledgement or what was asked for, on the way there and back."""
MARGIN = 0.1
"""Seconds that a timer waits longer than it must."""


def channel_of(channels: Channels, source: int, destination: int) -> Channel:
    return channels if isinstance(channels, Channel) else channels.get((source, destination), Channel())


def timed_for(managed: Managed, channels: Channels) -> Managed:
    """Managed parameters with timers for the slowest channel: a round trip, and the frames before it."""
    all_of_them = [channels] if isinstance(channels, Channel) else [Channel(), *channels.values()]
    slowest = max(one.slowest for one in all_of_them)
    frame = max(one.seconds(managed.largest_pdu + OVERHEAD) for one in all_of_them)
    wait = 2 * slowest + FRAMES_AHEAD * frame + MARGIN
    late = max((one.late for one in all_of_them if one.reordering), default=0.0)
    return replace(managed, ack_timeout=wait, nak_timeout=wait, nak_delay=late)


class ChannelNetwork(SimulatedNetwork):
    """A network over channels; timers are set for these, unless `managed` says what they are."""

    def __init__(
        self,
        channels: Channels | None = None,
        contacts: Sequence[Contact] | None = None,
        managed: Managed | None = None,
    ) -> None:
        super().__init__(contacts)
        self.channels: Channels = Channel() if channels is None else channels
        self.managed = timed_for(Managed(), self.channels) if managed is None else managed


class CfdpNetwork(ChannelNetwork):
    """CFDP class 2 in space packets in USLP frames: the profile "direct"."""

    def __init__(
        self,
        channels: Channels | None = None,
        contacts: Sequence[Contact] | None = None,
        seed: int = 0,
        managed: Managed | None = None,
    ) -> None:
        super().__init__(channels, contacts, managed)
        self.seed = seed
        self._stations: dict[int, Station] = {}
        self._ways: dict[tuple[int, int], _Way] = {}
        self._wakes: dict[int, float] = {}

    def station(self, node: int) -> Station:
        if node not in self._stations:
            here = self.transport(node)
            self._stations[node] = Station(node, self.managed, here.outbox, here.traffic)
        return self._stations[node]

    def _way(self, node: int, peer: int) -> _Way:
        if (node, peer) not in self._ways:
            self._ways[node, peer] = _Way(Line(channel_of(self.channels, node, peer), self.seed, node, peer))
            self.station(node).entity.link(peer, self.connected(node, peer), self.now)
        return self._ways[node, peer]

    def contact_changed(self, node: int, peer: int, up: bool) -> None:
        """Suspend or resume; the frame that is being sent when a contact ends is lost."""
        self._way(node, peer).cut()
        self.station(node).entity.link(peer, up, self.now)

    def work(self, node: int, peer: int) -> None:
        """Send frames while there are any, the channel is free, and the contact is long enough for one more."""
        way, station = self._way(node, peer), self.station(node)
        last = self.contact_end(node, peer) - way.line.channel.seconds(self.managed.largest_pdu + OVERHEAD)
        while self.connected(node, peer) and not way.busy and self.now <= last:
            frame = station.pull(peer, self.now)
            if frame is None:
                break
            seconds = way.line.channel.seconds(len(frame))
            if seconds:
                way.busy = True
                self.at(self.now + seconds, partial(self._sent, node, peer, frame, way.cuts))
            else:
                self._carry(node, peer, frame)
        self._wake(node)

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
        self._hand_on(peer, self.station(peer).take(frame, node, self.now))
        self.work(peer, node)

    def _hand_on(self, node: int, arrived: list[Delivery]) -> None:
        for delivery in arrived:
            self.transport(node).arrived(delivery)

    def _wake(self, node: int) -> None:
        at = self.station(node).next_time()
        if at < self._wakes.get(node, inf):
            self._wakes[node] = at
            self.at(at, partial(self._tick, node, at))

    def _tick(self, node: int, at: float) -> None:
        if self._wakes.get(node) == at:
            del self._wakes[node]
        self._hand_on(node, self.station(node).tick(self.now))
        for here, peer in list(self._ways):
            if here == node:
                self.work(node, peer)
        self._wake(node)

    def drowned(self, node: int, peer: int) -> int:
        return self._way(node, peer).line.drowned

    @property
    def open(self) -> int:
        """Transactions that have not ended, at all nodes."""
        return sum(station.entity.open for station in self._stations.values())


class _Way:
    """One direction between two nodes: its channel, and whether a frame is being sent."""

    def __init__(self, line: Line) -> None:
        self.line, self.busy, self.cuts = line, False, 0

    def cut(self) -> None:
        self.busy = False
        self.cuts += 1
