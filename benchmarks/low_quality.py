"""How well λ of FedMGDA+, α of FedFew and FedPref's similarity tell low-quality clients and free riders from others.

`python benchmarks/low_quality.py` prints, for label noise from 0 to 50 % and for free riders, the AUC of each beside
what a server can compute of any algorithm (contribution.py): the probability that a score is smaller for a dishonest
client than for an honest one. Without noise nobody is dishonest, and AUC is chance; docs/attacks.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from contribution import auc, scores

from fedpareto.experiments import runner
from fedpareto.experiments.draft import Draft
from fedpareto.experiments.result import Result
from fedpareto.trust.attacks import Attack

PROBLEMS: dict[str, dict[str, Any]] = {"synthetic": {"name": "synthetic", "rows": 8000}, "adult": {"name": "adult"}}
NOISES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
FREE_RIDERS = (0.0, 0.1, 1.0)
"""How long the noise of a free rider is, as a share of the update it does not compute."""


def weights(result: Result, run: int) -> np.ndarray:
    """The mean over rounds of the weight that the algorithm gives each client, `[n]`."""
    return np.mean([_told(result, row, "weights") for row in _rounds(result, run)], axis=0)


def similarity(result: Result, run: int) -> np.ndarray:
    """The mean over rounds and other clients of FedPref's similarity with each client, `[n]`."""
    mean = np.mean([_told(result, row, "similarity") for row in _rounds(result, run)], axis=0)
    others = (mean.sum(axis=1) - mean.diagonal()) / (len(mean) - 1)
    return np.asarray(others)


def _rounds(result: Result, run: int) -> list[dict[str, Any]]:
    """The rows of a seed's rounds; the last one only measures."""
    return [row for row in result.history if row["seed"] == result.spec.seeds[run]][:-1]


def _told(result: Result, row: dict[str, Any], name: str) -> np.ndarray:
    return np.asarray(result.columns.described(row, name), dtype=float)


SEEN: dict[str, tuple[dict[str, Any], str, Callable[[Result, int], np.ndarray]]] = {
    "share": ({"name": "fedavg"}, "none", lambda result, run: scores(result, run)["share"]),
    "cosine": ({"name": "fedavg"}, "none", lambda result, run: scores(result, run)["cosine"]),
    "confidence": ({"name": "fedavg"}, "confidence", lambda result, run: scores(result, run)["confidence"]),
    "λ of FedMGDA+": ({"name": "fedmgda-plus"}, "none", weights),
    "α of FedFew": ({"name": "fedfew"}, "none", weights),
    "FedPref's similarity": ({"name": "fedpref"}, "none", similarity),
}
"""By name: the algorithm and defence of the run in which a score is seen, and how."""


def row(problem: str, attack: Attack, is_real: bool, chosen: argparse.Namespace) -> list[list[float]]:
    """The AUC of each score, by seed."""
    found: list[list[float]] = []
    runs: dict[tuple[str, str], Result] = {}
    for algorithm, defence, score in SEEN.values():
        key = (algorithm["name"], defence)
        if key not in runs:
            values = {
                "algorithm": algorithm,
                "problem": PROBLEMS[problem] | ({"partition": chosen.partition} if chosen.partition else {}),
                "clients": chosen.clients,
                "rounds": chosen.rounds,
                "seeds": chosen.seeds,
                "preferences": chosen.preferences,
                "evaluate_every": chosen.rounds,
                "learner": {"steps": chosen.steps, "batch_size": 64},
                "engine": {"threads": 1, "chunk": chosen.clients * chosen.seeds},
                "measure_contribution": algorithm["name"] == "fedavg",
                "defence": defence,
            }
            told = {"kind": attack.kind, "share": attack.share, "strength": attack.strength} if is_real else "none"
            runs[key] = runner.start(Draft(values | {"attack": told}).finish())
        result = runs[key]
        everyone = np.arange(chosen.clients)
        dishonest = [np.isin(everyone, list(attack.attackers(everyone, seed))) for seed in result.spec.seeds]
        found.append([auc(score(result, run), who) for run, who in enumerate(dishonest)])
    return found


def rows(problem: str, chosen: argparse.Namespace) -> Iterator[str]:
    """A line for each kind of client."""
    for noise in chosen.noise:
        attack = Attack(kind="low-quality", share=chosen.share, strength=noise or None)
        yield _line(problem, f"{noise:.0%} false labels", row(problem, attack, noise > 0, chosen))
    for length in chosen.free_riders:
        attack = Attack(kind="free-rider", share=chosen.share, strength=length)
        yield _line(problem, f"free riders, s = {length:g}", row(problem, attack, True, chosen))


def _line(problem: str, name: str, found: list[list[float]]) -> str:
    told = " | ".join(f"{np.mean(of_seeds):.2f} ± {np.std(of_seeds):.2f}" for of_seeds in found)
    return f"| `{problem}` | {name} | {told} |"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problem", choices=list(PROBLEMS), action="append")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--noise", type=float, nargs="*", default=NOISES, help="shares of false labels")
    parser.add_argument("--free-riders", type=float, nargs="*", default=FREE_RIDERS, help="lengths of their noise")
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--preferences", default="1,0")
    parser.add_argument("--partition", help="of the rows to clients, such as dirichlet; else the problem's own")
    chosen = parser.parse_args()
    print(f"| problem | clients | {' | '.join(SEEN)} |")
    print(f"|{'---|' * (2 + len(SEEN))}")
    for problem in chosen.problem or PROBLEMS:
        for line in rows(problem, chosen):
            print(line, flush=True)


if __name__ == "__main__":
    main()
