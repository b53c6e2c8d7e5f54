"""Does it pay for me? Who is worse off in a federation than alone, with and without +safe, on six fairness problems.

    python benchmarks/safe.py [--seeds 5] [--rounds 10] [--clients 10] [--rows 100 300] [--problems adult bank]
        [--hidden 64 32] [--epochs 10 20] [--json FILE] [--figure FILE]

Each client has so many rows in all, of which 60 % are for training, 20 % for validation and 20 % for the test; all
models are tested on the same rows, those of all clients. The other rows of a table are not used. "Worse" is the
share of clients that have less than in the run of `local` with the same seed: by more than rounding, under their own
preference. Deviations are over seeds. With --json, what is already in the file is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedpareto
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.registry import make_algorithm, problem_class
from fedpareto.moo.indicators import own_utilities
from fedpareto.runs.result import Result

PROBLEMS = ("adult", "bank", "compas", "credit-default", "law-school", "law-school-20798")
ALGORITHMS = ("local", "fedpref", "fedpref+ft", "fedpref+safe", "praffl", "praffl+safe")
TABLE_ROWS = {
    **{"adult": 45_222, "bank": 45_211, "compas": 6_172, "credit-default": 30_000},
    **{"law-school": 22_407, "law-school-20798": 20_798},
}
ROUNDING = 1e-6
SPLITS = ("validation", "test")
Found = dict[str, list[dict[str, Any]]]


def key(problem: str, rows: int, algorithm: str) -> str:
    return f"{problem}, {rows} rows, {algorithm}"


@cache
def problem_of(name: str, rows: int, hidden: tuple[int, ...]) -> Any:
    """A problem of which clients have so many rows together; it is read once."""
    cls: Any = problem_class(name)
    return cls(server_share=1 - min(rows / TABLE_ROWS[name], 1.0), unmeasured="worst", hidden=hidden)


def run(problem: str, rows: int, algorithm: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """A cell of the tables."""
    table = problem_of(problem, rows * given.clients, tuple(given.hidden))
    return measured(trained(table, made(algorithm, given), given))


def made(name: str, given: argparse.Namespace) -> Algorithm[Any]:
    """An algorithm with its own parameters, but for PraFFL's epochs, and as many preferences as in its paper."""
    body, head = given.epochs
    return make_algorithm(name, {"body_epochs": body, "head_epochs": head, "sampled": 64} if "praffl" in name else {})


def trained(problem: Any, algorithm: Algorithm[Any], given: argparse.Namespace) -> Result:
    """All seeds in one stack."""
    return fedpareto.run(
        problem,
        algorithm,
        clients=given.clients,
        rounds=given.rounds,
        step="fixed",
        seeds=given.seeds,
        preferences="equidistant",
        evaluate_every=given.rounds,
        engine={"threads": 1, "chunk": given.clients * given.seeds},
    )


def measured(result: Result) -> list[dict[str, Any]]:
    """By seed the hypervolume, and every client's worth on validation and on test rows."""
    found = []
    for seed, one in enumerate(result.solutions):
        worth = {split: own_utilities(one.values[split], one.preferences, one.maximise).tolist() for split in SPLITS}
        mine = [row for row in result.history if row["seed"] == result.spec.seeds[seed]]
        traffic = {way: sum(row.get(way, 0) for row in mine) for way in ("bytes_down", "bytes_up")}
        found.append(worth | traffic | {"hypervolume": one.hypervolume()})
    return found


def worse(mine: list[dict[str, Any]], alone: list[dict[str, Any]], split: str) -> np.ndarray:
    """The share of clients that have less than alone, by seed."""
    pairs = zip(mine, alone, strict=True)
    return np.array([(np.array(a[split]) < np.array(b[split]) - ROUNDING).mean() for a, b in pairs])


def better(mine: list[dict[str, Any]], alone: list[dict[str, Any]]) -> np.ndarray:
    """The share of clients that have more than alone on test rows, by seed."""
    return worse(alone, mine, "test")


def mean_of(found: list[dict[str, Any]], name: str) -> float:
    """Over clients and seeds."""
    return float(np.mean([one[name] for one in found]))


