"""How a server is doing, in a file that it keeps up to date; and how to ask it to stop."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedpareto.deploy.layout import Deployment
from fedpareto.errors import UserError
from fedpareto.files import Lock, write_atomically

CONNECTED = 45.0
"""Seconds since its last word within which a node counts as connected; it asks every 3, and every 30 in long work."""
STOP_TIMEOUT = 600.0


@dataclass
class Status:
    """What `fedpareto server status` shows."""

    state: str = "not started"
    round: int = 0
    rounds: int = 0
    nodes: int = 0
    heard: dict[str, float] = field(default_factory=dict)
    """By number of the node, when it last spoke (seconds since 1970)."""
    warnings: list[dict[str, str]] = field(default_factory=list)
    process: int = 0
    told: list[int] = field(default_factory=list)
    """Nodes that have heard that the run is finished; the others wait for it."""

    def save(self, folder: Path) -> None:
        """For others to read."""
        write_atomically(folder / "status.json", json.dumps(asdict(self), indent=1) + "\n")

    def lines(self) -> list[str]:
        """For people."""
        now = time.time()
        found = [f"state:  {self.state}"]
        if self.rounds:  # Unknown until a server was there.
            found.append(f"round:  {self.round} of {self.rounds}")
        for number in range(self.nodes):
            last = self.heard.get(str(number))
            if last is None:
                what = "has not connected"
            elif now - last < CONNECTED and self.process:
                what = "connected"
            else:
                what = f"away, last heard {_ago(now - last)} ago"
            found.append(f"node {number}: {what}")
        if self.warnings:
            found.append("last warnings:")
            found += [f"  {warning['time']} {warning['message']}" for warning in self.warnings[-10:]]
        return found


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def read(deployment: Deployment) -> Status:
    """What the server last said, or what the run folder knows if it is gone."""
    try:
        entries: dict[str, Any] = json.loads((deployment.server / "status.json").read_text(encoding="utf-8"))
        status = Status(**entries)
    except FileNotFoundError:
        status = Status(nodes=deployment.nodes)
    except (OSError, ValueError, TypeError) as problem:
        raise UserError(f"{deployment.server / 'status.json'} cannot be read: {problem}") from None
    if status.process and not busy(deployment):
        status.process = 0
        if status.state not in ("finished", "stopped", "failed"):
            status.state = "not running (it was killed); go on with: fedpareto server resume"
    return status


def stop(deployment: Deployment, now: bool = False) -> None:
    """Asks the server to stop after the round under way, or at once, and waits until it has."""
    process = read(deployment).process
    if not process or not busy(deployment):
        raise UserError(f"no server is running for {deployment.folder}")
    os.kill(process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT
    while busy(deployment):
        if now:
            os.kill(process, signal.SIGTERM)
        if time.monotonic() > deadline:
            raise UserError(f"the round under way does not end; stop the server at once with --now (process {process})")
        time.sleep(0.5)


def hold(deployment: Deployment) -> Lock:
    """Makes this process the deployment's only server, until the lock is released."""
    lock = _lock(deployment)
    if not lock.take():
        raise UserError(f"a server is running for {deployment.folder} already; see: fedpareto server status")
    return lock


def busy(deployment: Deployment) -> bool:
    """Whether a server is running."""
    return _lock(deployment).is_held()


def _lock(deployment: Deployment) -> Lock:
    return Lock(deployment.server / ".lock")
