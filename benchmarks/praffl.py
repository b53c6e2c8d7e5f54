"""PraFFL's hypernetworks, as one stack and as a loop over clients and preferences in plain PyTorch, side by side.

    python benchmarks/praffl.py [--quick] [--json FILE]

SYNTHETIC with the paper's three clients, 64 preferences a minibatch of 128 rows, body and hypernetwork as in the
paper's code. The plain version is what one would write from Algorithm 1 without fedpareto: for each client, minibatch
and preference the hypernetwork makes a head, the model predicts, the larger of L_i / λ_i is added up; one backward pass
and one step of torch.optim.Adam for a minibatch. Both draw the same minibatches and preferences, so they end with the
same hypernetworks and bodies; that is checked first, in double precision.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, linear, relu

from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.contract.federation import Federation
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout

Parts = dict[str, Tensor]

CLIENTS = 3
PROBLEM = Synthetic(partition="fedfb", sees_group=True, hidden=(4, 4, 4), regularisation=0.0)
LEARNER = Supervised(lr=0.005, optimiser="adam", batch_size=128)
STEEPNESS = 1.5


def run_stacked(algorithm: PraFFL, federation: Federation, precision: str) -> tuple[Tensor, dict[int, Tensor], float]:
    """The mean body and each client's hypernetwork after one round, and the seconds that it took."""
    setting = federation.setting(PROBLEM, 1)
    options = LocalOptions(precision=precision)  # type: ignore[arg-type]
    choices = Choices(threads=1, chunk=CLIENTS)
    engine = LocalEngine(algorithm, PROBLEM, LEARNER, [federation], [setting], options, choices=choices)
    state = algorithm.begin(engine.settings[0])
    start = time.perf_counter()
    body = algorithm.tell(state, engine.run(algorithm.ask(state)).replies).body
    seconds = time.perf_counter() - start
    kept = {client: engine.private[0, 0, client]["hypernetwork"] for client in range(CLIENTS)}
    return body, kept, seconds


def run_plain(algorithm: PraFFL, federation: Federation, dtype: torch.dtype) -> tuple[Tensor, dict[int, Tensor], float]:
    """The same, one client, one minibatch and one preference at a time."""
    setting = federation.setting(PROBLEM, 1)
    rows = federation.splits["train"].to(torch.device("cpu"), dtype)
    anatomy = algorithm.anatomy(PROBLEM.layout, 2)
    bodies, kept = [], {}
    start = time.perf_counter()
    for client in range(CLIENTS):
        table, address = rows.of_client(client), rng.Addresses.at(federation.seed, np.array([client]), round=1)
        body = parameters(setting.initial[: anatomy.body.size].to(dtype), anatomy.body)
        fresh = anatomy.hypernetwork.initial(federation.seed, "hypernetwork").to(dtype)
        hypernetwork = parameters(fresh, anatomy.hypernetwork.layout)
        train_body(algorithm, body, hypernetwork, table, address)
        train_hypernetwork(algorithm, body, hypernetwork, table, address)
        bodies.append(flat(body))
        kept[client] = flat(hypernetwork)
    return torch.stack(bodies).mean(0), kept, time.perf_counter() - start


def train_body(
    algorithm: PraFFL,
    body: Parts,
    hypernetwork: Parts,
    table: dict[str, Tensor],
    address: rng.Addresses,
) -> None:
    """Eq. 11."""
    optimiser = torch.optim.Adam(body.values(), lr=LEARNER.lr)
    even = torch.full((2,), 0.5, dtype=table["features"].dtype)
    head = {name: tensor.detach() for name, tensor in head_of(algorithm, hypernetwork, even).items()}
    for index in minibatches(table, address, "body", algorithm.body_epochs):
        logits = answer(body, head, table["features"][index])
        optimiser.zero_grad()
        binary_cross_entropy_with_logits(logits, table["label"][index]).backward()
        optimiser.step()


def train_hypernetwork(
    algorithm: PraFFL,
    body: Parts,
    hypernetwork: Parts,
    table: dict[str, Tensor],
    address: rng.Addresses,
) -> None:
    """Eq. 13."""
    optimiser = torch.optim.Adam(hypernetwork.values(), lr=LEARNER.lr)
    frozen = {name: tensor.detach() for name, tensor in body.items()}
    dtype = table["features"].dtype
    for number, index in enumerate(minibatches(table, address, "hypernetwork", algorithm.head_epochs)):
        loss = torch.zeros((), dtype=dtype)
        for tolerance in tolerances(algorithm, address, number, dtype):
            logits = answer(frozen, head_of(algorithm, hypernetwork, tolerance), table["features"][index])
            losses = losses_of(logits, table["label"][index], table["sensitive"][index])
            loss = loss + (losses / tolerance).max()
        optimiser.zero_grad()
        (loss / algorithm.sampled).backward()
        optimiser.step()


