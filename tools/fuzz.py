"""Give every reader of files and messages damaged and hostile input: each must be used or refused in one line.

    python tools/fuzz.py --inputs 100000
    python tools/fuzz.py --inputs 2000 --reader spec.yaml --seed 7 --keep found

A traceback is any exception but a refusal; a hang is an input that takes longer than SECONDS of CPU time. The exit code
is 1 if there was either, and --keep writes such inputs to a folder. The same seed makes the same inputs. It needs Linux
or macOS, and the packages of `pip install 'fedpareto[flower,serve,parquet,onnx,space]'`.
"""

from __future__ import annotations

import argparse
import math
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from fuzz_readers import Reader, prepare

SECONDS = 10
"""Of CPU time, after which an input counts as a hang."""
PATIENCE = 120
"""The same by the clock, for what waits without computing."""
MEMORY = 16 * 2**30
"""Bytes of address space: a damaged length must not fill the machine."""


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
    grown: float = 0.0
    """Megabytes by which the most memory that was ever used has grown."""
    tracebacks: Counter[str] = field(default_factory=Counter)
    """By place and kind."""
    found: dict[str, bytes] = field(default_factory=dict)
    """The first input of each."""


# -- trying --------------------------------------------------------------------------------------------------------


def fuzz(reader: Reader, inputs: int, seed: int) -> Count:
    """Reads `inputs` mutated inputs, after the good ones, which must be used."""
    for content in reader.whole:
        reader.read(content)
    count, before = Count(), _most_memory()
    for number in range(inputs):
        draw = random.Random(f"{reader.name} {seed} {number}")
        _try(reader, reader.mutate(draw, draw.choice(reader.whole)), count)
    count.grown = _most_memory() - before
    return count


def _most_memory() -> float:
    """Megabytes that this process has used at most; macOS counts bytes, Linux kilobytes."""
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


@contextmanager
def alarm() -> Iterator[None]:
    """Raises Hang where it takes too long."""

    def ring(*_: object) -> None:
        raise Hang

    before = [signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


# -- the command ---------------------------------------------------------------------------------------------------

SHARES = {"(resume)": 0.3, "(show)": 0.6}
"""Of a reader's part of the inputs: these build a run, or a page, for each."""


def shares(readers: list[Reader], inputs: int) -> dict[str, int]:
    """How many inputs each reader gets."""
    weights = {reader.name: SHARES.get(reader.name.rpartition(" ")[2], 1.0) for reader in readers}
    total = sum(weights.values())
    return {name: math.ceil(inputs * weight / total) for name, weight in weights.items()}


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="only this one; may be given several times")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that should not be as they are")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    folder = Path(tempfile.mkdtemp())
    try:
        return _all(prepare(folder), options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _all(readers: list[Reader], options: argparse.Namespace) -> int:
    chosen = [reader for reader in readers if not options.reader or reader.name in options.reader]
    parts = shares(chosen, options.inputs)
    names = ("reader", "inputs", "used", "refused", "tracebacks", "hangs", "slowest, s", "grown, MB")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    total = Count()
    for reader in chosen:
        count = fuzz(reader, parts[reader.name], options.seed)
        _say(reader.name, count)
        for what, content in count.found.items():
            print(f"{reader.name}: {what} ({count.tracebacks[what]})", file=sys.stderr)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                name = "".join(letter if letter.isalnum() else "-" for letter in f"{reader.name} {what}")
                (options.keep / name).write_bytes(content)
        for name in ("inputs", "used", "refused", "hangs"):
            setattr(total, name, getattr(total, name) + getattr(count, name))
        total.tracebacks += count.tracebacks
        total.slowest = max(total.slowest, count.slowest)
        total.grown += count.grown
    _say("all", total)
    return int(bool(total.hangs or total.tracebacks))


def _say(name: str, count: Count) -> None:
    numbers = (count.inputs, count.used, count.refused, count.tracebacks.total(), count.hangs)
    print(
        f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} | {count.slowest:.2f} | {count.grown:.0f} |",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
