"""Years of life in hours: a local run and a federation of three nodes under faults, compared with undisturbed ones.

    make soak HOURS=3
    python tools/soak.py --hours 3 --every 300 --out soak
    python tools/soak.py --read soak        # what is known so far, also of one that is under way

The undisturbed run and federation live beside the first disturbed ones. Whole runs ("laps") follow each other until the
time is over; models, solutions and metrics (without times) of each have to be those of the undisturbed one. Faults:
kill -9 of the run, the server, a node or one of their children; cut connections; full disks (a limit on the size of
files, which needs no root); a wall clock that jumps by an hour, or by 20 minutes for one party alone (with a C
compiler; without one that is left out, and said). Memory, descriptors and threads of all processes are sampled.

It ends with a table, `soak.json` and `soak.png`; the exit code is 1 if anything differed, got stuck or grew out of its
bounds. It needs Linux and the packages of `pip install 'fedpareto[flower]'`. SIGTERM ends it early, with its table.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import soak_growth
from soak_chaos import ALL, chaos, plain
from soak_faults import Fault, Proxy, build_shim, kinds, strike
from soak_parties import Lap, federation_lap, fork_all, local_lap

from fedpareto_flower.deploy import logs

LAP = 2400.0
"""Seconds that a lap is planned to take."""
STUCK = 1200.0
"""Seconds without a new round after which a lap is given up."""
LARGEST_LOG = logs.LARGEST + 2**20
"""Bytes that no log may exceed: they are looked at now and then."""
MODELS = "models.safetensors"
SAMPLED = 5.0
"""Seconds between two samples."""
MAKERS: dict[str, Callable[[Path, int, float, Path | None], Lap]] = {"run": local_lap, "federation": federation_lap}


def differences(undisturbed: Lap, lap: Lap) -> list[str]:
    """What of a lap's results is not as it should be."""
    pairs = zip((lap.run / MODELS, *lap.models), (undisturbed.run / MODELS, *undisturbed.models), strict=True)
    names = ("solutions.json", "columns.bin", "metrics.jsonl", "events.jsonl")
    others = ((lap.run / name, undisturbed.run / name) for name in names)
    return [str(mine) for mine, other in (*pairs, *others) if plain(mine) != plain(other)]


@dataclass
class Course:
    """Laps of one kind, one after the other."""

    kind: str
    out: Path
    seconds: float
    """That a lap is planned to take."""
    shim: Path | None
    chance: random.Random
    undisturbed: Lap = field(init=False)
    lap: Lap = field(init=False)
    proxies: dict[int, Proxy] = field(default_factory=dict)
    """By the number of the lap."""
    faults: list[Fault] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    """Kinds of faults that come next."""
    compared: int = 0
    """Laps."""
    rounds: int = 0
    """Of these laps."""
    problems: list[str] = field(default_factory=list)
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    """The last new round of a lap, and when it came."""

    def __post_init__(self) -> None:
        self.undisturbed, self.lap = self._begin(0), self._begin(1)

    def _begin(self, number: int) -> Lap:
        lap = MAKERS[self.kind](self.out / f"{self.kind}-{number}", number, self.seconds, self.shim)
        if lap.outside:
            self.proxies[number] = Proxy(lap.outside, lap.port)
        return lap

    @property
    def laps(self) -> list[Lap]:
        """Those that live."""
        return [self.lap] if self.undisturbed.is_over else [self.undisturbed, self.lap]

    def tend(self) -> None:
        """Starts what has ended, and looks at what is under way."""
        now = time.monotonic()
        for lap in self.laps:
            lap.tend()
            round_ = lap.round
            if self._seen.get(lap.number, (-1, 0.0))[0] != round_:
                self._seen[lap.number] = round_, now
            elif now - self._seen[lap.number][1] > STUCK and not lap.is_over:
                self.problems.append(f"{self.kind} {lap.number} got stuck after round {round_}")
                self._seen[lap.number] = round_, now
        for fault in self.faults:
            if fault.until and now >= fault.until:
                fault.until = 0.0
                fault.end()
            is_past = self.lap.is_running and self.lap.round >= fault.round + 2
            if fault.recovered is None and not fault.until and (fault.lap < self.lap.number or is_past):
                fault.recovered = now - fault.began

    def strike(self) -> Fault:
        """The next fault; each kind comes once before any comes again."""
        if not self.waiting:
            self.waiting = kinds(self.lap, self.shim)
            self.chance.shuffle(self.waiting)
        fault = strike(self.lap, self.waiting.pop(), self.chance, self.proxies.get(self.lap.number))
        self.faults.append(fault)
        return fault

    def compare(self) -> None:
        """A lap that is over, with the undisturbed one."""
        for fault in self.faults:
            if fault.until:  # It outlasted the lap, whose folder goes.
                fault.until = 0.0
                fault.end()
        found = differences(self.undisturbed, self.lap)
        self.problems += [f"{self.kind} {self.lap.number} differs: {what}" for what in found]
        self.compared += 1
        self.rounds += self.lap.rounds
        if not found:
            shutil.rmtree(self.lap.folder)

    def next(self) -> None:
        """The next lap."""
        if self.lap.number in self.proxies:
            self.proxies.pop(self.lap.number).close()
        self.lap = self._begin(self.lap.number + 1)

    def end(self) -> None:
        """Ends all that lives."""
        for lap in self.laps:
            lap.end()


