"""The status of a server or a node, in a file that its process updates; locks on a folder; stopping."""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import Any, Self, get_args, get_origin, get_type_hints

from fedpareto.config.errors import DAMAGE, UserError, in_words
from fedpareto.config.files import Lock, read_object, write_atomically
from fedpareto_flower.deploy.layout import Deployment, NodeFolder
from fedpareto_flower.deploy.logs import moment

NOT_STARTED, STARTING, WAITING = "not started", "starting", "waiting for nodes"
FINISHED, STOPPED, FAILED, KILLED = "finished", "stopped", "failed", "killed"
ENDS = (FINISHED, STOPPED, FAILED)
"""States in which a process may leave its file."""
FILE, LOCK = "status.json", ".lock"
PULSE = 1.0
"""Seconds between two writes of the file."""
STOP_TIMEOUT = 600.0
LATEST = 2.0**37
"""Seconds since 1970, well within the calendar that logs can write; no count is as large."""
MOST_ENTRIES = 100_000
"""Entries of a list in the file."""

log = logging.getLogger("fedpareto.status")


@dataclass
class Status:
    """Status of a process; times are seconds since 1970."""

    state: str = NOT_STARTED
    round: int = 0
    rounds: int = 0
    process: int = 0
    """Number of the process; 0: there is none."""
    machine: str = ""
    """Machine, or container, where that number is valid."""
    since: float = 0.0
    """Time at which the process started."""
    written: float = 0.0
    """Time at which this was written."""
    warnings: list[dict[str, str]] = field(default_factory=list)
    """The last ones, refusals among them."""
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def begin(cls, **known: Any) -> Self:
        """The status of this process, which has just started."""
        here: dict[str, Any] = {
            "process": os.getpid(),
            "machine": this_machine(),
            "since": time.time(),
            "versions": versions(),
        }
        return cls(**here, **known)

    def save(self, folder: Path) -> None:
        self.written = time.time()
        write_atomically(folder / FILE, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The last status of a process; `killed` if it is gone without a final status."""
        if not (folder / FILE).exists():
            return cls()
        try:
            entries = read_object(folder / FILE)
            known = {one.name for one in fields(cls)}  # Another version may have more fields.
            status = cls(**{name: value for name, value in entries.items() if name in known})
            status.check()
        except DAMAGE as problem:
            raise UserError(f"{folder / FILE} cannot be read: {in_words(problem)}") from None
        if status.process and not Lock(folder / LOCK).is_held():
            status.process = 0
            if status.state not in ENDS:
                status.state = KILLED
        return status

    def check(self) -> None:
        """Raise ValueError if a value cannot be what it says: a file may have been damaged."""
        for name, hint in get_type_hints(type(self)).items():
            if not _fits(getattr(self, name), hint):
                raise ValueError(f"field '{name}' has the wrong type")
        if any(not {"time", "message"} <= one.keys() for one in self.warnings):
            raise ValueError("a warning has no time or no message")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value has a field's type; a number is one that a count or a time can be, which NaN is not."""
    kind: Any = get_origin(hint) or hint
    if kind in (int, float):
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST
    if kind is str or not isinstance(value, kind):
        return isinstance(value, kind)
    entries = value.values() if isinstance(value, dict) else value
    return len(entries) <= MOST_ENTRIES and all(_fits(one, get_args(hint)[-1]) for one in entries)


@dataclass
class ServerStatus(Status):
    """A server's status."""

    nodes: int = 0
    needed: int = 1
    """Nodes without which a round cannot end."""
    heard: dict[str, float] = field(default_factory=dict)
    """Time of each node's last request, by number."""
    told: list[int] = field(default_factory=list)
    """Nodes that know that the run is finished."""
    at_work: dict[str, list[float]] = field(default_factory=dict)
    """Round and time of sending of each node's task, by number, where rounds do not wait for everybody."""

    def check(self) -> None:
        super().check()
        if any(len(task) != 2 for task in self.at_work.values()):
            raise ValueError("field 'at_work' has not a round and a time for each node")


@dataclass
class NodeStatus(Status):
    """A node's status."""

    answered: float = 0.0
    """Time of the server's last answer."""
    certificate_ends: float = 0.0
    """Expiry of the server's certificate; 0: not seen yet, or none."""


def read(deployment: Deployment) -> ServerStatus:
    status = ServerStatus.load(deployment.server)
    status.nodes = deployment.nodes
    return status


# -- one process for each folder -----------------------------------------------------------------------------------


def hold_server(deployment: Deployment) -> Lock:
    """Makes this process the deployment's only server, until the lock is released."""
    return _hold(deployment.server, f"a server of {deployment.folder}", f"fedpareto server status {deployment.folder}")


@contextmanager
def starting(deployment: Deployment) -> Iterator[None]:
    """Holds the folder, and says from the first moment that a server starts, until `kept` takes over.

    A server that does not get that far leaves the status as it was, and so does one whose run is finished.
    """
    with hold_server(deployment):
        path, before = deployment.server / FILE, read(deployment)
        content = path.read_bytes() if path.exists() else None
        begun = Status.begin(state=STARTING, round=before.round, rounds=before.rounds)
        shown = replace(before, **asdict(begun), heard={})
        if before.state != FINISHED:
            shown.save(deployment.server)
        try:
            yield
        finally:
            if read(deployment) == shown:
                if content is None:
                    path.unlink()
                else:
                    write_atomically(path, content)


def hold_node(home: NodeFolder) -> Lock:
    """Makes this process the only one that works in a node's folder, until the lock is released."""
    return _hold(home.folder, f"node {home.client} of {home.folder}", f"fedpareto node status {home.folder}")


def _hold(folder: Path, what: str, see: str) -> Lock:
    lock = Lock(folder / LOCK)
    try:
        is_ours = lock.take()
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    if not is_ours:
        with suppress(UserError):
            running = Status.load(folder)
            if running.process:
                what += f" ({place_of(running)})"
        raise UserError(f"{what} is running already; see: {see}")
    return lock


def place_of(status: Status) -> str:
    """The process, its machine, and its start, in words."""
    return f"process {status.process} on {status.machine.split()[0]}, since {moment(status.since)}"


def this_machine() -> str:
    """The machine's name and its PID namespace: a container has its own."""
    name = platform.node() or "localhost"
    with suppress(OSError):
        name += f" {os.readlink('/proc/self/ns/pid')}"  # Linux alone has it.
    return name


def versions() -> dict[str, str]:
    """Versions that an upgrade changes."""
    found = {"python": platform.python_version()}
    for package in ("fedpareto", "flwr", "torch"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


# -- while it runs -------------------------------------------------------------------------------------------------


@contextmanager
def kept(
    status: Status, folder: Path, refresh: Callable[[], None], stops: tuple[type[BaseException], ...] = ()
) -> Iterator[None]:
    """Keeps the file up to date, and says at the end whether the process was stopped (by one of `stops`) or failed."""
    over, writer = threading.Event(), _Writer(status, folder, refresh)

    def keep_writing() -> None:
        while not over.wait(PULSE):
            writer.write()

    writer.write()
    thread = threading.Thread(target=keep_writing, name="status", daemon=True)
    thread.start()
    try:
        yield
    except BaseException as problem:
        status.state = STOPPED if isinstance(problem, (KeyboardInterrupt, *stops)) else FAILED
        if status.state == FAILED:
            log.error("failed: %s", problem)
        raise
    finally:
        over.set()
        thread.join()
        writer.write()


@dataclass
class _Writer:
    status: Status
    folder: Path
    refresh: Callable[[], None]
    _trouble: str = ""

    def write(self) -> None:
        """Write the status; a full disk is reported once, and does not end a run."""
        trouble = ""
        try:
            self.refresh()
            self.status.save(self.folder)
        except (OSError, UserError) as problem:
            trouble = str(problem)
            if trouble != self._trouble:
                log.warning("the status is not up to date: %s", problem)
        self._trouble = trouble


# -- stopping ------------------------------------------------------------------------------------------------------


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM end this process in good order."""

    def end(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stop(deployment: Deployment, now: bool = False) -> None:
    """Asks the server to stop after the current round, or at once, and waits until it has."""
    found = read(deployment)
    if not found.process:
        raise UserError(f"no server is running for {deployment.folder}")
    if found.machine != this_machine():
        # The same number is another process here.
        raise UserError(f"the server runs elsewhere ({place_of(found)}); stop it there, or its container")
    lock = Lock(deployment.server / LOCK)
    deadline = time.monotonic() + STOP_TIMEOUT
    _terminate(found.process)
    while lock.is_held():
        if now:
            _terminate(found.process)
        if time.monotonic() > deadline:
            where = f"process {found.process}"
            raise UserError(f"the current round does not end; stop the server at once with --now ({where})")
        time.sleep(0.5)


def _terminate(process: int) -> None:
    try:
        os.kill(process, signal.SIGTERM)
    except ProcessLookupError:
        pass  # It has just ended.
    except PermissionError:
        raise UserError(f"the server is process {process} of another user; stop it as that user") from None
