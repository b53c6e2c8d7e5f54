"""Checks of every request: its host, its token, its length, its deadline, whether the service is about to stop; and its
log entry.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedpareto_serve.access_log import AccessLog
from fedpareto_serve.metrics import Counters

MOST_BYTES = 16 * 2**20
"""Bytes of a request: 10,000 rows of a wide table."""
BODY_SECONDS = 60.0
"""Seconds in which a request must be here once its headers are: the longest one at 2 Mbit/s."""
OPEN_PATHS = ("/health", "/ready")
"""For monitoring without a token: they only say whether the service answers."""
KNOWN, ROWS = "fedpareto.known", "fedpareto.rows"
"""Entries of a request's scope: whether it may see everything, and how many rows it asked about."""
CLOSE = (b"connection", b"close")


class Gate:
    """The outermost part of the application.

    Once `draining` is set, every answer closes its connection: further requests go over a new connection, to another
    process.
    """

    def __init__(
        self,
        app: ASGIApp,
        counters: Counters | None = None,
        token: str | None = None,
        log: AccessLog | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        self.app, self.log = app, log
        self._hosts = frozenset(host.lower() for host in hosts)
        self.counters = counters or Counters()
        self._digest = None if token is None else digest_of(token.encode())
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started = 500, time.perf_counter()

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining:
                    message = {**message, "headers": [*message["headers"], CLOSE]}
            await send(message)

        self.counters.begin()
        try:
            await self._checked(scope, receive, answering)
        finally:
            seconds, rows = time.perf_counter() - started, scope.get(ROWS, 0)
            self.counters.end(scope["path"], status, seconds, rows)
            if self.log is not None:
                self.log.write(scope, status, seconds, rows)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._hosts and host_of(scope) not in self._hosts:
            # A web page can give its own name this machine's address; the browser then takes us for its server.
            await said(421, "this service is not known under this name; see --allow-host")(scope, receive, send)
            return
        scope[KNOWN] = self._digest is None or hmac.compare_digest(digest_of(_bearer(scope)), self._digest)
        if not scope[KNOWN] and scope["path"] not in OPEN_PATHS:
            refusal = said(401, "this service requires a token: authorization: Bearer TOKEN")
            refusal.headers["www-authenticate"] = "Bearer"
            await refusal(scope, receive, send)
            return
        # A stranger, who may ask for open paths only, has nothing to send that we would wait for.
        arrived = await whole_request(scope, receive, send) if scope[KNOWN] else _once(b"", receive)
        if arrived is not None:
            await self.app(scope, arrived, send)


def said(status: int, message: str) -> JSONResponse:
    """One sentence, as every refusal is."""
    # Untrusted text may contain a lone surrogate, which UTF-8 cannot encode.
    return JSONResponse({"detail": message.encode("utf-8", "replace").decode()}, status)


def digest_of(token: bytes) -> bytes:
    """A digest of one length for every token, so that a comparison reveals nothing, not even the length."""
    return hashlib.sha256(token).digest()


def host_of(scope: Scope) -> str:
    """The name under which a request came, without the port; empty if it does not say."""
    return re.sub(r":\d*$", "", Headers(scope=scope).get("host", "").strip().lower()).removesuffix(".")


def _bearer(scope: Scope) -> bytes:
    """The token that came with a request; without one, nothing, which is not a token."""
    kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
    return token.strip().encode("latin-1") if kind.lower() == "bearer" else b""


async def whole_request(scope: Scope, receive: Receive, send: Send) -> Receive | None:
    """The request with its body already here; None if that is settled: too slow, too long, or gone."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _whole(receive)
    except TimeoutError:
        refusal = said(408, f"the request did not arrive within {BODY_SECONDS:g} s")
        refusal.headers["connection"] = "close"
        await refusal(scope, receive, send)
        return None
    if body is not None and len(body) > MOST_BYTES:
        await said(413, f"the request is longer than {MOST_BYTES:,} bytes")(scope, receive, send)
        return None
    return None if body is None else _once(body, receive)


async def _whole(receive: Receive) -> bytes | None:
    """The body, read here first so that no handler sees a part of it; None if the client has disconnected.

    Reading ends a little above MOST_BYTES, whatever the header says of its length.
    """
    message = await receive()
    if message["type"] == "http.disconnect":
        return None
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body
    parts = bytearray(body)
    while message.get("more_body", False) and len(parts) <= MOST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts += message.get("body", b"")
    return bytes(parts)


def _once(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """The whole body in one message, then whatever comes after it."""
    left: list[Any] = [body]

    async def again() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return again
