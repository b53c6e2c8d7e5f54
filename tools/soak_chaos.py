"""kill -9 at random moments, full disks, few descriptors and frozen processes: whatever happens, the results stay.

    make chaos KILLS=20
    python tools/soak.py --kills 20 --faults --forks --only run sweep

Of each kind of work one lap is left in peace. Others are killed with all their processes, at moments drawn from the
seed, and continued from what they kept, until there were that many kills; then each fault has a lap. Models, solutions,
columns, metrics and whatever else is kept (without times) have to be those of the undisturbed lap, and whoever ends
with an error says why in one line. The exit code is 1 if anything was otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from soak_growth import read_lines
from soak_parties import Lap, children, environment, federation_lap, started

from fedpareto.record.recording import TIMES

SHARE = 0.5
"""Of the undisturbed lap's time: so long a life lasts at most before it is killed."""
FROZEN = (10.0, 60.0)
"""Seconds for which processes stand still."""
FEW = 64
"""Descriptors of a process that has few."""
ROOM = 0.6
"""Of the undisturbed lap's bytes: the size of a disk that will be full."""
PATIENCE = 900.0
"""Seconds that a life may take which nobody ends."""
APART = (5.0, 40.0)
"""Seconds between two kills in a federation."""
SECONDS = 60.0
"""That a federation's lap is planned to take."""
DISTURBED = ("server", "superlink", "supernode", "node")
"""Whom the kills of a federation hit."""

SMALL = """\
problem: {name: synthetic, rows: 600, hidden: [8]}
clients: 6
preferences: equidistant
engine: {name: %s, threads: 1, chunk: 64}
"""
RUN = SMALL + "algorithm: fedpref\nrounds: 40\nparticipation: 0.7\nfaults: {dropout: 0.1}\n"
SPECS = {
    "run": RUN % "local",
    "sweep": SMALL % "local" + "rounds: 10\nsweep: {algorithm: [fedavg, fedpref], lr: [0.3, 0.1]}\n",
    "tune": SMALL % "local"
    + "algorithm: fedavg\n"
    + "tune:\n  search: {lr: {low: 0.01, high: 1.0, log: true}, participation: {low: 0.25, high: 1.0}, "
    + "rounds: {low: 1, high: 10}}\n  objectives: [utility, bytes]\n  trials: 24\n  population: 8\n",
    "mission": "problem: {name: synthetic, rows: 900, hidden: [8]}\nalgorithm: fedavg\nrounds: 40\nhours: 12\n"
    "policy: {kind: buffered, buffer: 4}\ncodec: int8-delta\n"
    "devices: {kind: equal, speed: 8.0e4, compute_watts: 15, radio_watts: 10}\n"
    "engine: {name: mission, shell: 12/4/1, altitude: 900, inclination: 99, stations: [redu, svalbard], loss: 0.05, "
    "threads: 1, chunk: 64}\n",
    "ray": RUN % "ray, workers: 1",
}
"""What is run, by its kind."""


def command(kind: str, spec: Path, out: Path) -> list[str]:
    """How a lap begins, or goes on."""
    if kind in ("sweep", "tune"):
        return [kind, str(spec), "--out", str(out), "--jobs", "1", "--quiet"]
    if (out / "spec.yaml").exists():
        return ["resume", str(out), "--quiet"]
    words = ["space", "simulate", str(spec)] if kind == "mission" else ["run", "--spec", str(spec)]
    return [*words, "--out", str(out), "--quiet"]


# -- what came of it -----------------------------------------------------------------------------------------------


def plain(path: Path) -> Any:
    """What a file says, without times and the names of folders."""
    if path.suffix == ".safetensors":
        return {name: tensor.flatten().tolist() for name, tensor in load_file(path).items()}
    if path.suffix == ".jsonl":
        return [_without_times(row) for row in read_lines(path)]
    if path.suffix == ".json":
        return _without_times(json.loads(path.read_text(encoding="utf-8")))
    return path.read_bytes()


def _without_times(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_times(one) for key, one in value.items() if key not in (*TIMES, "folder")}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


