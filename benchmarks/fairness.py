"""One cell of a fairness table, as one stack and as a loop over clients in plain PyTorch, side by side.

    FEDPARETO_DATA=... python benchmarks/fairness.py [--quick] [--json FILE]

The cell is FedAvg on Adult (accuracy and demographic parity of gender), ten clients, ten sets of random preferences:
ten federations, which the local engine trains as one stack of a hundred clients. The plain version is what one would
write without fedpareto: for each federation, round and client an nn.Sequential, torch.optim.Adam and the same two
losses. Both draw the same minibatches, so they end with the same models; that is checked first, in double precision.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.contract.federation import Federation
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.fairness.benchmarks import Adult
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Rows

CLIENTS = 10
PROBLEM = Adult(sensitive=("gender",))
LEARNER = Supervised(lr=0.001, optimiser="adam", batch_size=128, steps=50)
STEEPNESS, REGULARISATION = 1.5, 0.1


def stacked(federations: list[Federation], rounds: int, precision: str) -> LocalEngine:
    """An engine that holds all federations in one stack."""
    settings = [federation.setting(PROBLEM, rounds) for federation in federations]
    options = LocalOptions(precision=precision)  # type: ignore[arg-type]
    choices = Choices(threads=1, chunk=CLIENTS * len(federations))
    return LocalEngine(FedAvg(), PROBLEM, LEARNER, federations, settings, options, choices=choices)


def run_stacked(engine: LocalEngine, rounds: int) -> list[Tensor]:
    """The global model of each federation."""
    algorithm = FedAvg()
    states = [algorithm.begin(setting) for setting in engine.settings]
    for _ in range(rounds):
        outcomes = engine.run_all([algorithm.ask(state) for state in states], [None] * len(states))
        states = [algorithm.tell(state, outcome.replies) for state, outcome in zip(states, outcomes, strict=True)]
    return [state.model for state in states]


def run_plain(federation: Federation, rows: Rows, rounds: int) -> Tensor:
    """The same for one federation, as one would write it in plain PyTorch."""
    tables = [rows.of_client(client) for client in range(CLIENTS)]
    model = PROBLEM.initial(federation.seed).to(tables[0]["features"].dtype)
    for number in range(1, rounds + 1):
        trained = []
        for client, table in enumerate(tables):
            address = rng.Addresses.at(federation.seed, np.array([client]), number)
            preference = torch.as_tensor(federation.preferences[client], dtype=model.dtype)
            trained.append(train_plain(network_of(model), table, preference, address))
        sizes = torch.tensor([float(len(table["label"])) for table in tables], dtype=model.dtype)
        model = (sizes / sizes.sum()) @ torch.stack(trained)
    return model


def train_plain(network: nn.Sequential, table: dict[str, Tensor], preference: Tensor, address: rng.Addresses) -> Tensor:
    """One client's local training."""
    optimiser = torch.optim.Adam(network.parameters(), lr=LEARNER.lr)
    count, done = len(table["label"]), 0
    passes = -(-LEARNER.steps // -(-count // LEARNER.batch_size))
    for order in address.orders("batches", torch.tensor([count]), passes, count)[0]:
        for index in order.split(LEARNER.batch_size):
            if done == LEARNER.steps:
                break
            logits = network(table["features"][index]).squeeze(-1)
            label, group = table["label"][index], table["sensitive:gender"][index]
            entropy = binary_cross_entropy_with_logits(logits, label)
            decisions = torch.tanh(STEEPNESS * (2 * torch.sigmoid(logits) - 1).clamp_min(0))
            gap = (decisions[group == 0].mean() - decisions[group == 1].mean()).abs()
            loss = preference @ torch.stack([entropy, gap + REGULARISATION * entropy])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
    parts = [part.detach() for part in network.parameters()]
    return torch.cat([(part.T if part.ndim == 2 else part).reshape(-1) for part in parts])


def network_of(model: Tensor) -> nn.Sequential:
    """The flat model as layers of torch, whose weights are transposed."""
    own = PROBLEM.layout.unflatten(model)
    layers: list[nn.Module] = []
    for number in range(len(PROBLEM.hidden) + 1):
        weight, bias = own[f"{number}.weight"], own[f"{number}.bias"]
        linear = nn.Linear(*weight.shape, dtype=model.dtype)
        linear.weight.data, linear.bias.data = weight.T.clone(), bias.clone()
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def largest_difference(rounds: int) -> float:
    """Between the two implementations, for one federation in double precision."""
    federation = Federation.create(PROBLEM, CLIENTS, 0)
    rows = federation.splits["train"].to(torch.device("cpu"), torch.float64)
    first = run_stacked(stacked([federation], rounds, "float64"), rounds)[0]
    return float((first - run_plain(federation, rows, rounds)).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description="One cell of a fairness table: one stack against a plain loop.")
    parser.add_argument("--quick", action="store_true", help="3 sets of preferences instead of 10")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds, count = 2, 3 if options.quick else 10
    figures = {"largest_difference_float64": largest_difference(rounds)}
    print(f"largest difference of the models after {rounds} rounds: {figures['largest_difference_float64']:.1e}")
    assert figures["largest_difference_float64"] < 1e-8, "the two versions do not compute the same"
    federations = [Federation.create(PROBLEM, CLIENTS, seed) for seed in range(count)]
    engine, best = stacked(federations, rounds, "float32"), {"stacked": float("inf"), "plain": float("inf")}
    for _ in range(2):
        start = time.perf_counter()
        run_stacked(engine, rounds)
        middle = time.perf_counter()
        for federation in federations:
            run_plain(federation, federation.splits["train"], rounds)
        end = time.perf_counter()
        best = {"stacked": min(best["stacked"], middle - start), "plain": min(best["plain"], end - middle)}
    figures |= {f"{name}_seconds": seconds for name, seconds in best.items()}
    figures["stacked_over_plain_loop"] = best["plain"] / best["stacked"]
    print(
        f"{count} federations of {CLIENTS} clients, {rounds} rounds of {LEARNER.steps} steps, one thread: stacked "
        f"{best['stacked']:.2f} s, plain loop {best['plain']:.2f} s, {figures['stacked_over_plain_loop']:.1f} times"
    )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
