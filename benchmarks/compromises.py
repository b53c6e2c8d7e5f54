"""FedMGDA+, FCFL and FedMC+ side by side: who improves, whether magnitudes count, whether an outlier is sacrificed.

`python benchmarks/compromises.py` prints a table for docs/algorithms.md. Clients are quadratic (`convex`), so
everyone's optimum is known: nine want nearly the same, the tenth the opposite.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from fedpareto.runs import runner
from fedpareto.runs.result import Result
from fedpareto.spec.draft import Draft

OUTLIER = 9
"""The last of ten clients."""
ALGORITHMS: dict[str, dict[str, Any]] = {
    "`fedavg`, equal weights": {"name": "fedavg", "weighting": "equal"},
    "`fedmgda-plus`, ε = 0.1": {"name": "fedmgda-plus", "server_lr": 0.3},
    "`fedmgda-plus`, ε = 1": {"name": "fedmgda-plus", "server_lr": 0.3, "epsilon": 1.0},
    "`fcfl`": {"name": "fcfl"},
    "`fcfl`, second stage only": {"name": "fcfl", "first_stage": 0.0},
    "`fedmc-plus`, c = 0.5": {"name": "fedmc-plus"},
    "`fedmc-plus`, c = 0.9": {"name": "fedmc-plus", "c": 0.9},
    "`adafedadam`": {"name": "adafedadam", "weighting": "equal"},
    "`fedmdfg`": {"name": "fedmdfg"},
}
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "the outlier's loss × 10": {"attack": {"kind": "scaling", "strength": 10.0, "clients": [OUTLIER]}},
}


def run(algorithm: dict[str, Any], case: dict[str, Any], chosen: argparse.Namespace) -> Result:
    """One algorithm in one case, all seeds."""
    values = {
        "algorithm": algorithm,
        "problem": {"name": "convex", "heterogeneity": chosen.heterogeneity},
        "preferences": "groups:9,1@0.9,0.1;0,1",
        "clients": OUTLIER + 1,
        "rounds": chosen.rounds,
        "seeds": chosen.seeds,
        "learner": {"epochs": 1, "lr": 0.05, "batch_size": 1000},
        "engine": {"threads": 1, "chunk": 10 * chosen.seeds},
        "measure_losses": True,
    }
    return runner.start(Draft(values | case).finish())


def excess(result: Result) -> np.ndarray:
    """How far each client's own loss is above its least possible one at the end, `[seeds, n]`."""
    found = []
    for solutions in result.solutions:
        preferences = np.asarray(solutions.preferences)
        least = 0.5 * ((preferences[:, None] - np.eye(preferences.shape[1])) ** 2).sum(-1)
        found.append((preferences * (solutions.values[solutions.held_out] - least)).sum(1))
    return np.array(found)


def line(name: str, result: Result) -> str:
    """Of a table: rounds in which nobody's loss rose, clients that improved, and what they have."""
    shares = [list(of_seed.values()) for of_seed in result.share_improved()]
    nobody_lost = [np.mean(np.array(of_seed) == 1) for of_seed in shares]
    left = excess(result)
    columns = ([np.mean(one) for one in shares], nobody_lost, left[:, :OUTLIER].mean(1), left[:, OUTLIER], left.mean(1))
    return f"| {name} | " + " | ".join(f"{np.mean(one):.3f} ± {np.std(one):.3f}" for one in columns) + " |"


def main() -> None:
    """Prints a table for each case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--heterogeneity", type=float, default=0.1)
    chosen = parser.parse_args()
    for title, case in CASES.items():
        print(f"\n{title}\n")
        print("| | clients improved | rounds without a loser | excess loss of the nine | of the outlier | mean |")
        print("|---|---|---|---|---|---|")
        for name, algorithm in ALGORITHMS.items():
            print(line(name, run(algorithm, case, chosen)), flush=True)


if __name__ == "__main__":
    main()