class Soak:
    """All of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.out: Path = options.out.resolve()
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.began = time.monotonic()
        self.deadline = self.began + options.hours * 3600
        self.every = min(options.every, options.hours * 3600 / 4)
        self.shim = build_shim(self.out)
        seconds = min(options.lap, options.hours * 3600)
        chance = random.Random(options.seed)
        self.courses = [
            Course(kind, self.out, seconds, self.shim, chance) for kind in options.only or MAKERS if kind in MAKERS
        ]
        self.seconds = seconds
        self.largest_log, self.rotated = 0, 0
        self.is_stopped = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)

    def _stop(self, *_: object) -> None:
        self.is_stopped = True

    def run(self) -> int:
        """Until the time is over and the last laps are."""
        try:
            next_sample, next_fault = 0.0, time.monotonic() + self.every
            going = list(self.courses)
            while going and not self.is_stopped:
                now = time.monotonic()
                for course in list(going):
                    course.tend()
                    if course.lap.is_over and course.undisturbed.is_over:
                        self._look_at_logs(course)
                        course.compare()
                        if now + self.seconds / 2 < self.deadline:
                            course.next()
                        else:
                            going.remove(course)
                if next_fault <= now < self.deadline:
                    next_fault = now + self.every
                    for course in going:
                        if not course.lap.is_over:
                            self._note("faults.jsonl", _told(course.strike(), course.kind, self.began))
                if now >= next_sample:
                    next_sample = now + SAMPLED
                    self._sample(going)
                if any("stuck" in problem for course in going for problem in course.problems):
                    break
                time.sleep(0.5)
        finally:
            for course in self.courses:
                course.end()
        return self._tell()

    def _sample(self, courses: list[Course]) -> None:
        at = round(time.monotonic() - self.began, 1)
        for course in courses:
            for lap in course.laps:
                for party in lap.parties:
                    for role, process in party.processes().items():
                        found = soak_growth.sample(process)
                        # Nodes are alike, and so are their children.
                        kind = role.replace(party.name, party.name.partition("-")[0])
                        if found is not None and "helper" not in role and "gone" not in role:
                            about = {"at": at, "role": kind + (", undisturbed" if not lap.number else "")}
                            self._note("samples.jsonl", about | {"round": lap.round} | found)
        self._save()

    def _look_at_logs(self, course: Course) -> None:
        for lap in {id(lap): lap for lap in (course.undisturbed, course.lap)}.values():
            sizes = [path.stat().st_size for path in lap.logs()]
            self.largest_log = max(self.largest_log, *sizes, 0)
            self.rotated += sum(path.name[-1].isdigit() for path in lap.logs())
        if self.largest_log > LARGEST_LOG:
            course.problems.append(f"a log has {self.largest_log / 2**20:.1f} MB")

    def _note(self, name: str, row: dict[str, Any]) -> None:
        with (self.out / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _save(self) -> None:
        about = {
            "hours": (time.monotonic() - self.began) / 3600,
            "every": self.every,
            "clock": "moved" if self.shim else "left out: no C compiler",
            "disk": "a limit on the size of files",
            "largest_log": self.largest_log,
            "rotated_logs": self.rotated,
            "courses": {
                course.kind: {
                    "laps": course.compared,
                    "rounds": course.rounds,
                    "problems": course.problems,
                    "starts": {party.name: party.starts for party in course.lap.parties},
                    "faults": [_told(fault, course.kind, self.began) for fault in course.faults],
                }
                for course in self.courses
            },
        }
        (self.out / "soak.json.new").write_text(json.dumps(about, indent=1))
        (self.out / "soak.json.new").replace(self.out / "soak.json")

    def _tell(self) -> int:
        self._save()
        return told(self.out)


def _told(fault: Fault, kind: str, began: float) -> dict[str, Any]:
    about = {name: value for name, value in vars(fault).items() if name not in ("end", "began", "until")}
    return {"at": round(fault.began - began, 1), "of": kind, **about}


def told(folder: Path) -> int:
    """Prints what a folder tells, adds slopes to its record, and draws; 1 if not all was as it should be."""
    about = json.loads((folder / "soak.json").read_text())
    samples = soak_growth.read_lines(folder / "samples.jsonl")
    found = soak_growth.slopes(samples)
    about["slopes"] = {role: {what: asdict(one) for what, one in of_role.items()} for role, of_role in found.items()}
    (folder / "soak-slopes.json").write_text(json.dumps(about, indent=1))
    faults = [fault for course in about["courses"].values() for fault in course["faults"]]
    if samples:
        soak_growth.draw(samples, faults, folder / "soak.png")
    print(f"{about['hours']:.2f} hours; clocks: {about['clock']}; disks: {about['disk']}\n")
    print(soak_growth.table(found), end="\n\n")
    print("| of | fault | times | recovered after, s (median, most) |\n|---|---|---|---|")
    for (of, kind), count in sorted(Counter((fault["of"], fault["kind"]) for fault in faults).items()):
        seconds = [
            fault["recovered"]
            for fault in faults
            if (fault["of"], fault["kind"]) == (of, kind) and fault["recovered"] is not None
        ]
        print(f"| {of} | {kind} | {count} | {f'{median(seconds):.0f}, {max(seconds):.0f}' if seconds else '-'} |")
    print("\n| what | laps compared | rounds | differences |\n|---|---|---|---|")
    problems = []
    for kind, course in about["courses"].items():
        problems += course["problems"]
        print(f"| {kind} | {course['laps']} | {course['rounds']:,} | {len(course['problems'])} |")
    print(f"\nlargest log {about['largest_log'] / 2**20:.1f} MB, {about['rotated_logs']} rotated")
    for problem in problems:
        print(problem, file=sys.stderr)
    return int(bool(problems) or not any(course["laps"] for course in about["courses"].values()))


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=3.0)
    parser.add_argument("--every", type=float, default=300.0, help="seconds between two faults")
    parser.add_argument("--lap", type=float, default=LAP, help="seconds that one whole run is planned to take")
    parser.add_argument(
        "--kills", type=int, default=0, help="instead: that often, of each kind of work (soak_chaos.py)"
    )
    parser.add_argument("--faults", action="store_true", help="with --kills: full disk, few descriptors, frozen, too")
    parser.add_argument("--forks", action="store_true", help="processes are forks, which begin at once")
    parser.add_argument("--only", nargs="+", choices=list(ALL), default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak"))
    parser.add_argument("--read", type=Path, help="only tell what this folder tells")
    options = parser.parse_args()
    if options.read:
        return told(options.read)
    if options.forks:
        fork_all()
    return chaos(options) if options.kills or options.faults else Soak(options).run()


if __name__ == "__main__":
    sys.exit(main())
