"""The only entrance to a server: TLS outside, Flower inside, and only nodes' own requests pass.

Flower's SuperLink answers nodes, operators and server processes on one port, and anyone who reaches that port may
register keys and start runs. So it listens on loopback, behind this gate. The gate forwards a request if its path is
one that nodes use and a registered key has signed it; Flower checks the signature again. All else is refused and
logged, and never reaches Flower.
"""

from __future__ import annotations

import http.client
import json
import logging
import math
import secrets
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field

import h11

from fedpareto.config.errors import UserError
from fedpareto_flower.deploy import certificates

FLEET = "/v1/fleet/"
NODE_CALLS = frozenset(
    FLEET + call
    for call in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
)
"""The requests of a registered node to Flower."""
OPEN_CALLS = NODE_CALLS | {FLEET + "register-node", FLEET + "unregister-node"}
"""Requests of a node without authentication, where nodes register themselves; for loopback only."""
STATE = "/fedpareto/state"
"""Our own request: the status of the run."""
SCHEMA_HEADER = "fedpareto-schema"
"""The fingerprint of the requesting node's schema."""
NODE_HEADER = "fedpareto-node"
"""The number of the requesting node; with signatures, its key determines it."""

MOST_STRANGERS = 256
"""Connections that have not signed a request yet; for one more the oldest of the address that has most must go."""
MOST_OF_NODE = 64
"""Connections of a node."""
FIRST_REQUEST = 10.0
"""Seconds from the connection to the head of a request that is let through, TLS handshake included."""
MOST_BYTES = 2**28
"""Bytes of one request; Flower cuts large messages into pieces below this."""
IDLE_TIMEOUT = 120.0
"""Seconds that a node's connection may be silent."""
PIECE = 2**18
PACE = {"requests": (50.0, 1000.0), "bytes": (2.0**25, 2.0**28)}
"""Requests and bytes of a node in a second, and at once after a pause; a faster one waits. An exchange takes about 50
requests, and a large model must get through.
"""
MOST_LINES = 512
"""Different refusals that are remembered."""
SILENCE = 60.0
"""Seconds in which the same refusal is logged once: an attacker must not fill the disk."""

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"host", b"expect")
)

log = logging.getLogger("fedpareto.gate")


@dataclass
class Gate:
    """Forwards the requests of nodes from `listen` to a SuperLink on this machine."""

    listen: tuple[str, int]
    superlink: tuple[str, int]
    keys: Mapping[bytes, int]
    """The registered public keys and the numbers of their nodes; empty: no authentication, for loopback only."""
    state: Callable[[], str]
    """The status of the run, in one word."""
    schema: str
    """The fingerprint of the federation's own."""
    outside: ssl.SSLContext | None = None
    """TLS of the server towards nodes; None: plain text, for loopback only."""
    inside: ssl.SSLContext | None = None
    """TLS towards the SuperLink."""
    heard: dict[int, float] = field(default_factory=dict)
    """Times of each node's last request that was let through, by time.monotonic()."""
    worked: dict[int, float] = field(default_factory=dict)
    """Times of each SuperNode's last request, by time.monotonic()."""
    told: dict[int, str] = field(default_factory=dict)
    """The last status that each node received."""
    start: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies this start of the server: nodes that see another one rejoin."""
    _last_said: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls = NODE_CALLS if self.keys else OPEN_CALLS
        self._lobby = _Lobby()
        self._paces: dict[tuple[int, str], _Pace] = {}
        self._open: dict[int, int] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def open(self) -> None:
        try:
            self._socket = socket.create_server(self.listen, backlog=128)
        except OSError as problem:
            where = f"{self.listen[0]}:{self.listen[1]}"
            raise UserError(f"the server cannot listen on {where}: {problem.strerror or problem}") from None
        for work in (self._accept, self._dismiss):
            threading.Thread(target=work, name="gate", daemon=True).start()

    def close(self) -> None:
        """Stops listening; open connections end with the process."""
        self._closed.set()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return  # Closed.
            stranger = _Stranger(peer[0], connection)
            for gone in self._lobby.enter(stranger):
                self._refused(gone.peer, "too many connections at a time without a signed request")
            threading.Thread(target=self._serve, args=(stranger,), name="gate", daemon=True).start()

    def _dismiss(self) -> None:
        """Ends connections that take too long to say who they are, however busy they seem."""
        while not self._closed.wait(FIRST_REQUEST / 10):
            for gone in self._lobby.late(time.monotonic() - FIRST_REQUEST):
                self._refused(gone.peer, f"no signed request within {FIRST_REQUEST:g} s")

    def _serve(self, stranger: _Stranger) -> None:
        raw, visit = stranger.connection, None
        try:
            raw.settimeout(IDLE_TIMEOUT)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.outside is not None:
                # The handshake comes later: whoever ends it from outside needs the socket that does it.
                wrapped = self.outside.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
                stranger.connection = wrapped
                if stranger.dismissed:
                    return  # Perhaps just when `raw` had given its socket away.
                wrapped.do_handshake()
            visit = _Visit(self, stranger)
            visit.serve()
        except ssl.SSLError as problem:
            if not stranger.dismissed:
                self._refused(stranger.peer, _in_words(problem))
        except OSError:
            pass  # It disconnected.
        finally:
            stranger.connection.close()
            raw.close()
            self._lobby.leave(stranger)
            if visit is not None and visit.node is not None:
                self._gone(visit.node)

    def _gone(self, node: int) -> None:
        with self._lock:
            self._open[node] -= 1

    def _known(self, stranger: _Stranger, node: int) -> bool:
        """Take a connection that has signed its first request for a node's; return whether it may have one more."""
        self._lobby.leave(stranger)
        with self._lock:
            if self._open.get(node, 0) >= MOST_OF_NODE:
                return False
            self._open[node] = self._open.get(node, 0) + 1
            return True

    def _keep_pace(self, node: int, what: str, amount: float) -> None:
        """Waits for as long as a node is ahead of its pace: it loses time, and no request."""
        with self._lock:
            wait = self._paces.setdefault((node, what), _Pace(*PACE[what])).wait(amount, time.monotonic())
        if wait > 0:
            self._refused(f"node {node}", f"more than {PACE[what][0]:g} {what} a second; they have to wait")
            self._closed.wait(wait)

    def silence(self, node: int) -> str:
        """Seconds since a node's SuperNode was heard, as text; empty: never since the server's start."""
        last = self.worked.get(node)
        return "" if last is None else f"{time.monotonic() - last:.1f}"

    def _refused(self, peer: str, why: str) -> None:
        line = f"refused {peer}: {why}"
        now = time.monotonic()
        if now - self._last_said.get(line, -SILENCE) >= SILENCE:
            if len(self._last_said) > MOST_LINES:
                self._last_said.clear()
            self._last_said[line] = now
            log.warning("%s", line)

    def who(self, headers: Mapping[str, str]) -> int:
        """The node that signed a request; UserError if nobody did. Without keys, the one that it says it is, or -1."""
        if not self.keys:
            said = headers.get(NODE_HEADER, "")
            return int(said) if said.isascii() and said.isdigit() and len(said) < 5 else -1
        return certificates.signer(headers, self.keys)

    def silences(self) -> dict[int, float]:
        """Seconds for which each node has made no request that was let through, whatever the time of day is."""
        now = time.monotonic()
        return {node: now - when for node, when in dict(self.heard).items() if node >= 0}


