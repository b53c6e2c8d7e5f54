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
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field

import h11

from fedpareto.deploy import certificates
from fedpareto.errors import UserError

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
"""The same without node authentication, where nodes register themselves; for loopback only."""
STATE = "/fedpareto/state"
"""Our own request: the status of the run."""
SCHEMA_HEADER = "fedpareto-schema"
"""The fingerprint of the requesting node's schema."""
NODE_HEADER = "fedpareto-node"
"""The number of the requesting node; with signatures, its key determines it."""

MOST_CONNECTIONS = 512
MOST_BYTES = 2**28
"""Of one request; Flower cuts large messages into pieces below this."""
HANDSHAKE_TIMEOUT, IDLE_TIMEOUT = 10.0, 120.0
PIECE = 2**18
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
    """Of the server towards nodes; None: plain text, for loopback only."""
    inside: ssl.SSLContext | None = None
    """Towards the SuperLink."""
    heard: dict[int, float] = field(default_factory=dict)
    """When each node last made a request that was let through, by time.time()."""
    told: dict[int, str] = field(default_factory=dict)
    """The last status that each node received."""
    start: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies this start of the server: nodes that see another one rejoin."""
    _last_said: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._calls = NODE_CALLS if self.keys else OPEN_CALLS
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)

    def open(self) -> None:
        """Starts listening; returns at once."""
        try:
            self._socket = socket.create_server(self.listen, backlog=128)
        except OSError as problem:
            where = f"{self.listen[0]}:{self.listen[1]}"
            raise UserError(f"the server cannot listen on {where}: {problem.strerror or problem}") from None
        threading.Thread(target=self._accept, name="gate", daemon=True).start()

    def close(self) -> None:
        """Stops listening; open connections end with the process."""
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._socket.accept()
            except OSError:
                return  # Closed.
            if not self._places.acquire(blocking=False):
                self._refused(peer[0], "too many connections at a time")
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection, peer[0]), name="gate", daemon=True).start()

    def _serve(self, raw: socket.socket, peer: str) -> None:
        try:
            raw.settimeout(HANDSHAKE_TIMEOUT)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = raw if self.outside is None else self.outside.wrap_socket(raw, server_side=True)
            with connection:
                connection.settimeout(IDLE_TIMEOUT)
                _Visit(self, connection, peer).serve()
        except ssl.SSLError as problem:
            self._refused(peer, _in_words(problem))
        except OSError:
            pass  # It disconnected.
        finally:
            raw.close()
            self._places.release()

    def _refused(self, peer: str, why: str) -> None:
        line = f"refused {peer}: {why}"
        now = time.monotonic()
        if now - self._last_said.get(line, -SILENCE) >= SILENCE:
            if len(self._last_said) > MOST_CONNECTIONS:
                self._last_said.clear()
            self._last_said[line] = now
            log.warning("%s", line)

    def who(self, peer: str, headers: Mapping[str, str]) -> int | None:
        """The node that signed a request; None if it is refused. Without keys, the one that it says it is, or -1."""
        if not self.keys:
            said = headers.get(NODE_HEADER, "")
            return int(said) if said.isdigit() and len(said) < 5 else -1
        try:
            return certificates.signer(headers, self.keys)
        except UserError as problem:
            self._refused(peer, str(problem))
            return None


class _Visit:
    """One connection. h11 parses the untrusted bytes and http.client writes new ones: nothing is forwarded unparsed."""

    def __init__(self, gate: Gate, connection: socket.socket, peer: str) -> None:
        self.gate, self.connection, self.peer = gate, connection, peer
        self.http = h11.Connection(h11.SERVER)

    def serve(self) -> None:
        """Request after request, until one side closes."""
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
        """Whether the connection may go on."""
        path = request.target.decode("ascii", "replace")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        is_ours = path == STATE and request.method == b"GET"
        if not is_ours and not (path in self.gate._calls and request.method == b"POST"):
            shown = "".join(letter if letter.isprintable() else "?" for letter in path[:100])
            self.gate._refused(self.peer, f"{request.method.decode('ascii')} {shown} is not for nodes")
            return self._say(403, "not for nodes")
        node = self.gate.who(self.peer, headers)
        if node is None:
            return self._say(412, "its key is not registered, or its clock is wrong")
        self.gate.heard[node] = time.time()
        if is_ours:
            return self._tell(node, headers.get(SCHEMA_HEADER))
        length = headers.get("content-length", "")
        if "transfer-encoding" in headers or not length.isdigit() or int(length) > MOST_BYTES:
            self.gate._refused(self.peer, f"a request of {length or 'unknown'} bytes")
            return self._say(413, "too large, or of unknown length")
        return self._forward(request, path)

    def _tell(self, node: int, schema: str | None) -> bool:
        if schema != self.gate.schema:
            self.gate._refused(self.peer, f"node {node} has another schema than the federation")
            return self._say(412, "its schema is not the federation's; ask for a new schema.json")
        self._next()
        word = self.gate.state()
        self._say(200, word, start=self.gate.start)
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
                # Nodes retry after this one, and after no other refusal.
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
        self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())
        return False

    def _send(self, event: h11.Event) -> None:
        content = self.http.send(event)
        if content:
            self.connection.sendall(content)


def _in_words(problem: ssl.SSLError) -> str:
    """Why a TLS connection failed, in an operator's words."""
    reason = problem.reason or str(problem)
    known = {
        "HTTP_REQUEST": "it speaks plain text; this port wants TLS",
        "WRONG_VERSION_NUMBER": "it does not speak TLS",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it does not accept the certificate: one of the two has expired",
        "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority of this server's certificate",
        "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept this server's certificate (another host name?)",
    }
    return known.get(reason, f"no TLS connection ({reason.lower().replace('_', ' ')})")
