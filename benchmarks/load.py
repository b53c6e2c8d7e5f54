"""A load generator: sends HTTP requests as fast as they are answered, on any number of persistent connections.

It parses no more than it must, so that on one core it can send more than a server on another core answers.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Statistics of the requests."""

    seconds: list[float] = field(default_factory=list)
    """From the first byte sent to the last one received, of each that was answered."""
    statuses: dict[int, int] = field(default_factory=dict)
    broken: int = 0
    """Sent on an open connection, and not answered as a whole."""
    refused: int = 0
    """Connections that were not accepted."""

    @property
    def answered(self) -> int:
        return len(self.seconds)

    def percentile(self, share: float) -> float:
        """In milliseconds."""
        ordered = sorted(self.seconds)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Connection(asyncio.Protocol):
    """Sends the next request after each answer, until the event or until the server closes."""

    def __init__(self, request: bytes, tally: Tally, until: asyncio.Event) -> None:
        self.request, self.tally, self.until = request, tally, until
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting = False
        self.received, self.length = b"", -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        self.waiting, self.started = True, time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.received = self.received + data if self.received else data
        if self.length < 0:
            end = self.received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.received[:end].lower()
            place = head.find(b"content-length: ") + len(b"content-length: ")
            self.length = end + 4 + int(head[place:].split(b"\r", 1)[0])
            self.closes = b"connection: close" in head
        if len(self.received) < self.length:
            return
        self.tally.seconds.append(time.perf_counter() - self.started)
        status = int(self.received[9:12])
        self.tally.statuses[status] = self.tally.statuses.get(status, 0) + 1
        self.received, self.length, self.waiting = b"", -1, False
        if self.closes or self.until.is_set():
            self.transport.close()
        else:
            self._ask()

    def connection_lost(self, problem: Exception | None) -> None:
        self.tally.broken += self.waiting
        if not self.over.done():
            self.over.set_result(None)


async def _keep_asking(host: str, port: int, request: bytes, tally: Tally, until: asyncio.Event) -> None:
    """At least once; on one connection after the other, until the event or until connections are refused."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            _, connection = await loop.create_connection(lambda: Connection(request, tally, until), host, port)
        except OSError:
            tally.refused += 1
            return
        await connection.over
        if until.is_set():
            return


async def load(host: str, port: int, request: bytes, connections: int, until: asyncio.Event) -> Tally:
    """Sends requests on several connections at once, until the event or until connections are refused."""
    tally = Tally()
    await asyncio.gather(*[_keep_asking(host, port, request, tally, until) for _ in range(connections)])
    return tally


def post(path: str, body: bytes, token: str = "") -> bytes:
    """The bytes of a request."""
    lines = [
        f"POST {path} HTTP/1.1",
        "host: localhost",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    lines += [f"authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode() + body