KEPT = ("models.safetensors", "solutions.json", "columns.bin", "metrics.jsonl", "events.jsonl")
"""Files of a run that are compared …"""
BESIDES = ("mission.json", "mission.jsonl", "sweep.json", "tuning.json", "chosen.yaml")
"""… and of other work."""


def differences(mine: Path, undisturbed: Path) -> list[str]:
    """The files below a folder that are not as they should be, or not there."""
    names = {
        path.relative_to(place)
        for place in (mine, undisturbed)
        for path in place.rglob("*")
        if path.name in (*KEPT, *BESIDES)
    }
    found = [f"{mine} has no results"] * (not names)
    for name in sorted(names):
        pair = mine / name, undisturbed / name
        if has_no_lines(pair):  # What was cut back to nothing is as good as nothing.
            continue
        if not all(path.exists() for path in pair):
            found.append(f"{name} is not in {mine if pair[1].exists() else undisturbed}")
        elif plain(pair[0]) != plain(pair[1]):
            found.append(f"{pair[0]}")
    return found


def has_no_lines(pair: Sequence[Path]) -> bool:
    """Whether a list of lines has no line in either place."""
    return all(path.suffix == ".jsonl" and not (path.exists() and path.stat().st_size) for path in pair)


def complaint(said: str, code: int) -> str | None:
    """What is wrong with what a process said before it ended, or None: an error is one line."""
    lines = [line for line in said.splitlines() if line.strip()]
    if "Traceback" in said:
        return f"a traceback: {lines[-1]}"
    errors = [line for line in lines if line.startswith("Error: ")]  # Notes may stand before it.
    if code not in (0, -signal.SIGKILL) and (len(errors) != 1 or lines[-1] != errors[0]):
        return f"exit code {code} with {len(lines)} lines: {' | '.join(lines)[-300:]}"
    return None


# -- one process and its children ----------------------------------------------------------------------------------


def family(process: int) -> list[int]:
    """A process and all that come from it."""
    return [process, *(one for child in children(process) for one in family(child))]


def signal_all(process: int, number: signal.Signals) -> None:
    """To a process and all that come from it."""
    for one in family(process):
        with suppress(ProcessLookupError):
            os.kill(one, number)


