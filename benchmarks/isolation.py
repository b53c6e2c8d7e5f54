"""Whether clustering isolates attackers by itself: with whom they and honest clients end; docs/attacks.md.

`python benchmarks/isolation.py` runs FedPref and CFL on SYNTHETIC without a defence, under each of several attacks, and
prints in how many seeds every attacker ends in a cluster without an honest client, in which round that was so for the
first time, and how many clusters the honest clients are in.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedpareto.runs import runner
from fedpareto.runs.result import Result
from fedpareto.spec.draft import Draft

ATTACKS: dict[str, Any] = {
    "none": "none",
    "sign-flip": {"kind": "sign-flip"},
    "gaussian": {"kind": "gaussian"},
    "collusion": {"kind": "collusion", "strength": 5},
    "label-flip": {"kind": "label-flip"},
    "scaling": {"kind": "scaling", "strength": 30},
    "backdoor": {"kind": "backdoor", "strength": 3, "value": 10},
    "low-quality": {"kind": "low-quality"},
}


def told(result: Result, run: int) -> tuple[int | None, int]:
    """The first round after which no attacker shares a cluster with an honest client to the end, and the clusters that
    honest clients end in.
    """
    attackers = set(result.spec.attackers()[run])
    rows = [row for row in result.history if row["seed"] == result.spec.seeds[run] and "clusters" in row]
    mixed = [any(0 < len(attackers & set(one)) < len(one) for one in row["clusters"]) for row in rows]
    apart = len(mixed) - mixed[::-1].index(True) if True in mixed else 0
    honest = sum(bool(set(one) - attackers) for one in rows[-1]["clusters"])
    return (None if apart == len(mixed) or not attackers else apart + 1), honest


def rows(name: str, chosen: argparse.Namespace) -> Iterator[str]:
    """A line for each attack."""
    for title, attack in ATTACKS.items():
        values = {
            "algorithm": {"name": name, "threshold": chosen.threshold},
            "problem": {"name": "synthetic", "hidden": [16]},
            "clients": chosen.clients,
            "rounds": chosen.rounds,
            "seeds": chosen.seeds,
            "preferences": chosen.preferences,
            "learner": {"lr": 0.1, "batch_size": 64, "steps": 10},
            "evaluate_every": chosen.rounds,
            "engine": {"threads": 1, "chunk": chosen.clients * chosen.seeds},
            "attack": attack if attack == "none" else {**attack, "share": chosen.share},
        }
        result = runner.start(Draft(values).finish())
        found = [told(result, run) for run in range(chosen.seeds)]
        when = [round_ for round_, _ in found if round_ is not None]
        first = f"{np.median(when):.0f}" if when else "–"
        yield f"| {name} | {title} | {len(when)} of {chosen.seeds} | {first} | {np.mean([n for _, n in found]):.1f} |"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threshold", type=float, default=0.1)
    parser.add_argument("--preferences", default="groups:3,2@0.95,0.05;0.6,0.4")
    chosen = parser.parse_args()
    print("| algorithm | attack | attackers apart at the end | since round | clusters of honest clients |")
    print("|---|---|---|---|---|")
    for name in ("fedpref", "cfl"):
        for row in rows(name, chosen):
            print(row, flush=True)


if __name__ == "__main__":
    main()
