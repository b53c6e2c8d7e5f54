"""What `soak.py` lets live: a local run, and a federation of real processes, each started again whenever it ends."""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto_flower.deploy import logs
from fedpareto_flower.engine.launch import free_ports, tied

PAUSE = 2.0
"""Seconds before a process that ended is started again."""
NODES = 3
SECONDS_PER_ROUND = {"run": 1.0, "federation": 5.0}
"""About how long a round takes: the run rests after each, and Flower's SuperNodes ask for tasks every three seconds."""
ALMOST_FULL = logs.LARGEST - 50_000
"""Bytes that logs have to begin with, so that every one of them is rotated while somebody looks."""
PACED = """
import sys, time
from pathlib import Path
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
file, folder, pause = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
spec = Draft.read(file).finish()
rest = lambda now: time.sleep(pause)
if (folder / "spec.yaml").exists():
    runner.resume(folder, rest)
else:
    runner.start(spec, folder, rest)
"""
"""A run that rests after each round, so that it can live for hours."""


def started(words: Sequence[str], output: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """`python WORDS` in a group of its own, which ends with this process."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("ab") as file:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": file}
        return begin([sys.executable, *words], env=environment, **streams)


def _begin(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, start_new_session=True, preexec_fn=tied, **options)  # noqa: PLW1509 (one call)


begin: Callable[..., subprocess.Popen[bytes]] = _begin
"""How processes come to life."""


def fork_all() -> None:
    """From now on they, and Flower's beneath them, are forks of one that has imported everything, as in the tests.

    That saves some six seconds of the processor for each, and changes nothing of how they end.
    """
    global begin  # noqa: PLW0603 (of a tool)
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    processes = importlib.import_module("processes")
    processes._import((*processes.COMMON, *processes.FLOWER))
    processes.Nursery.open()
    begin = functools.partial(processes.Python, modules=processes.FLOWER, forks=True)


@dataclass
class Party:
    """A process that is started again until it ends with 0, as systemd does."""

    name: str
    first: Sequence[str]
    again: Sequence[str]
    """The command after the first time."""
    output: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    is_done: bool = False
    is_held: bool = False
    """Whether it is not to be started now."""
    codes: list[int] = field(default_factory=list)
    """How it ended, each time."""
    _ended: float = 0.0

    def tend(self) -> None:
        """Starts it, if it is time to."""
        if self.process is not None and self.process.poll() is not None:
            self.codes.append(self.process.returncode)
            self.is_done = self.process.returncode == 0
            self.process, self._ended = None, time.monotonic()
        if self.process is None and not (self.is_done or self.is_held) and time.monotonic() - self._ended > PAUSE:
            words = self.again if self.starts else self.first
            self.process = started(words, self.output, self.environment)
            self.starts += 1

    def processes(self) -> dict[str, int]:
        """The process and its children, by role."""
        if self.process is None:
            return {}
        return {self.name: self.process.pid} | {
            f"{self.name}: {_program(child)}": child for child in children(self.process.pid)
        }

    def kill(self) -> None:
        """kill -9; children end with it."""
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()


def children(process: int) -> list[int]:
    """Of a process, as long as it lives."""
    try:
        threads = Path(f"/proc/{process}/task")
        text = " ".join((one / "children").read_text() for one in threads.iterdir())
    except OSError:  # It has just ended.
        return []
    return [int(one) for one in text.split()]


def _program(process: int) -> str:
    """What a child of a server or of a node is."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "gone"
    for name in ("superlink", "supernode", "worker"):
        if any(name in word.rpartition("/")[2] for word in words[:4]):
            return name
    return "helper"


@dataclass
class Lap:
    """One whole run, from its first round to its last."""

    kind: str
    """"run" or "federation"."""
    number: int
    """0: the undisturbed one."""
    folder: Path
    """Of the tool's own files."""
    run: Path
    """The run's folder."""
    parties: list[Party]
    models: tuple[Path, ...] = ()
    """What nodes have of their own at the end."""
    port: int = 0
    """Where the server listens."""
    outside: int = 0
    """Where nodes believe that it listens."""
    rounds: int = 0

    def tend(self) -> None:
        """Starts what has ended."""
        for party in self.parties:
            party.tend()

    @property
    def is_over(self) -> bool:
        """Whether everybody has ended well."""
        return all(party.is_done for party in self.parties)

    @property
    def round(self) -> int:
        """The last round of which the folder tells."""
        return int(self._status().get("round", 0))

    @property
    def is_running(self) -> bool:
        """Whether the folder says so: a run that failed has told a round that it must do again."""
        return self._status().get("status") == "running"

    def _status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.run / "status.json").read_text())
            return found
        except (OSError, ValueError):
            return {}

    def clock(self, party: Party) -> Path:
        """The file by which the party's clock is moved."""
        return self.folder / f"{party.name}.clock"

    def end(self) -> None:
        """Ends all processes."""
        for party in self.parties:
            party.is_held = True
            party.kill()

    def logs(self) -> list[Path]:
        """All logs, old ones too."""
        return [path for path in self.folder.rglob("*") if ".log" in path.name and path.is_file()]


