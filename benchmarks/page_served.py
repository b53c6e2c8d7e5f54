"""What the page's benchmarks share: a server in a process of its own, a run that goes on, and how figures are told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "packages" / "page" / "tests")]

from fedpareto.config.files import Lock  # noqa: E402
from made_runs import MadeRun  # noqa: E402

A_SECOND = 10
"""Lines that a live run appends."""


@dataclass(frozen=True)
class Figure:
    """One thing that was measured."""

    what: str
    value: float
    unit: str
    budget: float | None = None

    def __str__(self) -> str:
        beside = "" if self.budget is None else f"   budget {self.budget:g}"
        mark = "" if self.budget is None or self.value <= self.budget else "   ABOVE"
        return f"{self.what:<58} {self.value:>9.4g} {self.unit:<3}{beside}{mark}"


@dataclass
class Server:
    """A `fedpareto page` process."""

    process: subprocess.Popen[str]
    url: str
    waited: float
    """Seconds until it printed its address."""

    @property
    def cpu(self) -> float:
        """Seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        """Resident."""
        return resident(self.process.pid)


def resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "fedpareto", "page", str(folder), "--no-browser", "--port", "0"]
    begun = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            (url,) = [word for word in line.split() if "token=" in word]
            yield Server(process, url, time.perf_counter() - begun)
        finally:
            process.terminate()


@contextmanager
def at_work(run: MadeRun) -> Iterator[None]:
    """Holds the lock of a run as its process does: the page looks at such a run several times a second."""
    lock = Lock(run.folder / ".lock")
    assert lock.take()
    try:
        yield
    finally:
        lock.release()


def appended(run: MadeRun, count: int) -> list[float]:
    """When each of so many lines was on the disk, in seconds since 1970."""
    found, begun = [], time.monotonic()
    for i in range(count):
        run.go_on()
        found.append(time.time())
        time.sleep(max(0.0, begun + (i + 1) / A_SECOND - time.monotonic()))
    return found
