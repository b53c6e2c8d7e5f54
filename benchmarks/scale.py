"""What does a round cost beside its arithmetic, and how does it grow with the clients?

    python benchmarks/scale.py [--device cuda] [--quick] [--json FILE]

The work is a round of FedAvg, ask + run + tell: every client runs one epoch in batches of 128 through an MLP 64-32 with
12 inputs; 1,000 rows a client, and 100 of the largest federation. `round_ms_N` is the best of several rounds;
`python_us_per_client` is how much longer a round takes for each further client whose step does nothing, from the second
largest federation to the largest: what is done around the client steps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from engine import LEARNER, Tabular
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Message
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions

SIZES = {50: 1000, 500: 1000, 5_000: 1000, 50_000: 100}
"""Clients, and rows of each."""
IDLE_ROWS = 1
"""Rows of each client where only what surrounds the arithmetic is looked at."""


class Idle(FedAvg):
    """FedAvg whose clients send back what they got: what is left is everything around the client step."""

    def train(self, clients: Any, message: Message) -> Message:
        return self._reply(clients, message["model"])


def rounds(algorithm: FedAvg, clients: int, rows: int, device: str) -> Callable[[], None]:
    """A function that runs the next round."""
    problem = Tabular(rows=rows)
    federation = Federation.create(problem, clients, 0, "uniform")
    setting = federation.setting(problem, rounds=10_000)
    chunk = clients if device == "cuda" else 64
    options, choices = LocalOptions(device=device), Choices(1, chunk)
    return rounds_of(LocalEngine(algorithm, problem, LEARNER, [federation], [setting], options, choices=choices))


def rounds_of(engine: Any) -> Callable[[], None]:
    """The same on any engine."""
    algorithm = engine.algorithm
    state = algorithm.begin(engine.settings[0])

    def one() -> None:
        nonlocal state
        with engine.threads():
            state = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)

    return one


def best(work: Callable[[], None], tries: int, device: str) -> float:
    """Seconds of the fastest try, after a few that warm up."""
    times = []
    for number in range(tries + 4):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        if number >= 4:
            times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description="What a round of FedAvg costs as the clients grow.",
        epilog="Example: python benchmarks/scale.py --quick --json scale.json",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--quick", action="store_true", help="up to 500 clients, and 5,000 without their work")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = {n: rows for n, rows in SIZES.items() if n <= (500 if options.quick else 50_000)}
    tries = 3 if options.quick or options.device == "cpu" else 20
    figures: dict[str, Any] = {"device": options.device}
    for clients, rows in sizes.items():
        seconds = best(rounds(FedAvg(), clients, rows, options.device), tries, options.device)
        figures[f"round_ms_{clients}"] = 1000 * seconds
        print(f"{clients:6,} clients of {rows:5,} rows: {1000 * seconds:9.2f} ms a round", flush=True)
    few, many = (500, 5_000) if options.quick else (5_000, 50_000)
    idle = {n: best(rounds(Idle(), n, IDLE_ROWS, options.device), 5 * tries, options.device) for n in (few, many)}
    figures["python_us_per_client"] = 1e6 * (idle[many] - idle[few]) / (many - few)
    print(f"around the client steps: {figures['python_us_per_client']:.3f} µs for each further client")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