@dataclass
class Course:
    """The laps of one kind of work."""

    kind: str
    out: Path
    chance: random.Random
    seconds: float = 0.0
    """That the undisturbed lap took."""
    size: int = 0
    """Of what it kept, in bytes."""
    kills: int = 0
    laps: int = 0
    """That were compared with it."""
    faults: dict[str, str] = field(default_factory=dict)
    """What came of each."""
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True)
        self.spec = self.out / f"{self.kind}.yaml"
        self.spec.write_text(SPECS[self.kind])

    def begin(self, out: Path) -> subprocess.Popen[bytes]:
        """The next life of a lap."""
        words = ["-m", "fedpareto", *command(self.kind, self.spec, out)]
        (self.out / "said").unlink(missing_ok=True)
        return started(words, self.out / "said", environment(self.out, self.kind, None))

    def end(self, process: subprocess.Popen[bytes], seconds: float = PATIENCE) -> int | None:
        """The exit code, and whether the last words were right; None if it lives after that time."""
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._judge(code)
        return code

    def _judge(self, code: int) -> None:
        said = (self.out / "said").read_text(errors="replace")
        wrong = complaint(said, code)
        if wrong is not None:
            self.problems.append(f"{self.kind}: {wrong}")

    def finish(self, out: Path) -> None:
        """A life that nobody ends."""
        process = self.begin(out)
        code = self.end(process)
        if code is None:
            signal_all(process.pid, signal.SIGKILL)
            process.wait()
        if code != 0:
            said = (self.out / "said").read_text(errors="replace").strip()[-300:]
            self.problems.append(f"{self.kind} ended with {code}: {said}")

    def undisturbed(self) -> None:
        """The lap that all others are compared with; a first one shows how long it takes when all is loaded."""
        began = time.monotonic()
        self.finish(self.out / "undisturbed")
        self.seconds = time.monotonic() - began
        self.size = sum(path.stat().st_size for path in (self.out / "undisturbed").rglob("*") if path.is_file())

    def killed(self, most: int) -> None:
        """A lap with up to so many kills."""
        out = self.out / f"killed-{self.laps}"
        while most:
            process = self.begin(out)
            if self.end(process, self.chance.uniform(0, SHARE * self.seconds)) is not None:
                break
            signal_all(process.pid, signal.SIGKILL)
            self._judge(process.wait())
            self.kills, most = self.kills + 1, most - 1
        else:
            self.finish(out)
        self.compare(out)

    def compare(self, out: Path) -> None:
        """A lap that is over, with the undisturbed one."""
        found = differences(out, self.out / "undisturbed")
        self.problems += [f"{self.kind} differs: {what}" for what in found]
        self.laps += 1
        if not found and not os.path.ismount(out):
            shutil.rmtree(out)

    def struck(self, fault: str) -> None:
        """A lap with a fault from its beginning, or in its middle, until it ends or the fault does; then its rest."""
        out = self.out / fault.replace(" ", "-")
        before = len(self.problems)
        code = FAULTS[fault](self, out)
        said = (self.out / "said").read_text(errors="replace").strip()
        if code != 0:
            self.finish(out)
        self.compare(out)
        well = "the same results" if len(self.problems) == before else "see below"
        self.faults[fault] = f"{f'ended with {code}: {said[-200:]}' if code else 'went through'}; {well}"
        if os.path.ismount(out):
            subprocess.run(["umount", out], check=True)

    # -- faults: each gives back the exit code ---------------------------------------------------------------------

    def full_disk(self, out: Path) -> int | None:
        """A disk of its own, or where none can be mounted a limit on the size of files."""
        out.mkdir()
        size = int(self.size * ROOM)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", out], check=False).returncode:
            out.rmdir()
            return self._limited(out, resource.RLIMIT_FSIZE, self.size // 20)
        code = self.end(self.begin(out))
        subprocess.run(["mount", "-o", f"remount,size={self.size * 10}", out], check=True)
        return code

    def few_descriptors(self, out: Path) -> int | None:
        """As `ulimit -n` does."""
        return self._limited(out, resource.RLIMIT_NOFILE, FEW)

    def _limited(self, out: Path, what: int, limit: int) -> int | None:
        process = self.begin(out)
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, what, (limit, limit))
        return self.end(process)

    def frozen(self, out: Path) -> int | None:
        """SIGSTOP for a while."""
        process = self.begin(out)
        if self.end(process, self.chance.uniform(0, SHARE * self.seconds)) is not None:
            return process.returncode
        signal_all(process.pid, signal.SIGSTOP)
        time.sleep(self.chance.uniform(*FROZEN))
        signal_all(process.pid, signal.SIGCONT)
        return self.end(process)


FAULTS: dict[str, Callable[[Course, Path], int | None]] = {
    "full disk": Course.full_disk,
    "64 descriptors": Course.few_descriptors,
    "frozen": Course.frozen,
}


# -- a federation --------------------------------------------------------------------------------------------------


