"""What does a small run cost as one of many in `fedpareto sweep`, beside a `fedpareto run` of its own?

    python benchmarks/sweep.py [--quick] [--json FILE]

The work is 200 runs of FedAvg on `synthetic`, ten clients and ten rounds each: 20 step sizes under 10 seeds. As a grid
they are 20 runs of 10 seeds, each of them one stack; and the same as 200 runs of one seed, which share nothing but warm
processes. Both are compared with `fedpareto run`: a few are run and scaled to 200, one at a time and as many at a time
as there are cores. CPU seconds are those of all processes. Then the grid is killed (`kill -9`) after a third of its
runs and started again; what it leaves must be the same, bit for bit.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
RESULTS = ("models.safetensors", "solutions.json", "columns.bin")
BASE = {"algorithm": "fedavg", "problem": "synthetic", "clients": 10, "rounds": 10}
COMMAND = (sys.executable, "-m", "fedpareto")


def cpu_seconds() -> float:
    """Of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reap() -> None:
    """Waits for all processes that others have left to us, so that theirs are counted."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


def ran(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def timed(commands: Sequence[Sequence[str]], at_a_time: int = 1) -> dict[str, float]:
    """Wall-clock and CPU seconds of some commands."""
    start, before = time.perf_counter(), cpu_seconds()
    with ThreadPoolExecutor(at_a_time) as pool:
        for done in pool.map(ran, commands):
            assert done.returncode == 0, done.stderr
    wall = time.perf_counter() - start
    reap()
    return {"wall_s": wall, "cpu_s": cpu_seconds() - before}


def scaled(figures: dict[str, float], factor: float) -> dict[str, float]:
    return {key: value * factor for key, value in figures.items()}


def single(folder: Path, lr: float, seed: int) -> list[str]:
    """One run of the grid as a command of its own."""
    flags = ["--problem", "synthetic", "--clients", "10", "--rounds", "10", "--seeds", f"{seed},", "--set", f"lr={lr}"]
    return [*COMMAND, "run", "fedavg", *flags, "--quiet", "--out", str(folder / f"{lr}-{seed}")]


def sweep(specs: Sequence[Path], out: Path) -> list[str]:
    return [*COMMAND, "sweep", *map(str, specs), "--quiet", "--out", str(out)]


def finished(out: Path) -> int:
    return len(list(out.glob("*/solutions.json")))


def killed(specs: Sequence[Path], out: Path, after: int) -> int:
    """Kills the sweep once so many runs are done; how many there are then."""
    process = subprocess.Popen(sweep(specs, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while finished(out) < after:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    reap()
    return finished(out)


def same(one: Path, other: Path) -> bool:
    folders = sorted(path.parent.relative_to(one) for path in one.glob("*/spec.yaml"))
    return all(
        (one / name / file).read_bytes() == (other / name / file).read_bytes() for name in folders for file in RESULTS
    )


def written(path: Path, values: dict[str, Any]) -> Path:
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def measured(place: Path, rates: Sequence[float], seeds: int, tries: int) -> dict[str, Any]:
    """All figures; runs are kept in the folder."""
    runs, cores = len(rates) * seeds, os.cpu_count() or 1
    grid = [written(place / "grid.yaml", {**BASE, "sweep": {"lr": list(rates), "seeds": seeds}})]
    pairs = [(lr, seed) for lr in rates for seed in range(seeds)]
    # Specs that differ only in their seeds would be one stack; a quorum that every round meets tells them apart.
    apart = [
        written(place / f"run-{n}.yaml", {**BASE, "seeds": [seed], "learner": {"lr": lr}, "quorum": (n + 1) / 1e6})
        for n, (lr, seed) in enumerate(pairs)
    ]
    tried = [single(place / "alone", *pairs[(len(pairs) * n) // tries]) for n in range(tries)]
    beside = [single(place / "beside", *pairs[(len(pairs) * n) // tries]) for n in range(tries)]
    figures: dict[str, Any] = {"runs": runs, "cores": cores, "single_runs_measured": tries}
    figures["single_one_at_a_time"] = scaled(timed(tried), runs / tries)
    figures["single_one_per_core"] = scaled(timed(beside, cores), runs / tries)
    figures["sweep_of_seeds_stacked"] = timed([sweep(grid, place / "stacked")])
    figures["sweep_of_single_seeds"] = timed([sweep(apart, place / "apart")])
    figures["done_when_killed"] = killed(grid, place / "killed", len(rates) // 3)
    figures["resumed"] = timed([sweep(grid, place / "killed")])
    figures["same_bits_when_resumed"] = same(place / "stacked", place / "killed")
    for kind in ("sweep_of_seeds_stacked", "sweep_of_single_seeds"):
        for how in ("single_one_at_a_time", "single_one_per_core"):
            factors = {key: figures[how][key] / figures[kind][key] for key in ("wall_s", "cpu_s")}
            figures[f"{kind}_against_{how}"] = factors
    return figures


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description="What a small run costs in a sweep, and by itself.",
        epilog="Example: python benchmarks/sweep.py --quick --json sweep.json",
    )
    parser.add_argument("--quick", action="store_true", help="8 runs instead of 200")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if sys.platform == "linux":  # Workers' parents may end before them.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rates, seeds, tries = (4, 2, 2) if options.quick else (20, 10, 10)
    place = Path(tempfile.mkdtemp(prefix="fedpareto-sweep-"))
    try:
        figures = measured(place, [round(0.02 * (n + 1), 2) for n in range(rates)], seeds, tries)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for name, value in figures.items():
        shown = ", ".join(f"{key} {one:.1f}" for key, one in value.items()) if isinstance(value, dict) else value
        print(f"{name.replace('_', ' ')}: {shown}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
