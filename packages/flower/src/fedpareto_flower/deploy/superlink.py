"""Flower's SuperLink on the server's own machine: started, given the nodes' keys and a run."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flwr.proto.control_pb2 import RegisterNodeRequest
from flwr.serverapp import Grid

from fedpareto.config.files import write_secret
from fedpareto_flower.engine.launch import LOOPBACK, Processes, free_ports, program, wait_for_superlink
from fedpareto_flower.engine.link import Address, control_client, server_grid, submit_run


@dataclass
class SuperLink:
    """A SuperLink that only this machine can reach. It keeps no state of an earlier one: that would be stale nodes and
    messages; all that matters is in the checkpoint.
    """

    folder: Path
    """Where Flower's home, secret and log are."""
    certificates: Path | None
    """The folder with ca.pem, server.pem and server.key; None: plain text and no authentication of nodes."""

    def __post_init__(self) -> None:
        self.port = free_ports(1)[0]
        self.processes = Processes(self.folder / "logs", self.folder / "home")
        self.secret = self.folder / "secret"

    @property
    def address(self) -> Address:
        """Of its Runtime API."""
        root = None if self.certificates is None else self.certificates / "ca.pem"
        return Address(f"{LOOPBACK}:{self.port}", self.secret, root)

    def client_context(self) -> ssl.SSLContext | None:
        """The certificate by which the gate recognises this SuperLink."""
        if self.certificates is None:
            return None
        return ssl.create_default_context(cafile=self.certificates / "ca.pem")

    def start(self) -> None:
        """Starts it and waits until it listens."""
        self.processes.home.mkdir(parents=True, exist_ok=True)
        write_secret(self.secret, secrets.token_hex(32).encode())
        self.processes.start("superlink", self._command())
        wait_for_superlink(self.processes, self.port)

    def stop(self) -> None:
        """Ends it."""
        self.processes.stop()

    @contextmanager
    def grid(self) -> Iterator[Grid]:
        """The Grid of a new run, which ends with the block."""
        submit_run(self.address)
        with server_grid(self.address) as grid:
            yield grid

    def register(self, keys: Mapping[bytes, int]) -> dict[int, int]:
        """Registers the nodes with these public keys; maps Flower's node id to the node's number."""
        client = control_client(self.address)
        try:
            return {
                client.RegisterNode(RegisterNodeRequest(public_key=key)).node_id: number for key, number in keys.items()
            }
        finally:
            client.close()

    def _command(self) -> list[str]:
        place = ["--host", LOOPBACK, "--port", str(self.port)]
        isolation = ["--isolation", "process", "--superexec-auth-secret-file", str(self.secret)]
        safety = ["--insecure"]
        if self.certificates is not None:
            files = {"ssl-ca-certfile": "ca.pem", "ssl-certfile": "server.pem", "ssl-keyfile": "server.key"}
            safety = [f"--{option}={self.certificates / name}" for option, name in files.items()]
            safety.append("--enable-supernode-auth")
        return [*program("flower-superlink"), *safety, *isolation, *place]
