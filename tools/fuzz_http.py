"""What `fuzz.py` tries of HTTP: requests to the service, the page and a federation's gate, and the gate's answers.

A request is its bytes. They are parsed by the parser of the server that runs the application (the gate has its own),
and what is no request is refused there; the application gets all others, whole or cut off.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import random
import socket
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fuzz_mutations import of_bytes, of_json
from fuzz_readers import Reader, replaced

from fedpareto.config.errors import UserError

ODD = (
    *(b"", b"0", b"-1", b"9" * 30, b"\xb2", b"1e9", b"nan", b"x" * 5000, b"\xff\xfe", b"%00", b"%ff%fe", b"../../x"),
    *(b"//x", b"?" * 50, b"&seed=1&seed=", b"[[[", b"*", b"chunked", b"text/plain", b"application/json", b"a=b; c=d;;"),
    *(b"null", b"0,1,2", b"\xc2\xb2", b"1 1", b"http://x/y", b"bytes=0-0", b"gzip", b"close", b"100-continue"),
)
TOKEN = "a" * 32
HOST = "127.0.0.1"
CLOSED = 1
"""A port on which nobody listens."""


def request(method: str, target: str, body: bytes = b"", **headers: str) -> bytes:
    """As a client writes it."""
    lines = [f"{method} {target} HTTP/1.1", f"host: {HOST}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def of_request(draw: random.Random, content: bytes) -> bytes:
    """Another target, headers with odd values, lost and repeated ones, another body; often other bytes."""
    if draw.random() < 0.3:
        return of_bytes(draw, content)
    head, _, body = content.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if body and draw.random() < 0.5:
        body = of_json(draw, body) if body[:1] in b"{[" else of_bytes(draw, body)
        lines = [line for line in lines if not line.startswith(b"content-length")]
        lines.append(b"content-length: %d" % len(body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body
    for _ in range(draw.choice((1, 1, 2))):
        place = draw.randrange(len(lines))
        kind = draw.randrange(5)
        if place == 0:
            method, target, *rest = [*lines[0].split(b" "), b"", b""][:3]
            parts = target.replace(b"?", b"/").replace(b"=", b"/").replace(b"&", b"/").split(b"/")
            part = draw.choice([one for one in parts if one] or [target])
            target = target.replace(part, draw.choice(ODD), 1) if part else draw.choice(ODD)
            method = draw.choice((method,) * 8 + (b"GET", b"PUT", b"HEAD", b"OPTIONS", b"\xff"))
            lines[0] = b" ".join([method, target, *rest])
        elif kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(place, lines[place])
        else:
            name, _, value = lines[place].partition(b": ")
            lines[place] = name + b": " + draw.choice((*ODD, of_bytes(draw, value)))
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


# -- applications --------------------------------------------------------------------------------------------------


@dataclass
class Parsed:
    """A request as the server's parser tells it."""

    target: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    is_whole: bool = False

    def on_url(self, target: bytes) -> None:
        """See httptools."""
        self.target += target

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self.body += body

    def on_message_complete(self) -> None:
        """See httptools."""
        self.is_whole = True


def parsed(content: bytes) -> tuple[dict[str, Any], Parsed]:
    """The scope of a request, as uvicorn makes it; UserError if the parser refuses."""
    import httptools

    found = Parsed()
    parser = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(content)
        url = httptools.parse_url(found.target)
        method, raw = parser.get_method().decode("ascii"), url.path or b""
        path = unquote(raw.decode("ascii"))
    except (httptools.HttpParserError, UnicodeDecodeError) as problem:
        raise UserError(f"no request: {problem}") from None
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": (HOST, 8000),
        "client": (HOST, 40000),
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": path,
        "raw_path": raw,
        "query_string": url.query or b"",
        "headers": found.headers,
        "state": {},
    }
    return scope, found