class Federation(Course):
    """Kills of random parties: the server, its SuperLink, a node or its SuperNode."""

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True)
        self.peaceful: Lap | None = None

    def undisturbed(self) -> None:
        """See Course."""
        self.peaceful = self._lap("undisturbed", lambda lap: iter(()))

    def killed(self, most: int) -> None:
        """See Course."""
        before = self.kills
        lap = self._lap(f"killed-{self.laps}", lambda lap: self._kills(lap, before + most))
        self._compare(lap)

    def struck(self, fault: str) -> None:
        """See Course; what is hit is a random party."""
        before = len(self.problems)
        lap = self._lap(fault.replace(" ", "-"), lambda lap: self._strike(lap, fault))
        self._compare(lap)
        self.faults[fault] = "the same results" if len(self.problems) == before else "see below"

    def _lap(self, name: str, disturb: Callable[[Lap], Iterator[float]]) -> Lap:
        """`disturb` does something and gives back in how many seconds it wants to go on."""
        lap = federation_lap(self.out / name, self.laps, SECONDS, None, direct=True)
        began = changed = time.monotonic()
        seen, course, due = -1, disturb(lap), began + self.chance.uniform(*APART)
        try:
            while not lap.is_over:
                lap.tend()
                now = time.monotonic()
                if lap.round != seen:
                    seen, changed = lap.round, now
                if now - changed > PATIENCE:
                    self.problems.append(f"federation got stuck after round {seen}")
                    break
                if now >= due:
                    due = now + next(course, PATIENCE)
                time.sleep(0.5)
            for _ in course:  # What is under way ends.
                pass
        finally:
            lap.end()
        self.seconds = self.seconds or time.monotonic() - began
        for party in lap.parties:
            for log in (party.output, lap.folder / f"{party.name}.log"):
                if "Traceback" in log.read_text(errors="replace"):
                    self.problems.append(f"federation: a traceback in {log}")
        return lap

    def _compare(self, lap: Lap) -> None:
        assert self.peaceful is not None
        found = differences(lap.run, self.peaceful.run) if lap.is_over else ["it did not end"]
        for mine, other in zip(lap.models, self.peaceful.models, strict=True):
            if not mine.exists() or plain(mine) != plain(other):
                found.append(str(mine))
        self.problems += [f"federation differs: {what}" for what in found]
        self.laps += 1
        if not found:
            shutil.rmtree(lap.folder)

    def _kills(self, lap: Lap, most: int) -> Iterator[float]:
        while self.kills < most and not lap.is_over:
            whom = self.chance.choice(DISTURBED)
            if self._kill(lap, whom):
                self.kills += 1
                self.faults[f"kill -9 of a {whom}"] = str(int(self.faults.get(f"kill -9 of a {whom}", 0)) + 1)
                yield self.chance.uniform(*APART)
            else:
                yield 1.0

    def _kill(self, lap: Lap, whom: str) -> bool:
        server, *nodes = lap.parties
        party = server if whom in ("server", "superlink") else self.chance.choice(nodes)
        if party.process is None or party.process.poll() is not None:
            return False
        if whom in ("server", "node"):
            signal_all(party.process.pid, signal.SIGKILL)
            return True
        found = [process for role, process in party.processes().items() if role.endswith(f": {whom}")]
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return bool(found)

    def _strike(self, lap: Lap, fault: str) -> Iterator[float]:
        party = self.chance.choice(lap.parties)
        while party.process is None:
            yield 1.0
        hit = family(party.process.pid)
        if fault == "frozen":
            signal_all(party.process.pid, signal.SIGSTOP)
            yield self.chance.uniform(*FROZEN)
            for process in hit:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGCONT)
            return
        what, limit = (resource.RLIMIT_FSIZE, 2048) if fault == "full disk" else (resource.RLIMIT_NOFILE, FEW)
        party.is_held = fault == "full disk"  # What ends meanwhile would not come up on a full disk.
        for process in hit:
            with suppress(ProcessLookupError):
                resource.prlimit(process, what, (limit, resource.prlimit(process, what)[1]))
        yield FROZEN[1] / 2
        party.is_held = False
        for process in hit:
            with suppress(ProcessLookupError):
                resource.prlimit(process, what, (resource.prlimit(process, what)[1],) * 2)


ALL = (*SPECS, "federation")
"""Every kind of work."""


def chaos(options: argparse.Namespace) -> int:
    """All that was asked for; prints a table."""
    torch.set_num_threads(1)
    out: Path = options.out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    courses: list[Course] = []
    for kind in options.only or ALL:
        make = Federation if kind == "federation" else Course
        course = make(kind, out / kind, random.Random(f"{options.seed} {kind}"))
        courses.append(course)
        course.undisturbed()
        while course.kills < options.kills and not course.problems:
            course.killed(options.kills - course.kills)
        for fault in FAULTS if options.faults else ():
            course.struck(fault)
        print(_row(course), *course.problems, sep="\n", flush=True)
    return _tell(courses)


def _row(course: Course) -> str:
    about = "; ".join(f"{name}: {what}" for name, what in course.faults.items())
    whole = course.kind, f"{course.seconds:.0f}", course.kills, course.laps, len(course.problems), about
    return f"| {' | '.join(map(str, whole))} |"


def _tell(courses: Sequence[Course]) -> int:
    print("\n| what | undisturbed, s | kills | laps compared | problems | |\n|---|---|---|---|---|---|")
    for course in courses:
        print(_row(course))
    for course in courses:
        for problem in course.problems:
            print(problem, file=sys.stderr)
    return int(any(course.problems for course in courses))
