"""An algorithm of our own against all that could be taken instead, on tables that it was not designed on.

    python benchmarks/own_algorithm.py [--ours span] [--against NAME ...] [--problems adult compas] [--seeds 5]
        [--rounds 5] [--clients 10] [--rows 100] [--hidden 16 8] [--epochs 10 20] [--jobs 1] [--json FILE]

Measured as by safe.py, whose options these are: own preference and hypervolume on test rows, the same for all clients;
and on those rows of a table that no client has, which are many more ("unseen").
Differences are between runs with the same seed; an interval is Student's, at 95 %. Each cell of problem, rows and
algorithm is a process's task, `--jobs` at a time. With --json, what is already in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas
import safe
import torch
from safe import Found, key, told
from span import Span

from fedpareto.moo.intervals import interval
from fedpareto.problems.data import data_folder
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.runs.result import Result

DESIGN = ("adult", "compas")
"""The only problems that were looked at while an algorithm was made."""
HELD_OUT = ("bank", "credit-default", "law-school", "law-school-20798", "communities")
RIVALS = (
    *("local", "fedavg", "fedavg+ft", "fedavg+safe", "fedpref", "fedpref+ft", "fedpref+safe"),
    *("ditto", "fedrep", "fedper", "praffl", "praffl+safe"),
)
MEASURES = {
    "test": "own preference, test",
    "unseen": "own preference, unseen",
    "hypervolume": "hypervolume, test",
    "unseen hypervolume": "hypervolume, unseen",
}
"""What is compared, and its name. A hypervolume of ten models on a few rows is in part their luck: the best of several
guesses. On the many rows of a table that no client holds there is hardly any.
"""
COMMUNITIES = 1_994
"""Rows of UCI Communities and Crime."""
NAMED, LABEL, BLACK = 5, 127, 7
"""Its columns: the first say where a community is, the last is its rate of violent crime, one the share of black
inhabitants.
"""
CRIME = 0.7
"""The quantile above which crime counts as high, as in the papers that make a decision of it."""


def write_communities(path: Path) -> None:
    """Is crime in a community high? Fair to those with more black inhabitants than the median.

    Columns with gaps are left out.
    """
    table = pandas.read_csv(data_folder() / "communities" / "communities.data.gz", header=None, na_values="?")
    table = table.iloc[:, NAMED:].dropna(axis=1)
    crime, black = table.pop(LABEL), table.pop(BLACK)
    table = table.add_prefix("c")
    table["black"] = np.where(black > black.median(), "more", "fewer")
    table["crime"] = np.where(crime > crime.quantile(CRIME), "high", "low")
    table.to_csv(path, index=False)


@cache
def communities(path: Path, rows: int, hidden: tuple[int, ...]) -> OwnTable:
    """The problem on the table that was written, of which clients have so many rows together."""
    return OwnTable(
        file=str(path),
        label="crime",
        positive="high",
        sensitive=("black",),
        server_share=1 - min(rows / COMMUNITIES, 1.0),
        unmeasured="worst",
        hidden=hidden,
    )


def cell(problem: str, rows: int, algorithm: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """What safe.py measures, and the same on the rows of the table that no client has; in a process of its own."""
    torch.set_num_threads(1)
    held, hidden = rows * given.clients, tuple(given.hidden)
    table: Any = (
        communities(given.communities, held, hidden)
        if problem == "communities"
        else safe.problem_of(problem, held, hidden)
    )
    result = safe.trained(table, Span() if algorithm == "span" else safe.made(algorithm, given), given)
    return [one | unseen(result, seed) for seed, one in enumerate(safe.measured(result))]


def unseen(result: Result, number: int) -> dict[str, Any]:
    """Of one seed, every client's worth and the hypervolume on the rest of the table."""
    solutions, seed = result.solutions[number], result.spec.seeds[number]
    judge = result.spec.problem.judge(len(solutions.clients), seed)
    if judge is None:
        return {}
    models = torch.stack([result.models[number][client] for client in solutions.clients])
    there = replace(solutions, values={"test": judge(models)[:, 0].double().cpu().numpy()})
    own = there.own_utilities()
    return {"unseen": None if own is None else own.tolist(), "unseen hypervolume": there.hypervolume()}


def complete(found: Found, given: argparse.Namespace) -> None:
    """Runs the cells that are missing, and keeps each as soon as it is there."""
    cells = product([given.ours, *given.against], given.problems, given.rows)
    missing = [one for name, *where in cells if key(*(one := (*where, name))) not in found]
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        running = {pool.submit(cell, *one, given): key(*one) for one in missing}
        for done in as_completed(running):
            found[running[done]] = done.result()
            print(running[done], file=sys.stderr)
            if given.json:
                given.json.write_text(json.dumps(found), encoding="utf-8")


def by_seed(cells: list[dict[str, Any]], measure: str) -> np.ndarray:
    """`[seeds]`; of clients' values the mean."""
    return np.array([np.mean(one[measure]) for one in cells])


def values(found: Found, given: argparse.Namespace) -> str:
    """Means and deviations over seeds, in Markdown."""
    lines = [f"| problem, rows a client | algorithm | {' | '.join(MEASURES.values())} |", "|---|---" * 3 + "|"]
    for problem, rows, name in product(given.problems, given.rows, [given.ours, *given.against]):
        cells = [told(by_seed(found[key(problem, rows, name)], measure)) for measure in MEASURES]
        lines.append(f"| {problem}, {rows} | `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def differences(found: Found, given: argparse.Namespace) -> str:
    """What ours has over each other: the mean over problems, and on how many problems it is above and below."""
    lines = [f"| rows a client | against | {' | '.join(MEASURES.values())} |", "|---|---" * 3 + "|"]
    for rows, name in product(given.rows, given.against):
        pairs = [(found[key(one, rows, given.ours)], found[key(one, rows, name)]) for one in given.problems]
        cells = [compared(pairs, measure) for measure in MEASURES]
        lines.append(f"| {rows} | `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def compared(pairs: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]], measure: str) -> str:
    """Of paired differences: their mean, and "above (of these certain) : below (of these certain)"."""
    over = [interval(by_seed(ours, measure) - by_seed(theirs, measure)) for ours, theirs in pairs]
    known = [one for one in over if one is not None]
    sides = [[one.excludes_zero for one in known if sign * one.mean > 0] for sign in (1, -1)]
    above, below = (f"{len(side)} ({sum(side)})" for side in sides)
    return f"{np.mean([one.mean for one in known]):+.3f}, {above} : {below}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default="span", help="the candidate in span.py, or any algorithm")
    parser.add_argument("--against", nargs="+", default=list(RIVALS))
    parser.add_argument("--problems", nargs="+", default=list(HELD_OUT), choices=(*DESIGN, *HELD_OUT))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="+", default=[100])
    parser.add_argument("--hidden", type=int, nargs="+", default=[16, 8], help="widths of the networks")
    parser.add_argument("--epochs", type=int, nargs=2, default=[10, 20], help="PraFFL's τ_c and τ_p")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: Found = json.loads(given.json.read_text("utf-8")) if given.json and given.json.exists() else {}
    with TemporaryDirectory() as folder:
        given.communities = Path(folder) / "communities.csv"
        if "communities" in given.problems:
            write_communities(given.communities)
        complete(found, given)
    print(differences(found, given), values(found, given), sep="\n\n")


if __name__ == "__main__":
    main()
