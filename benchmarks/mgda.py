"""The server step of FedMGDA+: its quadratic programme, and one aggregation of large models.

    python benchmarks/mgda.py [--participants 10 100 1000 3000] [--clients 100] [--parameters 1000000] [--json FILE]

The programme is solved on Gram matrices of normalised updates, of full rank (twice as many parameters as participants)
and of a tenth of it, with free weights (ε = 1) and with weights within half of λ0 (ε = 1/(2n)). The residual is the
Frank-Wolfe gap λᵀKλ − min Kλ', an upper bound on what is missing to the optimum, where K has a diagonal of ones.

Aggregation is all of `tell` but for the programme: the Gram matrix reads the updates once, the weighted sum a second
time. GB/s counts both reads; a plain copy of the same models counts its read and its write.

All in one thread. The best of a few tries counts, in seconds of that thread, which on an idle machine are those of the
clock.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg  # noqa: F401  (the threads of a library that is not loaded yet cannot be limited)
import torch
from threadpoolctl import threadpool_limits

from fedpareto.moo.box_simplex import BoxSimplex, box_min_norm_weights
from fedpareto.moo.updates import gram_of_updates, sum_of_updates

TRIES = 3
SLOW = 5.0
"""Seconds beyond which one try is enough."""


def seconds(work: Callable[[], Any]) -> float:
    taken = []
    for _ in range(TRIES):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
        if taken[-1] > SLOW:
            break
    return min(taken)


def normalised_gram(participants: int, rank: int) -> np.ndarray:
    """Of random directions with a common component, so that they do not cancel."""
    rows = np.random.default_rng(0).standard_normal((participants, rank)) + 0.5
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows @ rows.T)


def programme(participants: int, rank: int, epsilon: float) -> dict[str, float]:
    gram, centre = normalised_gram(participants, rank), np.full(participants, 1 / participants)
    weights = box_min_norm_weights(gram, centre, epsilon)
    return {
        "participants": participants,
        "rank": min(rank, participants),
        "epsilon": epsilon,
        "seconds": seconds(lambda: box_min_norm_weights(gram, centre, epsilon)),
        "residual": BoxSimplex.around(centre, epsilon).gap(weights, gram @ weights),
    }


def aggregation(clients: int, parameters: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    origin = torch.randn(parameters, generator=generator)
    models = [origin + 0.01 * torch.randn(parameters, generator=generator) for _ in range(clients)]
    target = [torch.empty_like(model) for model in models]
    coefficients = torch.full((clients,), 1 / clients, dtype=torch.float64)

    def copy() -> None:
        for destination, model in zip(target, models, strict=True):
            destination.copy_(model)

    gigabytes = clients * parameters * 4 / 1e9
    times = {
        "copy": seconds(copy),
        "gram": seconds(lambda: gram_of_updates(models, origin)),
        "sum": seconds(lambda: sum_of_updates(coefficients, models, origin)),
    }
    return {
        "clients": clients,
        "parameters": parameters,
        **{f"{name}_seconds": taken for name, taken in times.items()},
        "copy_gb_per_s": 2 * gigabytes / times["copy"],
        "gram_gb_per_s": gigabytes / times["gram"],
        "sum_gb_per_s": gigabytes / times["sum"],
        "aggregation_gb_per_s": 2 * gigabytes / (times["gram"] + times["sum"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--participants", type=int, nargs="*", default=[10, 100, 1000, 3000])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)
    results: dict[str, Any] = {"programmes": []}
    print(f"{'participants':>12} {'rank':>6} {'epsilon':>8} {'seconds':>9} {'residual':>9}")
    for participants in options.participants:
        for rank in (2 * participants, max(participants // 10, 2)):
            for epsilon in (1.0, 0.5 / participants):
                row = programme(participants, rank, epsilon)
                results["programmes"].append(row)
                print(
                    f"{participants:12} {row['rank']:6} {epsilon:8.2g} {row['seconds']:9.4f} {row['residual']:9.1e}",
                    flush=True,
                )
    if options.clients:
        results["aggregation"] = aggregation(options.clients, options.parameters)
        for name, value in results["aggregation"].items():
            print(f"{name:>22} {value:10.3f}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
