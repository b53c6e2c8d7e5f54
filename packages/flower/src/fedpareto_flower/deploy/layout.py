"""File layout: the folder of a deployment at the server, and the folder that each node gets.

Health checks run every few seconds, so nothing heavy is imported here before it is needed.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpareto.config.errors import DamagedFile, UserError, reading
from fedpareto.config.files import read_object, write_atomically
from fedpareto_flower.deploy.names import DEPLOYMENT, NODE, SCHEMA

if TYPE_CHECKING:
    from fedpareto.spec.spec import Spec

FORMAT = 1
MOST_NODES = 10_000
"""Of a federation; each has a key, and a line in the status."""


@dataclass(frozen=True)
class Deployment:
    """A federation at its server."""

    folder: Path
    name: str
    """Of the federation; every message carries it."""
    host: str
    port: int
    nodes: int
    insecure: bool = False

    @classmethod
    def open(cls, folder: Path) -> Deployment:
        """An existing one."""
        entries = read_json(folder, DEPLOYMENT, "deployment; make one with: fedpareto server init")
        with reading(str(folder / DEPLOYMENT)):
            found = cls(
                folder.resolve(),
                str(entries["name"]),
                str(entries["host"]),
                int(entries["port"]),
                int(entries["nodes"]),
                bool(entries["insecure"]),
            )
            if not 1 <= found.nodes <= MOST_NODES:
                raise ValueError(f"a federation has 1 to {MOST_NODES} nodes")
        check_address(found.host, found.port, found.insecure)
        return found

    def save(self) -> None:
        """Writes its own file."""
        plain = {name: value for name, value in asdict(self).items() if name != "folder"}
        write_atomically(self.folder / DEPLOYMENT, json.dumps({"format": FORMAT, **plain}, indent=1) + "\n")

    def spec(self) -> Spec:
        """What is trained, and how."""
        from fedpareto_flower.deploy.specs import load_spec

        return load_spec(self.folder)

    @property
    def server(self) -> Path:
        """What only the server may read: keys, Flower's own state, logs."""
        return self.folder / "server"

    @property
    def run(self) -> Path:
        """An ordinary run folder."""
        return self.folder / "run"

    @property
    def authority(self) -> Path:
        """The certificate by which nodes recognise the server."""
        return self.server / "ca.pem"

    def node(self, number: int) -> Path:
        """The folder that is handed to a node."""
        return self.folder / f"node-{number}"

    def public_key(self, number: int) -> Path:
        """The public key by which the server recognises a node."""
        return self.server / "nodes" / f"node-{number}.pub"


@dataclass(frozen=True)
class NodeFolder:
    """A node's own folder; all that it needs to join, and all that it keeps."""

    folder: Path
    federation: str
    client: int
    server: str
    """host:port."""
    insecure: bool = False
    budget: float | None = None
    """The largest ε that the node's owner allows to be spent; None: what the federation agreed on."""

    @classmethod
    def open(cls, folder: Path) -> NodeFolder:
        """An existing one."""
        entries = read_json(folder, NODE, "node's folder; fedpareto server init makes one for each node")
        with reading(str(folder / NODE)):
            found = cls(
                folder.resolve(),
                str(entries["federation"]),
                int(entries["client"]),
                str(entries["server"]),
                bool(entries["insecure"]),
                None if entries.get("budget") is None else float(entries["budget"]),
            )
            host, _, port = found.server.rpartition(":")
            check_address(host, int(port), found.insecure)
        return found

    def save(self) -> None:
        """Writes its own file."""
        plain = {name: value for name, value in asdict(self).items() if name != "folder"}
        write_atomically(self.folder / NODE, json.dumps({"format": FORMAT, **plain}, indent=1) + "\n")

    def spec(self) -> Spec:
        """The federation's."""
        from fedpareto_flower.deploy.specs import load_spec

        return load_spec(self.folder)

    def with_budget(self, epsilon: float) -> NodeFolder:
        """With another budget from now on, also when it is started again; UserError if nothing could be counted."""
        if not 0 < epsilon < math.inf:
            raise UserError(f"--budget is {epsilon:g}; the largest ε is a positive number")
        self.spec().privacy.must_be_countable()
        other = replace(self, budget=epsilon)
        other.save()
        return other

    @property
    def schema(self) -> Path:
        """Of the table."""
        return self.folder / SCHEMA

    @property
    def authority(self) -> Path:
        """The certificate by which the server is recognised."""
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        """The node's private key."""
        return self.folder / "node.key"


def read_json(folder: Path, name: str, meaning: str) -> Mapping[str, Any]:
    """The object in a folder's file, or a UserError."""
    path = folder / name
    if not path.exists():
        raise UserError(f"{folder} is not a {meaning}")
    entries = read_object(path)
    if entries.get("format") != FORMAT:
        raise DamagedFile(f"{path} is damaged, or of another version of fedpareto")
    return entries


def check_address(host: str, port: int, insecure: bool) -> None:
    """Raises UserError if nodes could not, or must not, reach the server there."""
    if not 0 < port < 2**16:
        raise UserError(f"port is {port}; it is a number from 1 to {2**16 - 1}")
    if not re.fullmatch(r"[A-Za-z0-9.-]+", host) or host.startswith("-"):
        raise UserError(f"host is '{host}'; it is the name or the address under which nodes reach the server")
    if _is_any(host):
        raise UserError(f"host is '{host}'; name the address under which nodes reach the server, not a wildcard")
    if insecure and not is_loopback(host):
        raise UserError(f"--insecure is for loopback only, and {host} is not: leave it out")


def is_loopback(host: str) -> bool:
    """Whether an address is loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def private_folder(path: Path) -> None:
    """A folder that only its owner can open."""
    path.mkdir(parents=True, mode=0o700)