def losses_of(logits: Tensor, label: Tensor, group: Tensor) -> Tensor:
    """Cross entropy and the relaxed gap."""
    decisions = torch.tanh(STEEPNESS * (2 * torch.sigmoid(logits) - 1).clamp_min(0))
    gap = (decisions[group == 0].mean() - decisions[group == 1].mean()).abs()
    return torch.stack([binary_cross_entropy_with_logits(logits, label), gap])


def head_of(algorithm: PraFFL, hypernetwork: Parts, tolerance: Tensor) -> Parts:
    """φ = β(λ)."""
    values = tolerance
    last = len(algorithm.hypernetwork)
    for i in range(last + 1):
        values = linear(values, hypernetwork[f"{i}_weight"].T, hypernetwork[f"{i}_bias"])
        values = relu(values) if i < last - 1 else values
    head = algorithm.anatomy(PROBLEM.layout, 2).head
    return {name.replace(".", "_"): tensor for name, tensor in head.unflatten(values).items()}


def answer(body: Parts, head: Parts, features: Tensor) -> Tensor:
    """The logits of the whole model."""
    own, last = {**body, **head}, len(PROBLEM.hidden)
    for i in range(last + 1):
        features = linear(features, own[f"{i}_weight"].T, own[f"{i}_bias"])
        features = relu(features) if i < last else features
    return features.squeeze(-1)


def minibatches(table: dict[str, Tensor], address: rng.Addresses, purpose: str, epochs: int) -> list[Tensor]:
    """The rows of each minibatch, as the learner draws them."""
    count = len(table["label"])
    orders = address.orders(purpose, torch.tensor([count]), epochs, count)[0]
    return [index for order in orders for index in order.split(LEARNER.batch_size)]


def tolerances(algorithm: PraFFL, address: rng.Addresses, number: int, dtype: torch.dtype) -> Tensor:
    """λ^(1) … of a minibatch, as PraFFL draws them."""
    count = algorithm.sampled * 2
    points = address.exponential("hypernetwork preferences", count, number * count).view(-1, 2).to(dtype)
    return points / points.sum(-1, keepdim=True) * (1 - 2 * algorithm.margin) + algorithm.margin


def parameters(values: Tensor, layout: Layout) -> Parts:
    """A flat tensor as parameters of torch."""
    parts = layout.unflatten(values).items()
    return {name.replace(".", "_"): part.clone().requires_grad_() for name, part in parts}


def flat(parts: Parts) -> Tensor:
    """The inverse of `parameters`."""
    return torch.cat([part.detach().reshape(-1) for part in parts.values()])


def largest_difference(federation: Federation) -> float:
    """Between the two implementations, after one epoch each in double precision."""
    algorithm = PraFFL(body_epochs=1, head_epochs=1, balanced=False)
    body, kept, _ = run_stacked(algorithm, federation, "float64")
    plain_body, plain_kept, _ = run_plain(algorithm, federation, torch.float64)
    pairs = [(body, plain_body), *((kept[client], plain_kept[client]) for client in kept)]
    return max(float((ours - theirs).abs().max()) for ours, theirs in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="PraFFL: one stack of clients and preferences against a plain loop over both.",
        epilog="Example: python benchmarks/praffl.py --quick --json praffl.json",
    )
    parser.add_argument("--quick", action="store_true", help="one epoch of each kind instead of three")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    federation = Federation.create(PROBLEM, CLIENTS, 0)
    figures = {"largest_difference_float64": largest_difference(federation)}
    print(f"largest difference of bodies and hypernetworks: {figures['largest_difference_float64']:.1e}")
    assert figures["largest_difference_float64"] < 1e-8, "the two versions do not compute the same"
    epochs = 1 if options.quick else 3
    algorithm = PraFFL(body_epochs=epochs, head_epochs=2 * epochs, balanced=False)
    run_stacked(algorithm, federation, "float32")  # The first run warms up.
    stacked = min(run_stacked(algorithm, federation, "float32")[2] for _ in range(3))
    plain = min(run_plain(algorithm, federation, torch.float32)[2] for _ in range(1 if options.quick else 2))
    figures |= {"stacked_seconds": stacked, "plain_seconds": plain, "stacked_over_plain_loop": plain / stacked}
    print(
        f"{CLIENTS} clients, {algorithm.sampled} preferences, {epochs} + {2 * epochs} epochs, one thread: stacked "
        f"{stacked:.2f} s, plain loop {plain:.2f} s, {plain / stacked:.1f} times"
    )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
