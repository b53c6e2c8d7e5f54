"""Messages as files of CFDP between processes: frames in UDP datagrams over real sockets."""

from __future__ import annotations

import heapq
import select
import socket
from collections.abc import Mapping
from math import inf
from secrets import randbelow

from fedpareto.config.errors import UserError
from fedpareto_space.links.channel import Channel, Line
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.station import Station
from fedpareto_space.links.transports import Delivery, Outbox, Parcel, Traffic

Address = tuple[str, int]

LOOPBACK = "127.0.0.1"
LARGEST_DATAGRAM = 65535
BURST = 64
"""Frames that are sent to a peer in one go: about half of what a socket's buffer holds."""
MANAGED = Managed(ack_timeout=0.5, nak_timeout=0.5, ack_limit=1200, nak_limit=1200)
"""Ten minutes of patience: the other process may be at work for long before it looks at its socket again."""


class UdpTransport:
    """One node as a process. Times that are passed in are those of one clock, such as `time.monotonic()`.

    What is sent goes through `channel` first, so that links that lose data can be tried on one machine.
    """

    def __init__(
        self,
        node: int,
        addresses: Mapping[int, Address],
        *,
        channel: Channel | None = None,
        seed: int = 0,
        managed: Managed = MANAGED,
    ) -> None:
        """`addresses` has one for each node; without one of its own, a node takes any free port of this machine."""
        self.node, self.traffic = node, Traffic()
        self._addresses = {peer: address for peer, address in addresses.items() if peer != node}
        self._channel, self._seed = channel or Channel(), seed
        self._lines: dict[int, Line] = {}
        self._outbox, self._count = Outbox(), 0
        # A process that begins again must not use numbers of transactions that others remember.
        self._station = Station(node, managed, self._outbox, self.traffic, first_number=1 + randbelow(2**31))
        self._on_the_way: list[tuple[float, int, bytes]] = []
        self._free: dict[int, float] = {}
        self._more = False
        self._now = 0.0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            self._socket.bind(addresses.get(node, (LOOPBACK, 0)))
        except OSError as problem:
            self._socket.close()
            raise UserError(f"node {node} cannot use {addresses.get(node)}: {problem.strerror}") from None

    @property
    def address(self) -> Address:
        host, port = self._socket.getsockname()
        return host, port

    def meet(self, peer: int, address: Address) -> None:
        self._addresses[peer] = address

    def send(
        self, to: int, data: bytes, now: float, *, priority: int = 0, lifetime: float = inf, replaces: str = ""
    ) -> int:
        if to not in self._addresses:
            raise UserError(f"node {to} has no address; known: {', '.join(map(str, sorted(self._addresses)))}")
        self._count += 1
        parcel = Parcel(self._count, to, bytes(data), priority, now + lifetime, replaces)
        self.traffic.messages_dropped += self._outbox.put(parcel)
        self._now, self._more = max(self._now, now), True
        return parcel.number

    def poll(self, now: float) -> list[Delivery]:
        """Read what has come, let timers act, and send what can be sent."""
        self._now = max(self._now, now)
        arrived = self._read()
        arrived += self._station.tick(self._now)
        self._more = False
        for peer in self._addresses:
            self._write(peer)
        while self._on_the_way and self._on_the_way[0][0] <= self._now:
            _, peer, frame = heapq.heappop(self._on_the_way)
            self._out(peer, frame)
        return arrived

    def _read(self) -> list[Delivery]:
        arrived: list[Delivery] = []
        nodes = {address: peer for peer, address in self._addresses.items()}
        for _ in range(4 * BURST):
            try:
                frame, address = self._socket.recvfrom(LARGEST_DATAGRAM)
            except BlockingIOError:
                return arrived
            except ConnectionError:  # on Windows: the last datagram found nobody
                continue
            if address in nodes:
                arrived += self._station.take(frame, nodes[address], self._now)
            else:
                self.traffic.packets_refused += 1
        self._more = True
        return arrived

    def _write(self, peer: int) -> None:
        if peer not in self._lines:
            self._lines[peer] = Line(self._channel, self._seed, self.node, peer)
        for _ in range(BURST):
            if self._free.get(peer, -inf) > self._now:
                return
            frame = self._station.pull(peer, self._now)
            if frame is None:
                return
            self._free[peer] = self._now + self._channel.seconds(len(frame))
            for at, sent in self._lines[peer].carry(frame, self._now):
                if at <= self._now:
                    self._out(peer, sent)
                else:
                    heapq.heappush(self._on_the_way, (at, peer, sent))
        self._more = True

    def _out(self, peer: int, frame: bytes) -> None:
        try:
            self._socket.sendto(frame, self._addresses[peer])
        except OSError:
            return  # a full buffer or a network that is away: a lost frame like any other

    def contact(self, peer: int, up: bool, now: float) -> None:
        self._now = max(self._now, now)
        self._station.entity.link(peer, up, self._now)
        self._more = self._more or up

    def next(self) -> float | None:
        if self._more:
            return self._now
        busy = [at for at in self._free.values() if at > self._now]
        first = min(self._station.next_time(), *busy, *(at for at, _, _ in self._on_the_way[:1]), inf)
        return first if first < inf else None

    def wait(self, seconds: float) -> bool:
        """Sleep until something comes, or so long; whether something has come."""
        return bool(select.select([self._socket], [], [], max(0.0, seconds))[0])

    @property
    def idle(self) -> bool:
        return not self._station.entity.open and not self._on_the_way and not self._outbox

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> UdpTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
