"""How well what a server sees tells selfish clients from honest ones: the AUC of each score; docs/attacks.md.

`python benchmarks/contribution.py` runs FedAvg with free riders (a tenth to all of an update's length as noise), with
clients that have false labels, and with clients that reply seldom, on SYNTHETIC and on Adult, whose data it needs. A
score's AUC is the probability that it ranks a dishonest client below an honest one; one half is chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedpareto.runs import runner
from fedpareto.runs.result import Result
from fedpareto.spec.draft import Draft
from fedpareto_papers.studies.low_quality import auc

SCORES = ("share", "cosine", "change", "gain", "participation", "confidence")
PROBLEMS: dict[str, dict[str, Any]] = {
    "synthetic": {"name": "synthetic", "rows": 8000, "server_rows": 500},
    "adult": {"name": "adult", "server_share": 0.02},
}
KINDS: dict[str, dict[str, Any]] = {
    "free-rider, noise 0.1": {"kind": "free-rider", "strength": 0.1},
    "free-rider, noise 1": {"kind": "free-rider", "strength": 1.0},
    "low-quality, 20 %": {"kind": "low-quality", "strength": 0.2},
    "low-quality, 50 %": {"kind": "low-quality", "strength": 0.5},
    "seldom, 1 of 5": {"kind": "seldom", "strength": 5},
}


def scores(result: Result, run: int) -> dict[str, np.ndarray]:
    """By name, of each client; all so that a larger one is better, as far as that can be said."""
    found = result.contributions()[run]
    seed = result.spec.seeds[run]
    last = [row for row in result.history if row["seed"] == seed and "confidence" in row]
    if last:
        found["confidence"] = np.asarray(last[-1]["confidence"])
    return found


def rows(problem: str, chosen: argparse.Namespace) -> Iterator[str]:
    """A line for each attack and share: the AUC of each score, mean over the seeds."""
    clients, rounds, seeds = chosen.clients, chosen.rounds, chosen.seeds
    partition = {"partition": chosen.partition} if chosen.partition else {}
    for name, attack in KINDS.items():
        for share in chosen.shares:
            values = {
                "algorithm": "fedavg",
                "problem": PROBLEMS[problem] | partition,
                "clients": clients,
                "rounds": rounds,
                "step": "fixed",
                "seeds": seeds,
                "preferences": "1,0",
                "evaluate_every": rounds,
                "learner": {"steps": chosen.steps, "batch_size": 64} if chosen.steps else {},
                "engine": {"threads": 1, "chunk": 20 * seeds},
                "measure_contribution": True,
                "attack": {**attack, "share": share},
            }
            plain, defended = (
                runner.start(Draft(values | {"defence": rule}).finish()) for rule in ("none", "confidence")
            )
            found: dict[str, list[float]] = {}
            for run, attackers in enumerate(plain.spec.attackers()):
                is_dishonest = np.isin(np.arange(clients), attackers)
                of_run = scores(plain, run) | {"confidence": scores(defended, run)["confidence"]}
                for score in SCORES:
                    found.setdefault(score, []).append(auc(of_run[score], is_dishonest))
            means = " | ".join(f"{np.mean(found[score]):.2f}" for score in SCORES)
            yield f"| {problem} | {name} | {share:.0%} | {means} |"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--problem", choices=list(PROBLEMS), action="append")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="of a client in a round; 0: the problem's own learner")
    parser.add_argument("--partition", help="of the rows to clients, such as dirichlet; else the problem's own")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1, 0.3])
    chosen = parser.parse_args()
    print(f"| problem | clients | share | {' | '.join(SCORES)} |")
    print(f"|{'---|' * (3 + len(SCORES))}")
    for problem in chosen.problem or PROBLEMS:
        for row in rows(problem, chosen):
            print(row, flush=True)


if __name__ == "__main__":
    main()