@dataclass(eq=False)
class _Stranger:
    """A connection that has not signed a request yet."""

    peer: str
    connection: socket.socket
    since: float = field(default_factory=time.monotonic)
    dismissed: bool = False

    def dismiss(self) -> None:
        """End the connection, whatever its thread waits for."""
        self.dismissed = True
        with suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)  # That of TLS would first wait for a goodbye.


class _Lobby:
    """All strangers, oldest first. A node is here for a moment, so crowds at the door do not shut it out: for a new
    connection an old one goes, of the address that has most of them.
    """

    def __init__(self) -> None:
        self._strangers: dict[_Stranger, None] = {}
        self._lock = threading.Lock()

    def enter(self, stranger: _Stranger) -> list[_Stranger]:
        """Let a stranger in; return those that were dismissed for it."""
        with self._lock:
            self._strangers[stranger] = None
            if len(self._strangers) <= MOST_STRANGERS:
                return []
            crowd = Counter(one.peer for one in self._strangers)
            busiest = max(crowd, key=lambda peer: crowd[peer])
            return self._dismiss([next(one for one in self._strangers if one.peer == busiest)])

    def late(self, before: float) -> list[_Stranger]:
        with self._lock:
            return self._dismiss([one for one in self._strangers if one.since < before])

    def leave(self, stranger: _Stranger) -> None:
        with self._lock:
            self._strangers.pop(stranger, None)

    def _dismiss(self, chosen: list[_Stranger]) -> list[_Stranger]:
        for one in chosen:
            one.dismiss()
            del self._strangers[one]
        return chosen


@dataclass
class _Pace:
    """So much a second, and after a pause so much at once."""

    rate: float
    burst: float
    _due: float = -math.inf
    """Time at which all that was asked for so far would be over at the allowed rate."""

    def wait(self, amount: float, now: float) -> float:
        """Seconds to wait before this amount, too, is within the pace."""
        self._due = max(self._due, now - self.burst / self.rate) + amount / self.rate
        return self._due - now


