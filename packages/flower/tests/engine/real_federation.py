"""SuperLink and SuperNodes as real processes that serve many tests, with a tap on the wire between them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from flwr.app import Message
from flwr.proto.message_pb2 import PullObjectResponse, PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import get_object_children_ids_from_object_content, get_object_id
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from memory_federation import settings_of

from fedpareto_flower.engine.launch import LOOPBACK, LocalFederation
from fedpareto_flower.engine.options import FlowerOptions
from fedpareto_flower.engine.packing import unpacked
from fedpareto_flower.engine.server import FlowerEngine
from waiting import PATIENCE, until

NODES, WORKERS = 3, 2
"""Client 1 has a process of its own; 0 and 2 share one."""
PATIENT = FlowerOptions(join_timeout=PATIENCE, timeout=PATIENCE, hello_timeout=PATIENCE)


def nodes_of(draft, folder, make="make", **more):
    """What the processes of all clients are told."""
    common = {"fedpareto": f"factory:{make}", "draft": json.dumps(draft), "folder": str(folder)} | more
    return [common | {"client": client} for client in range(draft["clients"])]


def server_of(spec, grid, options=PATIENT):
    return FlowerEngine(
        grid,
        spec.algorithm,
        spec.learner,
        settings_of(spec),
        "test",
        options=spec.engine,
        flower=options,
        quorum=spec.quorum,
        waits=spec.policy.waits,
    )


@dataclass
class TappedFederation(LocalFederation):
    """SuperNodes reach the SuperLink through the tap; everybody else goes there directly."""

    def start_supernode(self, number):
        command = self._supernode_command(number)
        through = [self.tap.address if word == self.superlink else word for word in command]
        self.processes.start(f"supernode{number}", through)

    def __post_init__(self):
        super().__post_init__()
        self.tap = Tap(self.superlink)


@dataclass
class Running:
    """A federation that is up. All its processes stay; which part its nodes play is chosen by each test."""

    federation: TappedFederation
    grid: object
    identity: tuple[int, int, int]

    def serve(self, nodes, record=False):
        """From the next server on, the nodes are these; with `record` the tap keeps what passes."""
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = self.identity
        for client, node in enumerate(nodes):
            part_of(self.federation.folder, client).write_text(json.dumps(node))
        if record != self.federation.tap.recording:
            self.federation.tap.begin_anew(record)


@contextlib.contextmanager
def running(folder: Path):
    folder.mkdir(parents=True)
    players = [
        {"fedpareto": "factory:make_player", "client": client, "part": str(part_of(folder, client))}
        for client in range(NODES)
    ]
    federation = TappedFederation(folder, players, workers=WORKERS)
    with federation.grid() as grid:
        until(lambda: len(list(grid.get_node_ids())) == NODES)  # A SuperNode that is cut off before it joins gives up.
        yield Running(federation, grid, (TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id))
        children = [process.pid for process in federation.processes.running.values()]
    assert not any(Path(f"/proc/{child}").exists() for child in children), "nobody outlives the federation"


def part_of(folder, client):
    return folder / f"part{client}.json"


# -- the wire ------------------------------------------------------------------------------------------------------


@dataclass
class Tap:
    """Passes bytes between SuperNodes and SuperLink, and can keep both directions of every connection."""

    server: str
    recording: bool = False
    streams: dict = field(default_factory=lambda: defaultdict(bytearray))

    def __post_init__(self):
        self._listening = socket.create_server((LOOPBACK, 0))
        self._sockets = []
        self.address = f"{LOOPBACK}:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def begin_anew(self, recording):
        """Cuts all connections, so that none is recorded from its middle; SuperNodes connect again by themselves."""
        self.recording = recording
        self.streams.clear()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._sockets = []

    def _accept(self):
        host, port = self.server.split(":")
        for number in count():
            node, _ = self._listening.accept()
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:
                node.close()
                continue
            self._sockets += [node, server]
            for name, source, target in (("up", node, server), ("down", server, node)):
                keep = self.streams[number, name].extend if self.recording else len
                threading.Thread(target=self._pass, args=(keep, source, target), daemon=True).start()

    @staticmethod
    def _pass(keep, source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(2**16):
                keep(piece)
                target.sendall(piece)
        source.close()
        target.close()


def bodies(stream):
    """The bodies of the HTTP messages in one direction of a connection, with the first line of each."""
    stream = bytes(stream)
    while stream:
        head, _, rest = stream.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        assert "content-encoding" not in headers
        assert "transfer-encoding" not in headers
        length = int(headers.get("content-length", 0))
        yield first, rest[:length]
        stream = rest[length:]


def objects_on(tap):
    """By direction, all objects that Flower sent, as they are."""
    found = {"up": {}, "down": {}}
    for number in {number for number, _ in list(tap.streams)}:
        asked = [line for line, _ in bodies(tap.streams[number, "up"])]
        for line, body in bodies(tap.streams[number, "up"]):
            if "/push-object" in line:
                content = PushObjectRequest.FromString(body).object_content
                found["up"][get_object_id(content)] = content
        for line, (_, body) in zip(asked, bodies(tap.streams[number, "down"]), strict=False):
            if "/pull-object" in line:
                content = PullObjectResponse.FromString(body).object_content
                found["down"][get_object_id(content)] = content
    return found


def messages_on(tap, since):
    """By direction, the messages of the protocol that crossed since that time, decoded."""
    found = objects_on(tap)
    everything = found["up"] | found["down"]  # What the SuperLink has already got it is not sent again.
    return {
        way: [one for one in _messages(objects, everything) if one.metadata.created_at >= since]
        for way, objects in found.items()
    }


def _messages(objects, everything):
    for name, content in objects.items():
        if content.startswith(Message.__qualname__.encode() + b" "):
            message = inflate_object_from_contents(name, dict(_family(name, everything)))
            message.content = unpacked(message.content)
            yield message


def _family(name, objects):
    yield name, objects[name]
    for child in get_object_children_ids_from_object_content(objects[name]):
        yield from _family(child, objects)
