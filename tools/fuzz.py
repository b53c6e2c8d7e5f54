"""Give every reader of files and messages damaged and hostile input: each must be used or refused in one line.

    make fuzz N=1000000 JOBS=8
    python tools/fuzz.py --inputs 2000 --reader spec.yaml --seed 7 --keep found
    python tools/fuzz.py --inputs 2000 --reader spec.yaml --first 2000      # the next ones

A traceback is any exception but a refusal; a hang is an input that takes longer than SECONDS of CPU time. The exit
code is 1 if there was either, and --keep writes such inputs to a folder; once mended they belong into tests/found.
Inputs are numbered: the same seed makes the same ones, in however many processes. Memory is sampled in every process,
and a line is laid through it. It needs Linux or macOS, and the packages of
`pip install 'fedpareto[flower,serve,page,parquet,onnx,space]'`; with --skip-absent readers whose packages are not
there are left out by name.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from fuzz_readers import Reader, absent, prepare
from soak_growth import Slope, slope

SECONDS = 1.0
"""Of CPU time, after which an input counts as a hang."""
PATIENCE = 120
"""The same by the clock, for what waits without computing."""
MEMORY = 16 * 2**30
"""Bytes of address space: a damaged length must not fill the machine."""
SLICE = 100
"""Inputs that a process gets at a time; after each its memory is looked at."""


class Hang(BaseException):
    """Raised by the alarm; not an Exception, which a reader might catch."""


@dataclass
class Count:
    """What a reader did with its inputs."""

    inputs: int = 0
    used: int = 0
    refused: int = 0
    hangs: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    """Of CPU time, the making of inputs included."""
    tracebacks: Counter[str] = field(default_factory=Counter)
    """By place and kind."""
    found: dict[str, bytes] = field(default_factory=dict)
    """The first input of each."""

    def add(self, other: Count) -> None:
        """What it did with others."""
        for name in ("inputs", "used", "refused", "hangs", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)
        self.tracebacks += other.tracebacks
        self.found = other.found | self.found


# -- trying --------------------------------------------------------------------------------------------------------


def fuzz(reader: Reader, inputs: int, seed: int, first: int = 0) -> Count:
    """Reads the mutated inputs from number `first` on, after the good ones, which must be used."""
    for content in reader.whole:
        reader.read(content)
    count, began = Count(), time.process_time()
    for number in range(first, first + inputs):
        draw = random.Random(f"{reader.name} {seed} {number}")
        _try(reader, reader.mutate(draw, draw.choice(reader.whole)), count)
    count.seconds = time.process_time() - began
    return count


def tried(reader: Reader, content: bytes) -> Count:
    """What a reader does with one input."""
    count = Count()
    _try(reader, content, count)
    return count


def _memory() -> float:
    """Megabytes that this process has to itself; where the system does not tell, those that it had at most."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().partition("RssAnon:")[2].split()[0]) / 2**10
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 2 ** (20 if sys.platform == "darwin" else 10)


def _try(reader: Reader, content: bytes, count: Count) -> None:
    count.inputs += 1
    began = time.process_time()
    try:
        with alarm():
            reader.read(content)
        count.used += 1
    except reader.refusals as problem:
        count.refused += 1
        if not str(problem).strip():
            _note(count, f"a refusal without a word: {type(problem).__name__}", content)
    except Hang:
        count.hangs += 1
        _note(count, "hang", content)
    except Exception as problem:
        _note(count, f"{type(problem).__name__} at {_place(problem)}", content)
    count.slowest = max(count.slowest, time.process_time() - began)


def _note(count: Count, what: str, content: bytes) -> None:
    if what != "hang":
        count.tracebacks[what] += 1
    count.found.setdefault(what, content)


def _place(problem: BaseException) -> str:
    """The last line of fedpareto's own that was running."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if "fedpareto" in frame.filename] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}"


_ARMED = [False]


def _ring(*_: object) -> None:
    if _ARMED[0]:
        raise Hang


@contextmanager
def alarm() -> Iterator[None]:
    """Raises Hang where it takes too long."""
    for number in (signal.SIGPROF, signal.SIGALRM):
        # It stays: a signal that is under way when the timer stops must not meet the default, which ends the process.
        signal.signal(number, _ring)
    _ARMED[0] = True
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        _ARMED[0] = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


# -- the command ---------------------------------------------------------------------------------------------------

SHARES = {
    **{"(resume)": 0.03, "(show)": 0.1, "(page)": 0.1, "mission.jsonl": 0.05, "mission.json": 0.05, "preferences": 0.1},
    **{"spec.yaml": 0.2, "(node)": 0.2, "schema.json": 0.3, "(.png)": 0.3, "(serve)": 0.5, "model": 0.5, "CSV.gz": 0.5},
    **dict.fromkeys(("frames", "bundles", "PDUs", "plans", "(IDX)", "headers", "NNEF", "sessions", "(service)"), 4.0),
}
"""Of a reader's part of the inputs, by the end of its name: some build a run or a page for each, others only look."""
FLOOR = 2_000 / 500_000
"""The smallest part of a reader."""


