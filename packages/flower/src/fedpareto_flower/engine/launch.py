"""Starts a federation on this machine: SuperLink, SuperNodes and the nodes' own processes, or Flower's simulation.

Everything stays in one folder (Flower's home, the secret, logs), on loopback and off the network, and no process
outlives the one that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedpareto.config.errors import UserError
from fedpareto.config.files import for_writing, python, write_secret
from fedpareto_flower.engine.apps import make_client_app, node_from
from fedpareto_flower.engine.link import Address, server_grid, submit_run
from fedpareto_flower.engine.node import Node

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
START_TIMEOUT = 120.0
"""Seconds until the SuperLink must listen; 3 on a quiet machine."""
STOP_TIMEOUT = 5.0
"""Seconds that a process gets to end by itself."""
PAUSE_PER_NODE = 0.02
"""Share of Flower's own pauses that a SuperNode keeps: all together poll the SuperLink 17 times a second."""

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Settings without which Flower and Ray send telemetry, look for updates and install packages."""


@dataclass
class Processes:
    """Child processes that end with this one, with a log file each."""

    folder: Path
    home: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str]) -> None:
        """Starts a command under a name; what ran under that name before ends first."""
        if name in self.running:
            self.stop(name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.running[name] = self._begin(command, self.folder / f"{name}.log")

    def _begin(self, command: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
        with for_writing(output, "ab") as log, warnings.catch_warnings():
            # A function in the child ties its life to ours; newer Pythons warn of it if there are threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,  # Ctrl-C is for us alone: without its nodes the current round cannot end.
                preexec_fn=tied,  # noqa: PLW1509 (one system call, prepared before the fork)
            )

    def environment(self) -> dict[str, str]:
        """Environment of a child: a private Flower home, no telemetry, and its programs first on the path."""
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        return os.environ | QUIET | {"FLWR_HOME": str(self.home), "PATH": path, "OMP_NUM_THREADS": "1"}

    def check(self) -> None:
        """Raises UserError if a process has exited by itself, with the end of its log."""
        for name, process in self.running.items():
            if process.poll() is not None:
                raise UserError(f"{name} ended with code {process.returncode}: {self.last_words(name)}")

    def last_words(self, name: str) -> str:
        """The end of a log, on one line."""
        lines = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").split("\n")
        return " | ".join(line.strip() for line in lines if line.strip())[-500:]

    def stop(self, *names: str) -> None:
        """Ends some processes, or all: SIGTERM first."""
        chosen = {name: self.running.pop(name) for name in (names or list(self.running))}
        for process in chosen.values():
            process.terminate()
        deadline = time.monotonic() + STOP_TIMEOUT
        for process in chosen.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.wait()


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


_LIBC = _libc()
_PR_SET_PDEATHSIG = 1


def tied() -> None:
    """Let the kernel end this child when its parent ends, however that happens. On Linux; elsewhere `stop` must do."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class LocalFederation:
    """SuperLink and SuperNodes as processes of this machine, on loopback, and long-lived ones for the nodes' work.

    `nodes` are the nodes' configurations (see apps.FACTORY). They are distributed over `workers` processes; as many
    workers as nodes is what a real federation looks like, fewer save memory.
    """

    folder: Path
    nodes: Sequence[Mapping[str, Any]]
    workers: int = 0
    """0: as many as there are cores."""

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.processes = Processes(self.folder / "logs", self.folder / "home")
        port, *ports = free_ports(len(self.nodes) + 1)
        self.superlink = f"{LOOPBACK}:{port}"
        self.runtimes = [f"{LOOPBACK}:{one}" for one in ports]
        self.secret = self.folder / "secret"

    @contextlib.contextmanager
    def grid(self) -> Iterator[Grid]:
        """Starts everything and yields the Grid; everything ends with the block."""
        self._prepare()
        try:
            self.processes.start("superlink", self._superlink_command())
            wait_for_superlink(
                self.processes, int(self.superlink.split(":")[1])
            )  # Before the others compete with it for the machine.
            for number in range(len(self.nodes)):
                self.start_supernode(number)
            for number in range(self._worker_count()):
                self.start_worker(number)
            address = Address(self.superlink, self.secret)
            submit_run(address)
            with server_grid(address) as grid:
                yield grid
        finally:
            self.processes.stop()

    def start_supernode(self, number: int) -> None:
        """Starts or restarts one SuperNode."""
        self.processes.start(f"supernode{number}", self._supernode_command(number))

    def start_worker(self, number: int) -> None:
        """Starts, or restarts, the process that runs the nodes assigned to it."""
        assigned = {
            self.runtimes[place]: dict(self.nodes[place])
            for place in range(number, len(self.nodes), self._worker_count())
        }
        plan = self.folder / f"worker{number}.json"
        write_secret(plan, json.dumps({"secret": str(self.secret), "nodes": assigned}).encode())
        command = python("fedpareto_flower.engine.worker", str(plan))
        self.processes.start(f"worker{number}", command)

    def _worker_count(self) -> int:
        return min(self.workers or os.cpu_count() or 1, len(self.nodes))

    def _prepare(self) -> None:
        self.processes.home.mkdir(parents=True, exist_ok=True)
        write_secret(self.secret, secrets.token_hex(32).encode())

    def _superlink_command(self) -> list[str]:
        host, port = self.superlink.split(":")
        return [*program("flower-superlink"), *self._isolation(), "--host", host, "--port", port]

    def _supernode_command(self, number: int) -> list[str]:
        host, port = self.runtimes[number].split(":")
        connect = ["--superlink", self.superlink, "--host", host, "--port", port]
        share = min(1.0, PAUSE_PER_NODE * len(self.nodes))
        return python("fedpareto_flower.engine.supernode", str(share), *self._isolation(), *connect)

    def _isolation(self) -> list[str]:
        # Plain text is for loopback only. The secret keeps other users of this machine from taking tasks.
        return ["--insecure", "--isolation", "process", "--superexec-auth-secret-file", str(self.secret)]


