"""Candidates of a tuning in one stack against one after the other.

    python benchmarks/tuning.py --candidates 20 --rounds 10

Both have the same candidates, with different step sizes; the last column is by how much their utilities differ at most
(products of larger stacks are rounded otherwise, and a row may then fall on the other side). CPU seconds of one thread,
without the start of Python; each way once before, on few rounds, so that nothing is done for the first time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch

from fedpareto.campaigns.tuning.trials import Ended, run_all
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec

JUDGED_BY = ("utility", "bytes")
CASES = {
    "convex, 8 parameters": {"problem": "convex", "learner": {"batch_size": 40}},
    "synthetic, 8 hidden": {"problem": {"name": "synthetic", "hidden": [8]}},
    "synthetic": {"problem": "synthetic"},
}


def candidates(case: str, count: int, clients: int, rounds: int, algorithm: str) -> list[Spec]:
    """Specs that differ in their step size."""
    rates = np.geomspace(0.01, 0.3, count).tolist()
    common = {"algorithm": algorithm, "clients": clients, "rounds": rounds, "evaluate_every": rounds}
    engine = {"engine": {"threads": 1, "chunk": 1024}}
    whole = [CASES[case] | common | engine | {"learner": {**_learner(case), "lr": rate}} for rate in rates]
    return [Draft(values).finish() for values in whole]


def _learner(case: str) -> dict[str, object]:
    found = CASES[case].get("learner", {})
    assert isinstance(found, dict)
    return found


def timed(stacks: Sequence[Sequence[Spec]]) -> tuple[float, list[Ended]]:
    """CPU seconds, and what came of all candidates."""
    begun = time.process_time()
    ended = [one for specs in stacks for one in run_all(specs, JUDGED_BY)]
    return time.process_time() - begun, ended


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--algorithm", default="fedavg")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| network | one by one, s | one stack, s | times faster | largest difference |\n|---|---|---|---|---|")
    for case in CASES:
        few = candidates(case, 2, given.clients, 1, given.algorithm)
        timed([few, few[:1]])
        specs = candidates(case, given.candidates, given.clients, given.rounds, given.algorithm)
        alone, single = timed([[spec] for spec in specs])
        stacked, together = timed([specs])
        pairs = zip(single, together, strict=True)
        apart = max(abs(one.values["utility"] - other.values["utility"]) for one, other in pairs)
        print(f"| {case} | {alone:.2f} | {stacked:.2f} | {alone / stacked:.1f} | {apart:.1g} |", flush=True)


if __name__ == "__main__":
    main()
