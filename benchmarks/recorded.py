"""Algorithms that minimise a loss of their own, on a GPU: recorded as CUDA graphs against the same without.

    python benchmarks/recorded.py [--json FILE] [--algorithms praffl fedrep]

A round of 20 clients on `synthetic` with an MLP 64-32, in turns, the best of several; both give the same models.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from fedpareto.contract.federation import Federation
from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.problems.synthetic import Synthetic

CLIENTS, TRIES = 20, 8
PARAMETERS: dict[str, dict[str, Any]] = {"praffl": {"body_epochs": 2, "head_epochs": 4}, "fedrep": {"head_epochs": 2}}
NAMES = ("praffl", "fedrep", "apfl", "fedfb", "fairfed", "agnosticfair", "lft-fedavg", "ditto", "fedavg")


class Run:
    """A run that goes on round by round."""

    def __init__(self, name: str, record: bool) -> None:
        problem = Synthetic(hidden=(64, 32), partition="dirichlet", alpha=50.0)
        self.algorithm = make_algorithm(name, PARAMETERS.get(name, {}))
        federation = Federation.create(problem, CLIENTS, 0, "dirichlet")
        setting = federation.setting(problem, rounds=1000)
        options, choices = LocalOptions(device="cuda", record=record), Choices(1, CLIENTS)
        self.engine = LocalEngine(
            self.algorithm, problem, problem.learner(), [federation], [setting], options, choices=choices
        )
        self.state = self.algorithm.begin(self.engine.settings[0])

    def round(self) -> float:
        """Seconds of the next round, all its exchanges."""
        start, before = time.perf_counter(), self.state.round
        while self.state.round == before:
            self.state = self.algorithm.tell(self.state, self.engine.run(self.algorithm.ask(self.state)).replies)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def models(self) -> torch.Tensor:
        """Of all clients."""
        return self.engine.models(0, self.algorithm.solutions(self.state)).rows


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description="Recorded rounds against the same without.",
        epilog="Example: python benchmarks/recorded.py --json recorded.json",
    )
    parser.add_argument("--algorithms", nargs="*", default=NAMES)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in options.algorithms:
        recorded, plain = Run(name, True), Run(name, False)
        times: dict[str, list[float]] = {"recorded": [], "plain": []}
        for number in range(TRIES + 4):
            for which, run in (("recorded", recorded), ("plain", plain)):
                seconds = run.round()
                if number >= 4:
                    times[which].append(seconds)
        gap = float((recorded.models() - plain.models()).abs().max())
        fast, slow = min(times["recorded"]), min(times["plain"])
        refused = recorded.engine.not_recorded
        figures[name] = {"recorded_ms": 1e3 * fast, "plain_ms": 1e3 * slow, "times": slow / fast, "gap": gap}
        figures[name]["not_recorded"] = refused
        print(
            f"{name:14s} {1e3 * fast:8.2f} ms, {1e3 * slow:8.2f} ms: {slow / fast:5.1f} times, gap {gap:.1e} {refused}"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