class _Visit:
    """One connection. h11 parses the untrusted bytes and http.client writes new ones: nothing is forwarded unparsed."""

    def __init__(self, gate: Gate, stranger: _Stranger) -> None:
        self.gate, self.stranger = gate, stranger
        self.connection, self.peer = stranger.connection, stranger.peer
        self.node: int | None = None
        """Node that owns the connection, once it has signed a request."""
        self.wants_head = False
        """True if the request is for the head of a response alone."""
        self.http = h11.Connection(h11.SERVER)

    def serve(self) -> None:
        """Answer request after request, until one side closes."""
        try:
            while True:
                request = self._next()
                if not isinstance(request, h11.Request) or not self._answer(request):
                    return
                if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
                    return
                self.http.start_next_cycle()
        except h11.RemoteProtocolError as problem:
            self.gate._refused(self.peer, f"it does not speak HTTP ({problem})")
            with suppress(h11.LocalProtocolError):
                self._say(problem.error_status_hint, "this is no HTTP")

    def _next(self) -> h11.Event | type[h11.PAUSED] | type[h11.NEED_DATA]:
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self.http.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self.http.receive_data(self.connection.recv(PIECE))

    def _answer(self, request: h11.Request) -> bool:
        """Answer a request; return whether the connection may go on."""
        self.wants_head = request.method == b"HEAD"
        path = request.target.decode("ascii", "replace")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        is_ours = path == STATE and request.method == b"GET"
        if not is_ours and not (path in self.gate._calls and request.method == b"POST"):
            shown = "".join(letter if letter.isprintable() else "?" for letter in path[:100])
            self.gate._refused(self.peer, f"{request.method.decode('ascii')} {shown} is not for nodes")
            return self._say(403, "not for nodes")
        try:
            node = self.gate.who(headers)
        except UserError as problem:
            self.gate._refused(self.peer, str(problem))
            # Clocks are set right, and nodes try again after 503, and after no other refusal.
            return self._say(503 if isinstance(problem, certificates.ClocksDiffer) else 412, str(problem))
        if self.node is None:
            if not self.gate._known(self.stranger, node):
                self.gate._refused(self.peer, f"node {node} has {MOST_OF_NODE} connections already")
                return self._say(503, "too many connections")
            self.node = node
        self.gate._keep_pace(node, "requests", 1)
        self.gate.heard[node] = time.monotonic()
        if is_ours:
            return self._tell(node, headers.get(SCHEMA_HEADER))
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not length.isdigit() or int(length) > MOST_BYTES:
            self.gate._refused(self.peer, f"a request of {length or 'unknown'} bytes")
            return self._say(413, "too large, or of unknown length")
        self.gate._keep_pace(node, "bytes", int(length))
        self.gate.worked[node] = time.monotonic()
        return self._forward(request, path)

    def _tell(self, node: int, schema: str | None) -> bool:
        if schema != self.gate.schema:
            self.gate._refused(self.peer, f"node {node} has another schema than the federation")
            return self._say(412, "its schema is not the federation's; ask for a new schema.json")
        self._next()
        word = self.gate.state()
        self._say(200, word, start=self.gate.start, silence=self.gate.silence(node))
        self.gate.told[node] = word
        return True

    def _forward(self, request: h11.Request, path: str) -> bool:
        host, port = self.gate.superlink
        inside = self.gate.inside
        flower = (
            http.client.HTTPConnection(host, port, timeout=IDLE_TIMEOUT)
            if inside is None
            else http.client.HTTPSConnection(host, port, timeout=IDLE_TIMEOUT, context=inside)
        )
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers if name not in HOP_BY_HOP
        }
        with closing(flower):
            try:
                flower.request("POST", path, body=self._body(), headers=headers)
                response = flower.getresponse()
            except (http.client.HTTPException, OSError):
                return self._say(503, "the server is not ready")
            self._pass_back(response)
        return True

    def _body(self) -> Iterator[bytes]:
        while isinstance(event := self._next(), h11.Data):
            yield bytes(event.data)

    def _pass_back(self, response: http.client.HTTPResponse) -> None:
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in response.getheaders()
            if name.lower().encode("latin-1") not in HOP_BY_HOP
        ]
        self._send(h11.Response(status_code=response.status, headers=headers))
        while piece := response.read(PIECE):
            self._send(h11.Data(data=piece))
        self._send(h11.EndOfMessage())

    def _say(self, status: int, word: str, **more: str) -> bool:
        """A short response of our own; the rest of the request is not read, so the connection ends (unless 200)."""
        body = json.dumps({"fedpareto": word, **more}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        if status != 200:
            headers.append(("connection", "close"))
        self._send(h11.Response(status_code=status, headers=headers))
        if not self.wants_head:
            self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        return False

    def _send(self, event: h11.Event) -> None:
        content = self.http.send(event)
        if content:
            self.connection.sendall(content)


def _in_words(problem: ssl.SSLError) -> str:
    """Reason for a failed TLS connection, in an operator's words."""
    reason = problem.reason or str(problem)
    known = {
        "HTTP_REQUEST": "it speaks plain text; this port wants TLS",
        "WRONG_VERSION_NUMBER": "it does not speak TLS",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it does not accept the certificate: one of the two has expired",
        "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of this server's certificate",
        "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this server's certificate (another host name?)",
    }
    return known.get(reason, f"no TLS connection ({reason.lower().replace('_', ' ')})")