def wait_for_superlink(processes: Processes, port: int) -> None:
    """Waits until the process "superlink" listens on loopback."""
    deadline = time.monotonic() + START_TIMEOUT
    while not _listens(port):
        processes.check()
        if time.monotonic() > deadline:
            raise UserError(f"Flower's SuperLink did not start: {processes.last_words('superlink')}")
        time.sleep(0.1)


def simulate(nodes: Sequence[Mapping[str, Any]], main: Callable[[Grid], T]) -> T:
    """Runs `main` on the Grid of Flower's simulation, with a node for every configuration; gives back its result."""
    from flwr.simulation import run_simulation
    from flwr.supercore import telemetry

    results: list[T] = []
    problems: list[BaseException] = []
    configs = [dict(config) for config in nodes]
    server = ServerApp()

    @server.main()
    def lead(grid: Grid, context: Context) -> None:
        try:
            results.append(main(grid))
        except BaseException as problem:
            problems.append(problem)

    def find(context: Context) -> Node:
        return node_from(configs[int(context.node_config["partition-id"])])

    from fedpareto_ray.cluster import prepare

    os.environ.update(QUIET)
    telemetry.FLWR_TELEMETRY_ENABLED = "0"  # Flower read the environment when it was imported.
    resources = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        # A Ray of its own: by itself it would join any cluster that is here, and wait for the CPUs of others. And no
        # dashboard, which would listen on a port, and take seconds.
        "init_args": {"address": "local", "include_dashboard": False},
    }
    prepare(alone=True)
    run_simulation(server, make_client_app(find), len(configs), backend_config=resources)  # type: ignore[arg-type]
    if problems:
        raise problems[0]
    if not results:
        raise UserError("Flower's simulation ended without a result; its log says more")
    return results[0]


def free_ports(count: int) -> list[int]:
    """Ports on loopback that are free now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def program(name: str) -> list[str]:
    """The command of one of Flower's programs."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise UserError(f"{name} is not installed beside this Python; try: pip install 'fedpareto[flower]'")
    return [str(path)]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
