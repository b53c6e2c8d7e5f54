"""What does a secure sum cost beside plain FedAvg, in bytes and in seconds, and how does it grow with the clients?

    python benchmarks/secure_sum.py [--clients 10 100 1000] [--hidden 2500] [--gone 0 0.1] [--rounds 1] [--json F]

A round of FedAvg with equal weights among clients that train nothing: what is left is the protocol. Seconds are CPU
time of one thread; of what clients do, those of one client, which in a federation works on a machine of its own. `gone`
is the share of clients that drop out just before they send what they trained, the most expensive moment: their masks
have to be recovered. Bytes are those of tensors in messages, as every run counts them.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.wrappers.secured import Secured
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.clients import Clients
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Message, Replies, Tasks, traffic
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.problems.synthetic import Synthetic

ROWS = 20
"""Of each client; nobody trains on them."""
CHUNK = 50
"""Clients in a stack: their masks are made one by one in any case."""


@dataclass(frozen=True)
class Idle(FedAvg):
    """FedAvg whose clients send back the model that they got."""

    def train(self, clients: Clients, message: Message) -> Message:
        """Nothing is trained."""
        return self._reply(clients, message["model"])


@dataclass
class Cost:
    """Of a round, the mean over clients and rounds."""

    clients: int
    kind: str
    gone: float
    neighbours: int
    up: float
    """Bytes from a client …"""
    down: float
    """… and to it."""
    client_seconds: float
    """CPU seconds of a client's own work …"""
    server_seconds: float
    """… and of the server's."""


class Measured:
    """One federation, round after round."""

    def __init__(self, algorithm: Algorithm[Any], clients: int, hidden: int, gone: float) -> None:
        problem = Synthetic(hidden=(hidden,), rows=ROWS * clients)
        federation = Federation.create(problem, clients, 0, "uniform")
        setting = federation.setting(problem, rounds=10_000)
        options, choices = LocalOptions(), Choices(1, CHUNK)
        learner = problem.learner()
        self.engine = LocalEngine(algorithm, problem, learner, [federation], [setting], options, choices=choices)
        self.algorithm, self.state = algorithm, algorithm.begin(self.engine.settings[0])
        self.lost = np.arange(clients)[: round(gone * clients)]
        self.bytes, self.at_clients, self.at_server = np.zeros(2), 0.0, 0.0

    def round(self) -> None:
        """All exchanges of one."""
        before = self.state.round
        while self.state.round == before:
            begun = time.process_time()
            tasks = self.algorithm.ask(self.state)
            asked = time.process_time()
            replies = self._replies(tasks)
            worked = time.process_time()
            self.state = self.algorithm.tell(self.state, replies)
            self.at_server += asked - begun + time.process_time() - worked
            self.at_clients += worked - asked
            cost = traffic(tasks, replies)
            self.bytes += [cost.up.sum(), cost.down.sum()]

    def _replies(self, tasks: list[Tasks]) -> Replies:
        with self.engine.threads():
            replies = self.engine.run(tasks).replies
        if replies.step != "train" or not len(self.lost):
            return replies
        return replies.only(np.flatnonzero(~np.isin(replies.clients, self.lost)))


def cost(kind: str, clients: int, hidden: int, gone: float, rounds: int) -> Cost:
    """Of one federation."""
    secure_sum = SecureSum("masked")
    plain = Idle(weighting="equal")
    measured = Measured(Secured(plain, secure_sum) if kind == "secure" else plain, clients, hidden, gone)
    for _ in range(rounds):
        measured.round()
    up, down = (measured.bytes / clients / rounds).tolist()
    neighbours = secure_sum.most_neighbours(clients) if kind == "secure" else 0
    seconds = measured.at_clients / clients / rounds, measured.at_server / rounds
    return Cost(clients, kind, gone, neighbours, up, down, *seconds)


def table(costs: list[Cost]) -> str:
    """For the documents."""
    lines = [
        "| clients | sum | gone | neighbours | KB up | KB down | ms of a client | s of the server |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in costs:
        lines.append(
            f"| {one.clients:,} | {one.kind} | {one.gone:.0%} | {one.neighbours or ''} | {one.up / 1000:.1f} | "
            f"{one.down / 1000:.1f} | {1000 * one.client_seconds:.2f} | {one.server_seconds:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Prints the table, and writes the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--hidden", type=int, default=2500)
    parser.add_argument("--gone", type=float, nargs="+", default=[0.0, 0.1])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    costs = []
    for clients in options.clients:
        costs.append(cost("plain", clients, options.hidden, 0.0, options.rounds))
        costs += [cost("secure", clients, options.hidden, gone, options.rounds) for gone in options.gone]
    print(f"{Synthetic(hidden=(options.hidden,)).layout.size:,} parameters\n\n{table(costs)}")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in costs], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
