"""Sockets, deadlines and limits of every server of ours, and signals that stop it. Without torch."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from fedpareto.config.errors import UserError

KEEP_ALIVE = 75
"""Keep-alive of an idle connection in seconds; longer than clients', so that they close it."""
HEADER_SECONDS = 10.0
"""Seconds in which the headers of a request must be here, from its first byte or from the beginning of the connection.
"""
MOST_HEADERS = 2**18
"""Bytes of the headers of a request, or of those behind its body: they are kept until all are here, a stranger's,
too.
"""
MOST_CONNECTIONS = 1000
"""Connections of a process; for one more the oldest that waits for a request goes, of the address that has most of
them. Below the 1,024 files that most systems let a process open.
"""
ENDING = (signal.SIGINT, signal.SIGTERM)
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
"""Names of this machine for itself."""


class Protocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """Uvicorn's protocol, with what it lacks: a deadline and a length for the headers of each request, and places by
    address.
    """

    _deadline: asyncio.TimerHandle | None = None
    _since: float
    """Time at which it was connected."""
    _headers = 0
    """Number of bytes that have come and were neither the end of headers nor of a body."""
    _got_on = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = asyncio.get_running_loop().time()
        self._await_headers()
        if len(self.connections) >= MOST_CONNECTIONS:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        self._got_on = False
        super().data_received(data)
        self._headers = 0 if self._got_on else self._headers + len(data)
        if self._headers > MOST_HEADERS:
            self.transport.abort()
        if self.cycle is None or self.cycle.response_complete:
            self._await_headers()
        else:
            self._end_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        self._got_on = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._got_on = True
        super().on_body(body)

    def _make_room(self) -> None:
        """Ends a connection that has no whole request under way; if all have one, uvicorn answers further with 503."""
        waiting = [
            one for one in self.connections if one.cycle is None or one.cycle.response_complete or one.cycle.more_body
        ]
        crowd = Counter(_address(one) for one in waiting)
        if crowd:
            busiest = max(crowd, key=lambda address: crowd[address])
            gone = min((one for one in waiting if _address(one) == busiest), key=lambda one: one._since)
            self.connections.discard(gone)
            gone.transport.abort()

    def _await_headers(self) -> None:
        """Begin a wait for headers; further bytes do not put the deadline off."""
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().call_later(HEADER_SECONDS, self.transport.close)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _address(connection: Any) -> str:
    return str(connection.client[0]) if connection.client else ""


class Server(uvicorn.Server):
    """Uvicorn's server with our limits; a requested stop is no failure."""

    def __init__(self, app: Any, ready: Callable[[], None], **options: Any) -> None:
        config = uvicorn.Config(
            app,
            http=Protocol,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            timeout_keep_alive=KEEP_ALIVE,
            limit_concurrency=MOST_CONNECTIONS,
            **options,
        )
        super().__init__(config)
        self._ready = ready

    def serve_until(self, sockets: list[socket.socket], signals: tuple[int, ...] = ENDING) -> None:
        with on_signals(self.handle_exit, signals):
            self.run(sockets=sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn would raise them again once it has stopped."""
        yield


@contextmanager
def on_signals(handler: Callable[[int, FrameType | None], None], signals: tuple[int, ...] = ENDING) -> Iterator[None]:
    """Calls `handler` on the signals that end processes."""
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def is_loopback(host: str) -> bool:
    return in_url(host) in LOOPBACK


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listening(host: str, port: int) -> socket.socket:
    """A socket of our own, so that a port in use is reported in one line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError, UnicodeError) as problem:
        raise UserError(
            f"cannot listen at {host}, port {port}: {getattr(problem, 'strerror', '') or problem}"
        ) from None
    return listener
