"""One node of a session as a process of its own: real sockets, the real clock, and a folder that survives a reset.

    python -m fedpareto_space.session.process node.json

The file says who it is; `Node.write` writes it. Every line of its log goes to standard output as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedpareto.config.files import write_atomically
from fedpareto.spec.draft import Draft
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.udp import UdpTransport
from fedpareto_space.session import events as happened
from fedpareto_space.session.agreement import client_half, server_half
from fedpareto_space.session.drive import Plan, result_digest
from fedpareto_space.session.events import Exchange
from fedpareto_space.session.host import ClientHost, Host, Note, ServerHost
from fedpareto_space.session.mishaps import Mishap, extensions_of
from fedpareto_space.session.voice import digest
from fedpareto_space.wire import cbor
from fedpareto_space.wire.terms import TERMS, Terms
from fedpareto_space.wire.vocabulary import FaultKind

PAUSE = 0.05
"""Seconds that a node sleeps at most: its socket wakes it before."""
LINGER = 5.0
"""Seconds after a node's last word in which it helps what it sent on its way."""
KILLED = 9
"""Signal that ends a process as a loss of power would."""


class Folder(MutableMapping[str, bytes]):
    """Files of what a node keeps."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def __getitem__(self, name: str) -> bytes:
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, data: bytes) -> None:
        write_atomically(self.path / name, data)

    def __delitem__(self, name: str) -> None:
        (self.path / name).unlink()

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in self.path.iterdir())

    def __len__(self) -> int:
        return len(list(self.path.iterdir()))


@dataclass(frozen=True)
class Node:
    """Identity of a process in a session."""

    node: int
    spec: str
    terms: str
    """Terms that the server would like best, as CBOR in hexadecimal digits."""
    session: str
    ports: dict[str, int]
    folder: str
    loss: float = 0.0
    """Share of frames that this node's channel loses."""
    mishaps: Sequence[tuple[str, int, float]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Node:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def nodes_of(plan: Plan, ports: dict[int, int], folder: Path, mishaps: Any, loss: float = 0.0) -> dict[int, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    spec, terms = folder / "spec.yaml", cbor.encode(TERMS.to_wire(plan.terms)).hex()
    spec.write_text(plan.spec.to_yaml(), encoding="utf-8")
    known = {str(node): port for node, port in ports.items()}
    files = {}
    for node in ports:
        struck = [(one.fault.name, one.round, one.seconds) for one in mishaps.get(node, ())]
        files[node] = folder / f"node{node}.json"
        one = Node(node, str(spec), terms, plan.session.hex(), known, str(folder / f"node{node}"), loss, struck)
        one.write(files[node])
    return files


def run(config: Node) -> int:
    """Until the node has left; the exit code says whether it was done."""
    spec, terms = Draft.read(Path(config.spec)).finish(), TERMS.from_wire(cbor.decode(bytes.fromhex(config.terms)))
    plan = Plan(spec, terms, session=bytes.fromhex(config.session))
    addresses = {int(node): ("127.0.0.1", port) for node, port in config.ports.items()}
    channel = Channel(loss=config.loss)
    with UdpTransport(config.node, addresses, channel=channel, seed=config.node) as transport:
        host = _host(config, plan, terms, transport)
        _go(host, transport, list(addresses))
        return 0 if host.reason == "done" else 1


def _host(config: Node, plan: Plan, terms: Terms, transport: UdpTransport) -> Host:
    folder = Folder(Path(config.folder))
    mishaps = [Mishap(FaultKind[name], round_, seconds) for name, round_, seconds in config.mishaps]
    mishaps = [one for one in mishaps if f"struck-{one.fault.name}" not in folder]
    if config.node in plan.servers:
        half = server_half(plan.spec, terms)
        machine = plan.server_machine(config.node, half)
        machine.extensions = extensions_of(mishaps)
        server = ServerHost(transport, folder, mishaps, tell=_print, machine=machine, teacher=half)
        server.on_exchange = lambda exchange, now: _say_result(server, exchange, now)
        return server
    client = next(one for one, node in plan.nodes.items() if node == config.node)
    return _Client(
        transport,
        folder,
        mishaps,
        tell=_print,
        make_machine=lambda: plan.client_machine(client),
        make_pupil=lambda agreed: client_half(plan.spec, client, agreed),
    )


class _Client(ClientHost):
    """A client whose reset is the end of its process."""

    def restart(self, now: float) -> None:
        if self.steps:
            self.store[f"struck-{FaultKind.CLIENT_RESET.name}"] = b""
            sys.stdout.flush()
            os.kill(os.getpid(), KILLED)
        super().restart(now)


def _say_result(server: Host, exchange: Exchange, now: float) -> None:
    if exchange.over:
        server.note(now, "result", result_digest(exchange).hex())


def _print(note: Note) -> None:
    print(json.dumps(asdict(note)), flush=True)


def _go(host: Host, transport: UdpTransport, peers: Sequence[int]) -> None:
    """The loop: what came, what is due, then sleep."""
    now = time.monotonic()
    host.note(now, "up")
    if isinstance(host, ClientHost):
        host.restart(now)
    else:
        host.happen(happened.Started(), now)
    for peer in peers:
        host.happen(happened.ContactBegan(peer), now)
    while host.active:
        now = time.monotonic()
        if not host.tick(now):
            due = min(host.next(), transport.next() or now + PAUSE)
            transport.wait(min(PAUSE, max(0.0, due - now)))
    if host.dead:
        sys.stdout.flush()
        os.kill(os.getpid(), KILLED)
    if isinstance(host, ClientHost) and host.model is not None:
        host.note(now, "model", digest({"model": host.model}).hex())
    end = time.monotonic() + LINGER
    while not transport.idle and time.monotonic() < end:
        transport.poll(time.monotonic())
        transport.wait(PAUSE)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sys.exit(run(Node.read(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
