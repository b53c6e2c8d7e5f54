"""File layout: the folder of a deployment at the server, and the folder that each node gets.

Health checks run every few seconds, so nothing heavy is imported here before it is needed.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Self, get_type_hints

from fedpareto.config.bounds import AtLeast, Bounded, Positive, check
from fedpareto.config.errors import DamagedFile, UserError, reading
from fedpareto.config.files import read_object, write_atomically
from fedpareto.config.parameters import convert
from fedpareto_flower.deploy.names import DEPLOYMENT, NODE, SCHEMA

if TYPE_CHECKING:
    from fedpareto.spec.spec import Spec

FORMAT = 1
MOST_NODES = 10_000
"""Nodes of a federation; each has a key, and a line in the status."""


@dataclass(frozen=True)
class _Described(Bounded):
    """A folder with a JSON file that describes it; a subclass's other fields are the entries of that file."""

    FILE: ClassVar[str]
    MEANING: ClassVar[str]
    folder: Path

    @classmethod
    def open(cls, folder: Path) -> Self:
        path, hints = folder / cls.FILE, get_type_hints(cls)
        if not path.exists():
            raise UserError(f"{folder} is not a {cls.MEANING}")
        entries = read_object(path)
        if entries.get("format") != FORMAT:
            raise DamagedFile(f"{path} is damaged, or of another version of fedpareto")
        with reading(str(path)):
            given = {
                one.name: entries[one.name] if one.default is MISSING else entries.get(one.name, one.default)
                for one in fields(cls)
                if one.name != "folder"
            }
            values = {name: convert(value, hints[name], f"{path}: {name}") for name, value in given.items()}
            for name, value in values.items():
                check(cls, name, value, f"{path}: ")
            found = cls(folder.resolve(), **values)
            found.check()
        return found

    def check(self) -> None:
        """Raise ValueError or UserError for entries that cannot be."""

    def save(self) -> None:
        plain = {name: value for name, value in asdict(self).items() if name != "folder"}
        write_atomically(self.folder / self.FILE, json.dumps({"format": FORMAT, **plain}, indent=1) + "\n")

    def spec(self) -> Spec:
        from fedpareto_flower.deploy.specs import load_spec

        return load_spec(self.folder)


@dataclass(frozen=True)
class Deployment(_Described):
    """A federation at its server."""

    FILE = DEPLOYMENT
    MEANING = "deployment; make one with: fedpareto server init"
    name: str
    """Name of the federation; every message carries it."""
    host: str
    port: int
    nodes: Annotated[int, AtLeast(1, MOST_NODES)]
    insecure: bool = False

    def check(self) -> None:
        check_address(self.host, self.port, self.insecure)

    @property
    def server(self) -> Path:
        """Folder that only the server may read: keys, Flower's own state, logs."""
        return self.folder / "server"

    @property
    def run(self) -> Path:
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
class NodeFolder(_Described):
    """A node's own folder; all that it needs to join, and all that it keeps."""

    FILE = NODE
    MEANING = "node's folder; fedpareto server init makes one for each node"
    federation: str
    client: int
    server: str
    """host:port."""
    insecure: bool = False
    budget: Positive | None = None
    """The largest ε that the node's owner allows to be spent; None: what the federation agreed on."""

    def check(self) -> None:
        host, _, port = self.server.rpartition(":")
        check_address(host, int(port), self.insecure)

    def with_budget(self, epsilon: float) -> NodeFolder:
        """Keep another budget from now on; UserError if nothing could be counted."""
        other = replace(self, budget=epsilon)
        self.spec().privacy.must_be_countable()
        other.save()
        return other

    @property
    def schema(self) -> Path:
        return self.folder / SCHEMA

    @property
    def authority(self) -> Path:
        """The certificate by which the server is recognised."""
        return self.folder / "ca.pem"

    @property
    def key(self) -> Path:
        return self.folder / "node.key"


def check_address(host: str, port: int, insecure: bool) -> None:
    """Raises UserError if nodes could not, or must not, reach the server there."""
    if not 0 < port < 2**16:
        raise UserError(f"port is {port}; it is a number from 1 to {2**16 - 1}")
    if not re.fullmatch(r"[A-Za-z0-9.-]+", host) or host.startswith("-"):
        raise UserError(f"host is '{host}'; it is the name or the address under which nodes reach the server")
    if (address := _address(host)) is not None and address.is_unspecified:
        raise UserError(f"host is '{host}'; name the address under which nodes reach the server, not a wildcard")
    if insecure and not is_loopback(host):
        raise UserError(f"--insecure is for loopback only, and {host} is not: leave it out")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def private_folder(path: Path) -> None:
    """Make a folder that only its owner can open."""
    path.mkdir(parents=True, mode=0o700)