def environment(folder: Path, name: str, shim: Path | None) -> dict[str, str]:
    """Of a party: few threads, and a clock that can be moved."""
    found = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    if shim is not None:
        clock = folder / f"{name}.clock"
        clock.write_text("0\n")
        found |= {"LD_PRELOAD": str(shim), "SOAK_CLOCK": str(clock)}
    return found


def local_lap(folder: Path, number: int, seconds: float, shim: Path | None) -> Lap:
    """A run on this machine that takes about so long."""
    folder.mkdir(parents=True)
    pause = SECONDS_PER_ROUND["run"]
    rounds = max(5, int(seconds / pause))
    spec = folder / "soak.yaml"
    spec.write_text(
        f"problem: {{name: synthetic, hidden: [8]}}\nalgorithm: fedpref\nclients: 6\nrounds: {rounds}\nseeds: 2\n"
        "learner: {epochs: 1}\nengine: {threads: 1, chunk: 64}\n"
    )
    words = ["-c", PACED, str(spec), str(folder / "out"), str(pause)]
    party = Party("run", words, words, folder / "run.out", environment(folder, "run", shim))
    return Lap("run", number, folder, folder / "out", [party], rounds=rounds)


def federation_lap(folder: Path, number: int, seconds: float, shim: Path | None, direct: bool = False) -> Lap:
    """A server and three nodes on loopback; unless `direct`, nodes go through a port where connections can be cut."""
    folder.mkdir(parents=True)
    rounds = max(5, int(seconds / SECONDS_PER_ROUND["federation"]))
    port, outside = free_ports(2)
    place = folder / "federation"
    _write_tables(folder)
    made = ["-m", "fedpareto", "server", "init", place, "--schema-from", folder / "sample.csv", "--label", "hired"]
    made += ["--sensitive", "gender", "--nodes", NODES, "--rounds", rounds, "--quorum", NODES, "--port", port]
    made += ["--algorithm", "ditto", "--set", "steps=5", "--set", "poll=1", "--set", "forgiveness=5"]
    made += ["--set", "timeout=180", "--set", "join_timeout=100000"]
    subprocess.run([sys.executable, *map(str, made)], check=True, stdout=subprocess.DEVNULL)
    parties = []
    for name in ("server", *(f"node-{one}" for one in range(NODES))):
        log = folder / f"{name}.log"
        _fill(log)
        words = ["-m", "fedpareto", *_command(place, folder, name), "--log-file", str(log)]
        again = [word if word != "up" or name != "server" else "resume" for word in words]
        parties.append(Party(name, words, again, folder / f"{name}.out", environment(folder, name, shim)))
    homes = [place / f"node-{one}" for one in range(NODES)]
    for home in [] if direct else homes:
        about = json.loads((home / "node.json").read_text())
        (home / "node.json").write_text(json.dumps(about | {"server": f"127.0.0.1:{outside}"}))
    for path in (place / "server" / "flower" / "logs", *(home / "logs" for home in homes)):
        path.mkdir(parents=True)
        for program in ("superlink",) if "server" in path.parts else ("supernode", "worker"):
            _fill(path / f"{program}.log")
    models = tuple(home / "model.safetensors" for home in homes)
    return Lap("federation", number, folder, place / "run", parties, models, port, outside, rounds)


def _command(place: Path, folder: Path, name: str) -> list[str]:
    if name == "server":
        return ["server", "up", str(place)]
    number = int(name[-1])
    preference = ("0.7,0.3", "0.5,0.5", "0.1,0.9")[number]
    return ["node", "up", str(place / name), "--data", str(folder / f"{name}.csv"), "--preference", preference]


def _fill(log: Path) -> None:
    log.write_text(("." * 99 + "\n") * (ALMOST_FULL // 100))


def _write_tables(folder: Path) -> None:
    """Made-up people: who is hired depends on score and gender."""
    random = np.random.default_rng(0)
    for name, count in {"sample": 200, **{f"node-{one}": 240 for one in range(NODES)}}.items():
        lines = ["hired,gender,age,score"]
        for _ in range(count):
            score, gender = random.normal(), random.choice(["f", "m"])
            hired = "yes" if score + (gender == "m") + random.normal() > 0.5 else "no"
            lines.append(f"{hired},{gender},{random.integers(18, 65)},{score:.6f}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
