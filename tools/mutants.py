"""Change one thing in the code, and see whether a test notices: what share of such mutants is caught.

    make mutants N=300 SEED=7 JOBS=16 ROOM=algorithms
    python tools/mutants.py --number 60 --only packages/fedpareto/src/fedpareto/moo/robust.py --map map.json
    python tools/mutants.py --patches FOLDER --jobs 16 --map map.json

Every test runs once first, in the code as it is: which lines it executes, and its CPU time, are the map. A mutant is
met by the tests that execute its line, the quickest first, in a fork that has imported torch already; there the
changed module is compiled instead of the file, so nothing is written or installed. A mutant that fails a test, cannot
be imported, or takes ten times the CPU time is caught. Controls are forks of the same kind without a change: if one
of them fails, the share says nothing, and the exit code is 1. Survivors are in --json; tools/equivalents.json lists
those that change nothing that can be observed, each with its reason: they do not count. Faults that somebody has
planted, as FOLDER/*.patch (`git diff packages`), are judged in the same way. Tests that fail as the code is, or need
what is not installed, are left out, and named. With --seconds what is not done by then does not count.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import json
import math
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mutant_runs import Job, Map, Order, Places, compile_instead, forks, measured, run_tests
from mutations import mutated, mutations
from patches import DoesNotApply, patched

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "packages" / "fedpareto" / "src" / "fedpareto"
ROOMS = {
    "algorithms": "algorithms/**/*.py",
    "moo": "moo/*.py",
    "trust": "trust/*.py",
    "comparison": "report/comparison*.py moo/intervals.py report/gains.py",
}
"""The files of each; a file of several belongs to the last."""
FOLDERS = (
    *("algorithms", "campaigns", "contract", "learners", "moo", "record", "report", "runs", "spec", "testing", "trust"),
    *("engines/test_local_engine.py", "engines/test_dishonest_replies.py"),
)
TESTS = [f"packages/fedpareto/tests/{name}" for name in FOLDERS]
"""Those that concern the rooms, and need neither other machines nor a browser."""
FIRST, MOST = 3.0, 40.0
"""CPU seconds of tests that meet a mutant at first, and in all: what would take longer is left out."""
EQUIVALENTS = Path(__file__).with_name("equivalents.json")


# -- mutants -------------------------------------------------------------------------------------------------------


@dataclass
class Mutant:
    """One, and what became of it."""

    room: str
    where: str
    """File and line."""
    places: Places
    """The lines that change."""
    changed: Mapping[Path, Callable[[], Any]]
    """What their files are made of instead."""
    root: Path
    said: dict[str, str]
    """The change in words."""
    fate: str = ""
    """`caught`, `hang`, `survived`, `no test`, `equivalent` or `not tried`."""
    left_out: int = 0
    """Tests that were not tried since they take too long."""

    def plain(self) -> dict[str, object]:
        """For the file."""
        return {"where": self.where, "room": self.room, "fate": self.fate, **self.said, "left out": self.left_out}

    @property
    def key(self) -> tuple[str, ...]:
        """What names it while lines move."""
        return (self.where.rpartition(":")[0], *self.said.values())

    @property
    def change(self) -> str:
        """In one line."""
        return f"{self.said['before']} → {self.said['after']}" if "before" in self.said else self.said["patch"]


def jobs_of(mutant: Mutant, known: Map, slack: float, changed: bool = True) -> Iterable[Job]:
    """The quickest tests, then the others."""
    tests = known.tests(mutant.places)
    stages: list[list[str]] = [[], []]
    spent = 0.0
    for test in tests:
        spent += known.seconds[test]
        if spent <= MOST or not stages[0]:
            stages[spent > FIRST and bool(stages[0])].append(test)
    mutant.left_out = len(tests) - sum(map(len, stages))
    if not tests:
        mutant.fate = "no test"
        return

    def stage(number: int) -> Job:
        chosen = stages[number]

        def work() -> int:
            if changed:
                compile_instead(mutant.changed)
            files = sorted({test.partition("::")[0] for test in chosen})
            return run_tests(mutant.root, files, [Order(chosen)], first_failure_ends=True)

        def done(code: int) -> Iterable[Job]:
            if code == 0 and number == 0 and stages[1]:
                return [stage(1)]
            mutant.fate = "survived" if code == 0 else "hang" if code < 0 else "caught"
            return ()

        return Job(work, done, slack * (1 + sum(known.seconds[test] for test in chosen)))

    yield stage(0)


def drawn(rooms: dict[str, list[Path]], number: int, seed: int, root: Path) -> list[Mutant]:
    """So many of all in these rooms; the same seed draws the same."""
    every = [one for room, paths in rooms.items() for path in paths for one in _of_file(room, path, root)]
    return random.Random(seed).sample(every, min(number, len(every)))


def _of_file(room: str, path: Path, root: Path) -> Iterator[Mutant]:
    source, name = path.read_text(encoding="utf-8"), str(path.relative_to(root))
    for one in mutations(source):
        lines = None if one.runs_on_import else frozenset(range(one.line, one.end + 1))
        said = {"line": one.text, "before": one.before, "after": one.after}
        make = {path: partial(mutated, source, one.number)}
        yield Mutant(room, f"{name}:{one.line}", {path: lines}, make, root, said)


def planted(folder: Path, root: Path) -> list[Mutant]:
    """The faults of a folder of patches; one that does not apply ends the program."""
    found = []
    for file in sorted(folder.glob("*.patch")):
        try:
            files = patched(file.read_text(encoding="utf-8"), root)
        except DoesNotApply as problem:
            raise SystemExit(f"{file.name} does not apply: {problem}") from None
        path, first = next((path, one.first) for path, one in files.items())
        make = {path: partial(str, one.text) for path, one in files.items()}
        places = {path: one.lines for path, one in files.items()}
        where = f"{path.relative_to(root)}:{first}"
        found.append(Mutant("patches", where, places, make, root, {"patch": file.name}))
    if not found:
        raise SystemExit(f"{folder} has no *.patch")
    return found


def wilson(caught: int, of: int) -> tuple[float, float]:
    """The interval of a share at 95 %."""
    z = 1.959963984540054
    share, reach = caught / of, z * z / of
    middle, half = share + reach / 2, z * math.sqrt(share * (1 - share) / of + reach / (4 * of))
    return max(0.0, (middle - half) / (1 + reach)), min(1.0, (middle + half) / (1 + reach))


def tell(mutants: Sequence[Mutant]) -> None:
    """The share of each room and of all."""
    print("| room | mutants | caught | of these hangs | no test | equivalent | share | 95 % interval |")
    print("|---|---|---|---|---|---|---|---|")
    for room in [*sorted({one.room for one in mutants}), "all"]:
        fates = [one.fate for one in mutants if room in (one.room, "all")]
        hangs, equivalent = fates.count("hang"), fates.count("equivalent")
        caught, of = fates.count("caught") + hangs, len(fates) - equivalent
        low, high = wilson(caught, of) if of else (0.0, 1.0)
        share = f"{caught / of:.1%} | {low:.1%} to {high:.1%}" if of else "– | –"
        print(f"| {room} | {len(fates)} | {caught} | {hangs} | {fates.count('no test')} | {equivalent} | {share} |")


def tell_left_out(known: Map) -> None:
    """Which tests say nothing here: those that fail by name, of those that are skipped how many in which file."""
    skipped: dict[tuple[str, str], int] = defaultdict(int)
    for test, why in known.left_out.items():
        if why.startswith("skipped: ") and "::" in test:
            skipped[test.partition("::")[0], why] += 1
        else:
            print(f"left out: {test}: {why}")
    for (file, why), many in sorted(skipped.items()):
        print(f"left out: {file}, {many} tests: {why}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=200, help="mutants, drawn of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--room", action="append", choices=list(ROOMS), help="only this one; may be given several times"
    )
    parser.add_argument("--only", type=Path, action="append", help="only this file; may be given several times")
    parser.add_argument("--patches", type=Path, help="these faults instead: a folder of *.patch, made by git diff")
    parser.add_argument("--tests", action="append", help="files and folders of tests; by default all that are quick")
    parser.add_argument("--root", type=Path, default=ROOT, help="where tests run")
    parser.add_argument("--map", type=Path, help="a file with the map: read if it is there, written if not")
    parser.add_argument("--controls", type=int, default=5, help="forks without a change, which must pass")
    parser.add_argument(
        "--slack", type=float, default=10.0, help="times the CPU time of its tests that a mutant may take"
    )
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="by the clock; what is not done by then does not count"
    )
    parser.add_argument("--json", type=Path, default=Path("mutants.json"), help="a file for what became of each")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    rooms = _rooms(options)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # What a test notices is to be the same on all machines.
    torch.set_num_threads(1)
    began = time.monotonic()
    faults = planted(options.patches, root) if options.patches else []
    sources = {*(path for paths in rooms.values() for path in paths), *(path for one in faults for path in one.places)}
    known = _known(options, root, sources)
    print(f"{len(known.seconds)} tests, {sum(known.seconds.values()):.0f} s of CPU time; ", end="")
    print(f"the map took {time.monotonic() - began:.0f} s by the clock", flush=True)
    tell_left_out(known)
    for name in known.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    mutants = faults or drawn(rooms, options.number, options.seed, root)
    controls = [replace(one) for one in mutants[: options.controls]]
    equivalent = (
        {tuple(one["mutant"]) for one in json.loads(EQUIVALENTS.read_text())} if EQUIVALENTS.exists() else set()
    )
    for one in mutants:
        one.fate = "equivalent" if one.key in equivalent else ""
    jobs = [job for one in controls for job in jobs_of(one, known, options.slack, changed=False)]
    jobs += [job for one in mutants if not one.fate for job in jobs_of(one, known, options.slack)]
    forks(jobs, options.jobs, options.seconds - (time.monotonic() - began))
    for one in mutants:
        one.fate = one.fate or "not tried"
    failed = [one for one in controls if one.fate in ("caught", "hang")]
    tell([one for one in mutants if one.fate != "not tried"])
    print(f"controls: {len(failed)} of {len(controls)} failed; {time.monotonic() - began:.0f} s by the clock")
    for one in mutants:
        if faults or one.fate in ("survived", "no test"):
            print(f"{one.where}: {one.fate}: {one.change}")
    options.json.write_text(json.dumps([one.plain() for one in mutants], indent=1, ensure_ascii=False))
    return int(bool(failed))


def _known(options: argparse.Namespace, root: Path, sources: set[Path]) -> Map:
    """The map of these files: one that was kept, or a new one."""
    if options.map and options.map.exists():
        known = Map(**json.loads(options.map.read_text()))
        if unknown := sorted(sources - {Path(name) for name in known.sources}):
            raise SystemExit(f"{options.map} knows nothing of {unknown[0]}: remove it, or give another")
        return known
    tests = options.tests or [name for name in TESTS if (root / name).exists()]
    known = measured(root, tests, sorted(sources), options.jobs, options.seconds)
    if options.map:
        options.map.write_text(json.dumps(vars(known)))
    return known


def _rooms(options: argparse.Namespace) -> dict[str, list[Path]]:
    if options.only:
        return {"only": [path.resolve() for path in options.only]}
    found: dict[Path, str] = {}
    for room, patterns in ROOMS.items():
        found |= {path: room for pattern in patterns.split() for path in sorted(SOURCE.glob(pattern))}
    return {room: [path for path, its in found.items() if its == room] for room in options.room or ROOMS}


if __name__ == "__main__":
    sys.exit(main())
