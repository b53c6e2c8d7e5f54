"""The page's server process: sockets of this machine, and an end that leaves no open tab waiting."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fedpareto.config.errors import UserError
from fedpareto_page import access, app
from fedpareto_page.watch import Shelf
from fedpareto_serve.listening import LOOPBACK, Server, in_url, is_loopback, listening

PORT = 8642
PORTS = 20
"""From PORT on, one of so many is taken if none is asked for."""
PATIENCE = 3
"""Seconds for answers under way when the page ends."""


@dataclass(frozen=True)
class Options:
    """Options of the page's server."""

    host: str = "127.0.0.1"
    port: int | None = None
    """None: PORT, or the next free one; 0: any."""
    hosts: tuple[str, ...] = ()
    """More names under which requests may come."""
    read_only: bool = False
    rows: Path | None = None
    """A CSV for the dial."""


@dataclass(frozen=True)
class Address:
    """The page's address."""

    base: str
    token: str
    ticket: str
    """Good for one visit, so that the token is not among the arguments of a browser, which other users can see."""

    @property
    def whole(self) -> str:
        return f"{self.base}/?token={self.token}"

    @property
    def once(self) -> str:
        """Address for a browser that we start."""
        return f"{self.base}/?token={self.ticket}"


def serve(roots: Sequence[Path], options: Options, ready: Callable[[Address], None]) -> None:
    """Serves until a stop signal; `ready` is called with the address once it answers."""
    with _sockets(options) as sockets:
        port = sockets[0].getsockname()[1]
        token = access.new_token() if options.port == 0 else access.token_for(port)
        names = (*LOOPBACK, in_url(options.host), *options.hosts)
        served = app.app_of(Shelf(roots), token, names, options.read_only, options.rows)
        address = Address(f"http://{in_url(options.host)}:{port}", token, served.guard.ticket())
        _Server(served, lambda: ready(address)).serve_until(sockets)


class _Server(Server):
    """A server that ends streams before it ends; uvicorn's own waits for all answers."""

    def __init__(self, served: app.Served, ready: Callable[[], None]) -> None:
        super().__init__(served.guard, ready, proxy_headers=False, timeout_graceful_shutdown=PATIENCE)
        self._hub = served.hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then everything else; an answer that is cut off now is nothing to tell anybody."""
        self._hub.close()
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


@contextmanager
def _sockets(options: Options) -> Iterator[list[socket.socket]]:
    """Listen on both loopback addresses, where the system has both."""
    first = _first(options)
    sockets = [first]
    try:
        if options.host == "127.0.0.1":
            with suppress(UserError):
                sockets.append(listening("::1", first.getsockname()[1]))
        yield sockets
    finally:
        for one in sockets:
            one.close()


def _first(options: Options) -> socket.socket:
    if options.port is not None:
        return listening(options.host, options.port)
    for port in range(PORT, PORT + PORTS):
        with suppress(UserError):
            return listening(options.host, port)
    raise UserError(f"no port of {options.host} from {PORT} to {PORT + PORTS - 1} is free; choose one with --port")


def warning(host: str) -> str | None:
    """A caution about an address that others reach; None for one that is this machine's alone."""
    if is_loopback(host):
        return None
    return f"whoever reaches {host} and sees the traffic, which is not encrypted, can do what you can do on the page"