def told(values: np.ndarray | list[float], percent: bool = False) -> str:
    array = np.array(values) * (100 if percent else 1)
    digits = 0 if percent else 3
    return f"{array.mean():.{digits}f} ± {array.std(ddof=1) if len(array) > 1 else 0:.{digits}f}"


def table(found: Found, problems: list[str], rows: list[int]) -> str:
    """Means over the seeds, in Markdown."""
    lines = [
        "| problem, rows a client | algorithm | worse than alone: validation, % | test, % | better: test, % "
        "| own preference, test | hypervolume | MB down, up |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for problem in problems:
        for count in rows:
            alone = found[key(problem, count, "local")]
            for algorithm in ALGORITHMS:
                mine = found[key(problem, count, algorithm)]
                cells = [
                    *(told(worse(mine, alone, split), percent=True) for split in SPLITS),
                    told(better(mine, alone), percent=True),
                    told([float(np.mean(one["test"])) for one in mine]),
                    told([one["hypervolume"] for one in mine]),
                    ", ".join(f"{mine[0][way] / 1e6:.1f}" for way in ("bytes_down", "bytes_up")),
                ]
                lines.append(f"| {problem}, {count} | `{algorithm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(found: Found, problems: list[str], rows: list[int]) -> str:
    """The same over all problems: means, and on how many problems the mean is above that of `local`."""
    lines = [
        "| rows a client | algorithm | worse than alone: validation, % | test, % | better: test, % "
        "| own preference against local | hypervolume against local |",
        "|---|---|---|---|---|---|---|",
    ]
    for count in rows:
        for algorithm in ALGORITHMS[1:]:
            pairs = [(found[key(one, count, algorithm)], found[key(one, count, "local")]) for one in problems]
            own = [mean_of(mine, "test") - mean_of(alone, "test") for mine, alone in pairs]
            volume = [mean_of(mine, "hypervolume") - mean_of(alone, "hypervolume") for mine, alone in pairs]
            cells = [
                *(f"{100 * np.mean([worse(*pair, split).mean() for pair in pairs]):.0f}" for split in SPLITS),
                f"{100 * np.mean([better(*pair).mean() for pair in pairs]):.0f}",
                *(f"{np.mean(x):+.3f}, above on {np.sum(np.array(x) > 0)} of {len(x)}" for x in (own, volume)),
            ]
            lines.append(f"| {count} | `{algorithm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(found: Found, problems: list[str], rows: list[int], path: Path) -> None:
    """What each client has over training alone, on test rows, from the least to the most; all problems and seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, count in zip(figure.subplots(1, len(rows), sharey=True, squeeze=False)[0], rows, strict=True):
        for algorithm in ALGORITHMS[1:]:
            gains = np.sort(
                [
                    np.array(a["test"]) - np.array(b["test"])
                    for one in problems
                    for a, b in zip(found[key(one, count, algorithm)], found[key(one, count, "local")], strict=True)
                ],
                axis=None,
            )
            axes.plot(np.linspace(0, 100, len(gains)), gains, label=algorithm, ls="-" if "+safe" in algorithm else "--")
        axes.axhline(0, color="black", lw=0.8)
        axes.set_title(f"{count} rows a client")
        axes.set_xlabel("% of clients, by what they gain")
        axes.legend(fontsize=8)
    figure.axes[0].set_ylabel("own preference, over training alone")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=PROBLEMS)
    parser.add_argument("--hidden", type=int, nargs="+", default=[64, 32], help="widths of the networks")
    parser.add_argument("--epochs", type=int, nargs=2, default=[10, 20], help="PraFFL's τ_c and τ_p")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: Found = json.loads(given.json.read_text("utf-8")) if given.json and given.json.exists() else {}
    for rows, problem, algorithm in product(given.rows, given.problems, ALGORITHMS):
        name = key(problem, rows, algorithm)
        if name in found:
            continue
        found[name] = run(problem, rows, algorithm, given)
        print(name, file=sys.stderr)
        if given.json:
            given.json.write_text(json.dumps(found), encoding="utf-8")
    print(summary(found, given.problems, given.rows), table(found, given.problems, given.rows), sep="\n\n")
    if given.figure:
        picture(found, given.problems, given.rows, given.figure)


if __name__ == "__main__":
    main()
