"""What `soak.py` does to those that live: kills, cut connections, full disks and clocks that jump."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from soak_parties import Lap, Party

AWAY = 30.0
"""Seconds for which connections are cut and disks are full."""
JUMP = 3600
"""Seconds by which all clocks jump."""
AHEAD = 1200
"""The same for the clock of one party alone: more than the gate allows."""
JUMPED = 60.0
"""Seconds after which a clock jumps back."""
SMALL = 2048
"""Bytes that no file may exceed on a full disk."""


@dataclass
class Fault:
    """Something that happens to a lap, and what happened then."""

    kind: str
    to: str
    began: float
    """By the monotonic clock, as all times here."""
    round: int
    """That was done before."""
    lap: int
    end: Callable[[], None] = lambda: None
    until: float = 0.0
    recovered: float | None = None
    """Seconds until the round after the next was done."""


def kinds(lap: Lap, shim: Path | None) -> list[str]:
    """What can happen to it."""
    found = ["kill -9", "full disk", *(["clock of all"] if shim else [])]
    if lap.kind == "federation":
        found += ["kill -9 of a child", "cut connections", "kill -9", *(["clock of one"] if shim else [])]
    return found


def strike(lap: Lap, kind: str, chance: random.Random, proxy: Proxy | None) -> Fault:
    """Lets it happen."""
    party = chance.choice(lap.parties)
    fault = Fault(kind, party.name, time.monotonic(), lap.round, lap.number)
    if kind == "kill -9":
        party.kill()
    elif kind == "kill -9 of a child":
        _kill_child(party, chance, fault)
    elif kind == "full disk":
        _fill_disk(party, fault)
    elif kind == "cut connections" and proxy is not None:
        proxy.is_cutting, fault.to = True, "all"
        proxy.cut()
        fault.until, fault.end = fault.began + AWAY, proxy.heal
    elif kind.startswith("clock"):
        alone = kind == "clock of one"
        by = chance.choice((-1, 1)) * (AHEAD if alone else JUMP)
        fault.to = f"{party.name} {by:+} s" if alone else f"all {by:+} s"
        _move_clocks(lap, [party] if alone else lap.parties, by)
        fault.until = fault.began + JUMPED
        fault.end = lambda: _move_clocks(lap, [party] if alone else lap.parties, 0)
    return fault


def _kill_child(party: Party, chance: random.Random, fault: Fault) -> None:
    children = {role: process for role, process in party.processes().items() if role != party.name}
    if children:
        fault.to = chance.choice(sorted(children))
        with suppress(ProcessLookupError):
            os.kill(children[fault.to], signal.SIGKILL)


def _fill_disk(party: Party, fault: Fault) -> None:
    """No file of its may grow: a limit of the kernel's, which needs neither root nor a disk of its own."""
    hit = list(party.processes().values())
    _limit(hit, SMALL)
    party.is_held = True  # What ends meanwhile would not come up on a full disk.
    fault.until = fault.began + AWAY

    def end() -> None:
        party.is_held = False
        _limit(hit, resource.RLIM_INFINITY)

    fault.end = end


def _limit(processes: list[int], size: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
            resource.prlimit(process, resource.RLIMIT_FSIZE, (size, hard))


def _move_clocks(lap: Lap, parties: list[Party], by: int) -> None:
    for party in parties:
        clock = lap.clock(party)
        clock.with_suffix(".new").write_text(f"{by}\n")
        clock.with_suffix(".new").replace(clock)


def build_shim(folder: Path) -> Path | None:
    """The library that moves clocks; None where there is no compiler, or it would not work."""
    compiler, made = shutil.which("cc"), folder / "clock.so"
    source = Path(__file__).with_name("soak_clock.c")
    if compiler is None:
        return None
    code = subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", made, source], check=False).returncode
    return None if code else made.resolve()


@dataclass
class Proxy:
    """Stands between nodes and gate, and cuts their connections when told to."""

    outside: int
    inside: int
    is_cutting: bool = False
    cuts: int = 0
    _open: set[socket.socket] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.outside), backlog=64)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            if self.is_cutting:
                self._reset(here)
                continue
            try:
                there = socket.create_connection(("127.0.0.1", self.inside), timeout=10)
                there.settimeout(None)
            except OSError:
                self._reset(here)
                continue
            with self._lock:
                self._open |= {here, there}
            threading.Thread(target=self._connect, args=(here, there), daemon=True).start()

    def _connect(self, here: socket.socket, there: socket.socket) -> None:
        back = threading.Thread(target=self._pass_on, args=(there, here), daemon=True)
        back.start()
        self._pass_on(here, there)
        back.join()
        with self._lock:
            self._open -= {here, there}
        here.close()
        there.close()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        """Until one end has said everything, or is gone. Who is being cut off hears no farewell."""
        farewell = socket.SHUT_RDWR
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            farewell = socket.SHUT_WR
        with self._lock, suppress(OSError):
            if source in self._open:
                sink.shutdown(farewell)
                if farewell == socket.SHUT_RDWR:
                    source.shutdown(farewell)

    def _reset(self, one: socket.socket) -> None:
        """Closes it with a reset instead of a farewell."""
        self.cuts += 1
        with suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()

    def cut(self) -> None:
        """All that are open."""
        with self._lock:
            some, self._open = list(self._open), set()
        for one in some:
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RD)  # The thread that reads from it wakes up.
            self._reset(one)

    def heal(self) -> None:
        """From now on connections stay."""
        self.is_cutting = False

    def close(self) -> None:
        """The end."""
        self._listener.shutdown(socket.SHUT_RDWR)  # The thread that waits for connections wakes up.
        self._listener.close()
        self.cut()