def answering(app: Any) -> Callable[[bytes], object]:
    """Gives requests to an application, one after the other."""
    loop = asyncio.new_event_loop()

    def read(content: bytes) -> object:
        scope, found = parsed(content)
        status = loop.run_until_complete(asked(app, scope, found))
        if status is None:
            raise UserError("no answer to a request that was cut off")
        if status >= 500 and status != 503:
            raise AssertionError(f"the answer is {status}")
        if status >= 400:
            raise UserError(f"the answer is {status}")
        return status

    weakref.finalize(read, loop.close)
    return read


async def asked(app: Any, scope: dict[str, Any], found: Parsed) -> int | None:
    """The status of the answer; None if there was none."""
    statuses: list[int] = []
    messages = [{"type": "http.request", "body": found.body, "more_body": not found.is_whole}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(int(message["status"]))

    await app(scope, receive, send)
    if not statuses and found.is_whole:
        raise AssertionError("no answer")
    return statuses[0] if statuses else None


def service(folder: Path) -> Reader:
    """Of `fedpareto serve`."""
    from fedpareto_serve import runs
    from fedpareto_serve.service import app_of

    source = runs.load(folder / "run")
    columns = source.conditioned(source.clients[0]).card.inputs.columns
    rows = [{name: 0.5 if kind == "number" else "a" for name, kind in columns.items()}] * 2
    asked = json.dumps({"rows": rows, "preference": [0.5, 0.5], "client": source.clients[0]}).encode()
    json_ = {"content_type": "application/json", "authorization": f"Bearer {TOKEN}"}
    whole = (
        request("POST", "/predict", asked, **json_),
        request("GET", "/front?client=0", **json_),
        request("GET", "/health", **json_),
        request("GET", "/metrics", **json_),
    )
    return Reader("HTTP (service)", whole, of_request, answering(app_of(source, token=TOKEN, hosts=(HOST,))))


def page(folder: Path) -> Reader:
    """Of `fedpareto page`, whose helpers answer in this process."""
    from fedpareto_page import app
    from fedpareto_page.watch import Shelf
    from fedpareto_page.worker import Worker

    def ask(self: Worker, name: str, payload: Any = None) -> Any:
        module, _, function = self.target.partition(":")
        return json.loads(json.dumps(getattr(import_module(module), function)(name, json.loads(json.dumps(payload)))))

    shelf = Shelf([folder / "shown"])
    shelf.poll()
    (id,) = shelf.runs
    served = app.app_of(shelf, TOKEN, (HOST,), read_only=True)
    known = {"cookie": f"fedpareto-80={TOKEN}", "content_type": "application/json", "x_fedpareto": "page"}
    turn = json.dumps(
        {"preference": [0.5, 0.5], "client": 0, "seed": 0, "edits": [[0, "x1", 1.0]], "tab": "t"}
    ).encode()
    wanted = json.dumps({"values": {"problem": "convex", "algorithm": "fedavg", "learner.lr": "0.1"}}).encode()
    table = json.dumps({"csv": "x1,x2\n1,2\n", "run": id, "name": "rows.csv"}).encode()
    asked = [f"/api/runs/{id}", f"/api/runs/{id}/lines?since=0&epoch=0", f"/api/runs/{id}/film?seed=0"]
    asked += [f"/api/runs/{id}/values?eval=sent&split=test&since=0", f"/api/runs/{id}/clients?seed=0&round=1&runs={id}"]
    asked += [
        f"/api/compare?runs={id}",
        f"/api/dial/{id}?client=0&seed=0",
        "/static/index.html",
        f"/run/{id}",
        "/api/runs",
    ]
    whole = [request("GET", target, **known) for target in asked]
    ours = known | dict([_ours()])
    whole += [request("POST", f"/api/dial/{id}", turn, **ours), request("POST", "/api/rows", table, **ours)]
    whole += [request("POST", "/api/check", wanted, **ours)]
    read = answering(served.guard)

    def here(content: bytes) -> object:
        with replaced(Worker, ask=ask):
            return read(content)

    return Reader("HTTP (page)", tuple(whole), of_request, here)


def _ours() -> tuple[str, str]:
    """The header by which the page's own scripts are known."""
    from fedpareto_page.access import OURS

    return OURS[0].replace("-", "_"), OURS[1]


# -- the gate ------------------------------------------------------------------------------------------------------


def gate(folder: Path) -> Reader:
    """Of a federation, with and without keys; nobody is behind it."""
    from fedpareto_flower.deploy import certificates
    from fedpareto_flower.deploy import flower_proxy as gates
    from fedpareto_flower.deploy.layout import Deployment

    endless = dict.fromkeys(gates.PACE, (1e12, 1e12))
    deployment = Deployment.open(folder / "federation")
    keys = {certificates.load_public(deployment.public_key(number)): number for number in range(2)}
    closed, open_ = (
        gates.Gate((HOST, 0), (HOST, CLOSED), known, lambda: "training", "fingerprint") for known in (keys, {})
    )
    signed = certificates.signed(certificates.load_key(deployment.node(0) / "node.key"))
    headers = {name.replace("-", "_"): value for name, value in signed.items()} | {"fedpareto_schema": "fingerprint"}
    whole = (
        request("GET", gates.STATE, **headers),
        request("GET", gates.STATE, fedpareto_node="1", fedpareto_schema="fingerprint"),
        request("POST", f"{gates.FLEET}pull-messages", b"\x0a\x02hi", **headers),
    )

    def read(content: bytes) -> object:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(content)
            ours.shutdown(socket.SHUT_WR)
            visit = gates._Visit(open_ if b"fedpareto-node" in content else closed, gates._Stranger("a peer", theirs))
            with replaced(gates, PACE=endless), replaced(certificates, OLDEST=math.inf):
                visit.serve()
            if visit.node is not None:
                visit.gate._gone(visit.node)
            theirs.shutdown(socket.SHUT_WR)
            answer = ours.recv(2**16)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise UserError(answer[:40].decode("latin-1") or "no answer")
        return answer

    def good(content: bytes) -> object:
        """Nobody is behind the gate, so what it lets through is used, too."""
        try:
            return read(content)
        except UserError as problem:
            if "503" in str(problem):
                return None
            raise

    return Reader("HTTP (gate)", whole, of_request, good)


def answers(folder: Path) -> Reader:
    """What a node is told at the gate's address."""
    from fedpareto_flower.deploy import server_client
    from fedpareto_flower.deploy.layout import NodeFolder

    node = folder / "federation" / "node-0"
    path = node / "node.json"
    about = path.read_bytes()
    path.write_text(json.dumps(json.loads(about) | {"insecure": True, "server": f"{HOST}:{CLOSED}"}))
    home = NodeFolder.open(node)
    path.write_bytes(about)
    told = json.dumps({"fedpareto": "training", "start": "abc", "silence": "1.5"}).encode()
    whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(told), told)

    def read(content: bytes) -> object:
        server = server_client.Server(home)
        with answered(content):
            word = server.ask()
        if not word:
            raise UserError("the server does not answer")
        return word, server.start, server.silence

    return Reader("answers of the gate", (whole,), of_request, read)


@contextmanager
def answered(content: bytes) -> Iterator[None]:
    """Whoever connects is answered so."""
    ends: list[socket.socket] = []

    def connect(connection: http.client.HTTPConnection) -> None:
        connection.sock, there = socket.socketpair()
        ends.append(there)
        there.sendall(content)
        there.shutdown(socket.SHUT_WR)

    try:
        with replaced(http.client.HTTPConnection, connect=connect):
            yield
    finally:
        for end in ends:
            end.close()


def of_servers(folder: Path) -> list[Reader]:
    """Of `serve` and of the page."""
    return [service(folder), page(folder)]


def of_gates(folder: Path) -> list[Reader]:
    """Of a server's gate and of those who ask it."""
    return [gate(folder), answers(folder)]
