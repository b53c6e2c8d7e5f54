"""What does a round without a server cost beside training, and how does it grow with the clients? docs/fronts.md.

    python benchmarks/neighbours.py [--clients 1000 10000] [--tries 5]

All but what clients do themselves: the tasks, the bytes, and what everybody makes of its neighbours' replies, which are
drawn here. A model has the eight parameters of `convex`. "draw" is the first use of a graph, once in a run; "round" the
best of several. Both are CPU time on one core, whatever else runs on the machine.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import torch

from fedpareto.contract.algorithm import Algorithm, Setting, State
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.contract.registry import make_algorithm
from fedpareto.problems.convex import Convex

CASES: list[tuple[str, dict[str, Any]]] = [
    ("gossip-fedavg", {"graph": "ring"}),
    ("gossip-fedavg", {"graph": "random-regular"}),
    ("gossip-fedavg", {"graph": "small-world"}),
    ("gossip-fedpref", {"graph": "random-regular"}),
    ("dmoead", {"graph": "ring"}),
    ("dmoead", {"graph": "small-world"}),
    ("dsfl", {"graph": "torus"}),
]


def drawn(algorithm: Algorithm[Any], setting: Setting, step: str, seed: int) -> Replies:
    """What clients might reply."""
    stream = torch.Generator().manual_seed(seed)
    shapes = algorithm.reply_shapes(setting)[step]
    replies = {name: torch.rand((len(setting.clients), *of), generator=stream) + 0.5 for name, of in shapes.items()}
    if "choice" in replies:
        replies["choice"] = (4 * (replies["choice"] - 0.5)).floor()
    return Replies(setting.clients, replies, step=step)


def one_round(algorithm: Algorithm[Any], state: State) -> tuple[State, float]:
    """The state after a round, and CPU seconds without drawing replies."""
    before, seconds = state.round, 0.0
    while state.round == before:
        start = time.process_time()
        tasks = algorithm.ask(state)
        asked = time.process_time()
        replies = drawn(algorithm, state.setting, tasks[0].step, state.round)
        replied = time.process_time()
        algorithm.traffic(state.setting, tasks, replies)
        state = algorithm.tell(state, replies)
        seconds += time.process_time() - replied + asked - start
    return state, seconds


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--tries", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    problem = Convex()
    print("| clients | | draw | round | memory |\n|---|---|---|---|---|")
    for clients in given.clients:
        setting = Federation.create(problem, clients, 0, "uniform").setting(problem, rounds=1_000)
        for name, parameters in CASES:
            algorithm = make_algorithm(name, parameters)
            start = time.process_time()
            state, times = algorithm.begin(setting), []
            draw = time.process_time() - start
            for _ in range(given.tries):
                state, seconds = one_round(algorithm, state)
                times.append(seconds)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            told = f"{1e3 * draw:,.0f} ms | {1e3 * min(times):,.1f} ms | {memory:,.0f} MB"
            print(f"| {clients:,} | {name}, {parameters['graph']} | {told} |", flush=True)


if __name__ == "__main__":
    main()
