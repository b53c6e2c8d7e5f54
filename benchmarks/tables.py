"""A user's own table: seconds and peak memory to read it, to prepare it for clients, and to train on it.

    python benchmarks/tables.py [--rows 100000 500000 2000000] [--values 0] [--clients 10] [--rounds 2]
        [--without-pyarrow] [--json FILE]

The table has 12 columns: five numbers, five texts with 2 to 40 values, a sensitive one and the label; a fiftieth of
one column of each kind is missing. Each size is read from a CSV in its own process; its peak is the largest memory
that the process ever held, with Python, torch and pandas in it (the row of 0 rows).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PIECE = 100_000
"""Rows that are made and written at a time."""
VALUES = {"job": 40, "region": 16, "contract": 5, "education": 8, "married": 2}
HEADER = ["age", "hours", "income", "tenure", "score", *VALUES, "gender", "hired"]


def write_table(path: Path, rows: int, most: int) -> None:
    """The same table for the same number of rows; texts have `most` values where that is not 0."""
    stream = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        print(*HEADER, sep=",", file=file)
        for start in range(0, rows, PIECE):
            count = min(PIECE, rows - start)
            numbers = [
                stream.integers(18, 70, count).astype(str),
                stream.normal(38, 6, count).round(1).astype(str),
                np.exp(stream.normal(10, 0.5, count)).round(2).astype(str),
                stream.integers(0, 30, count).astype(str),
                stream.normal(0, 1, count).round(6).astype(str),
            ]
            texts = [
                np.char.add(f"{name} ", stream.integers(0, most or values, count).astype(str))
                for name, values in VALUES.items()
            ]
            gender = stream.choice(["female", "male", "other"], count, p=[0.48, 0.48, 0.04])
            score = numbers[4].astype(float) + 0.5 * (gender == "male") + stream.normal(0, 1, count)
            for column in (numbers[3], texts[0]):
                column[stream.random(count) < 0.02] = ""
            columns = [*numbers, *texts, gender, np.where(score > 0.5, "yes", "no")]
            file.writelines(",".join(row) + "\n" for row in zip(*columns, strict=True))


def peak() -> float:
    """Peak memory of this process in GB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def measured(path: Path | None, clients: int, rounds: int) -> dict[str, float]:
    """Seconds and peak memory after each stage, in this process."""
    import fedpareto
    from fedpareto.problems.fairness.benchmarks import OwnTable

    found = {"imports GB": peak()}
    if path is None:
        return found
    problem = OwnTable(file=str(path), label="hired", sensitive=("gender",))

    def stage(name: str, start: float) -> None:
        found[f"{name} s"], found[f"{name} GB"] = time.perf_counter() - start, peak()

    start = time.perf_counter()
    inputs = problem.layout.size
    stage("read", start)
    start = time.perf_counter()
    splits = problem.data(clients, 0)
    stage("partition", start)
    del splits
    start = time.perf_counter()
    fedpareto.run(problem, "fedavg", clients=clients, rounds=rounds, step="fixed")
    stage("run", start)
    return found | {"parameters": inputs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[0, 100_000, 500_000, 2_000_000])
    parser.add_argument("--values", type=int, default=0, help="of each text column, instead of 2 to 40")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--without-pyarrow", action="store_true", help="as with core dependencies only")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.without_pyarrow:
        sys.modules["pyarrow"] = None  # type: ignore[assignment]  # What Python takes for a package that is not there.
    if given.measure is not None:
        path = given.measure if given.measure.name != "none" else None
        print(json.dumps(measured(path, given.clients, given.rounds)))
        return
    results = []
    for rows in given.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / ("people.csv" if rows else "none")
            if rows:
                write_table(path, rows, given.values)
            size = path.stat().st_size / 1e6 if rows else 0.0
            command = [sys.executable, __file__, "--measure", str(path)]
            command += ["--clients", str(given.clients), "--rounds", str(given.rounds)]
            command += ["--without-pyarrow"] if given.without_pyarrow else []
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = {"rows": rows, "MB": size, **json.loads(done.stdout)}
        results.append(found)
        print("  ".join(f"{name} {value:,.4g}" for name, value in found.items()), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