def shares(names: Sequence[str], inputs: int) -> dict[str, int]:
    """How many inputs each reader gets."""
    weights = {name: SHARES.get(name.rpartition(" ")[2], 1.0) for name in names}
    floor, total = min(FLOOR, 1 / max(len(names), 1)), sum(weights.values())
    left = 1 - floor * len(names)
    return {name: math.ceil(inputs * (floor + left * weight / total)) for name, weight in weights.items()}


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all")
    parser.add_argument("--first", type=int, default=0, help="the number of each reader's first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no more inputs are begun")
    parser.add_argument("--reader", action="append", help="only this one; may be given several times")
    parser.add_argument("--skip-absent", action="store_true", help="leave out what lacks a package")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that should not be as they are")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    missing = absent()
    if missing and not options.skip_absent:
        parser.error(f"not installed: {', '.join(sorted(set(missing.values())))}; --skip-absent goes on without them")
    for group, package in missing.items():
        print(f"left out: {group} (no {package})", flush=True)
    return _all(options)


def _all(options: argparse.Namespace) -> int:
    context = multiprocessing.get_context("fork")  # Everything is imported already.
    folder = Path(tempfile.mkdtemp())
    deadline = time.monotonic() + options.seconds
    try:
        with ProcessPoolExecutor(options.jobs, context, _begin, (folder,)) as pool:
            known = pool.submit(_names).result()
            names = [name for name in known if not options.reader or name in options.reader]
            pieces = _pieces(shares(names, options.inputs), options.first)
            tasks = [pool.submit(_piece, name, many, options.seed, first, deadline) for name, many, first in pieces]
            counts: dict[str, Count] = {name: Count() for name in names}
            sizes: dict[int, list[tuple[float, float]]] = {}
            for (name, *_), task in zip(pieces, tasks, strict=True):
                count, process, done, memory = task.result()
                counts[name].add(count)
                if count.inputs:
                    sizes.setdefault(process, []).append((done, memory))
    except BrokenProcessPool:
        print("a process ended without a word; one of these was in it:", file=sys.stderr)
        print(*sorted(path.read_text() for path in folder.glob("at-*")), sep="\n", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _tell(
        counts, slope([(done * 3600 / 1e6, size) for done, size in sorted(one)] for one in sizes.values()), options
    )


def _pieces(parts: dict[str, int], first: int) -> list[tuple[str, int, int]]:
    """Of every reader's inputs, in turn: name, how many, and the number of the first."""
    found = [
        (at, name, min(SLICE, many - at), first + at) for name, many in parts.items() for at in range(0, many, SLICE)
    ]
    return [piece for _, *piece in sorted(found, key=lambda one: one[0])]  # type: ignore[misc]


_READERS: dict[str, Reader] = {}
"""Of this process, each with files of its own."""
_DONE = [0]
_AT: list[Path] = []
"""The file in which this process says what it is at."""


def _begin(folder: Path) -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _AT.append(folder / f"at-{multiprocessing.current_process().pid}")
    _READERS.update((reader.name, reader) for reader in prepare(Path(tempfile.mkdtemp(dir=folder))))


def _names() -> list[str]:
    return list(_READERS)


def _piece(name: str, many: int, seed: int, first: int, deadline: float) -> tuple[Count, int, int, float]:
    """What became of some inputs, in which process, after how many in all, and how large it is now."""
    _AT[0].write_text(f"--reader '{name}' --seed {seed} --first {first} --inputs {many}")
    count = fuzz(_READERS[name], many, seed, first) if time.monotonic() < deadline else Count()
    _DONE[0] += count.inputs
    return count, multiprocessing.current_process().pid or 0, _DONE[0], _memory()


def _tell(counts: dict[str, Count], growth: Slope | None, options: argparse.Namespace) -> int:
    names = ("reader", "inputs", "used", "refused", "tracebacks", "hangs", "slowest, s", "inputs a CPU second")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    total = Count()
    for name, count in counts.items():
        _say(name, count)
        total.add(count)
        for what, content in count.found.items():
            print(f"{name}: {what} ({count.tracebacks[what]})", file=sys.stderr)
            if options.keep:
                keep(options.keep, name, what, content)
    _say("all", total)
    if growth is not None:
        print(
            f"memory: {growth.value:+.1f} ± {growth.width:.1f} MB for a million inputs, {growth.largest:.0f} MB at most"
        )
    if options.json:
        plain = {name: vars(count) | {"found": sorted(count.found)} for name, count in counts.items()}
        figures = {
            "seed": options.seed,
            "inputs": total.inputs,
            "tracebacks": total.tracebacks.total(),
            "hangs": total.hangs,
            "fewest": min((count.inputs for count in counts.values()), default=0),
            "readers": plain,
            "not run": absent(),
            "memory": vars(growth) if growth else None,
        }
        options.json.write_text(json.dumps(figures, indent=1))
    return int(bool(total.hangs or total.tracebacks))


def keep(folder: Path, reader: str, what: str, content: bytes) -> None:
    """An input, in a file that says of which reader and of what."""
    (folder / slug(reader)).mkdir(parents=True, exist_ok=True)
    (folder / slug(reader) / slug(what)).write_bytes(content)


def slug(text: str) -> str:
    """A text as the name of a file."""
    return "".join(letter if letter.isalnum() or letter == "." else "-" for letter in text)


def _say(name: str, count: Count) -> None:
    numbers = (count.inputs, count.used, count.refused, count.tracebacks.total(), count.hangs)
    rate = count.inputs / count.seconds if count.seconds else 0
    print(
        f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} | {count.slowest:.2f} | {rate:,.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
