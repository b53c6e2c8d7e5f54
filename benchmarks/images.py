"""How fast are stacked convolutional clients? The same work, one client after the other and all at once, in one run.

    python benchmarks/images.py [--quick] [--device cuda] [--steps 1] [--json FILE]

FedFew's CNN on images of 3 x 32 x 32 in 10 classes, batches of 50, four steps of each client (`--steps`). "loop" trains
one client after the other through the same engine, "plain" is the usual loop of nn.Sequential and torch.optim.SGD,
"stacked" all clients at once. Before anything is timed, all of them end with the same numbers. The ceiling is what one
large product of matrices reaches on this device, in images a second: a training step of an image takes three times the
arithmetic of its forward pass. Times are the best of several tries, taken in turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engine import best_times, peak_bytes
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.contract.clients import Clients
from fedpareto.contract.federation import Federation
from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.images_text.networks import ImageNetwork, convolutional
from fedpareto.tensors.rows import Rows

SHAPE, CLASSES, BATCH, STEPS = (3, 32, 32), 10, 50, 4
LEARNER = Supervised(lr=0.005, batch_size=BATCH)
TOLERANCE = {"float32": 1e-4, "tf32": 5e-3, "bfloat16": 2e-2}
"""Tolerance between two implementations of the same work, in a parameter."""


@dataclass(frozen=True)
class Images(SupervisedProblem):
    """Noise images."""

    steps: int = STEPS
    """Minibatches that each client has rows for."""

    name = "benchmark"
    row_by_row = True
    network = ImageNetwork("cnn", SHAPE, CLASSES)
    layout = network.layout
    objectives = (Objective("accuracy", maximise=True, reference=0.0),)

    def initial(self, seed: int) -> Tensor:
        return self.network.initial(seed)

    def learner(self) -> Supervised:
        return LEARNER

    def data(self, clients: int, seed: int) -> dict[str, Rows]:
        stream = torch.Generator().manual_seed(seed)
        own = BATCH * self.steps
        pixels = torch.randint(0, 256, (clients * own, *SHAPE), generator=stream, dtype=torch.uint8)
        labels = torch.randint(0, CLASSES, (clients * own,), generator=stream)
        return {"train": Rows.end_to_end({"input": pixels, "label": labels}, [own] * clients)}

    def losses(self, parameters, batch):
        logits, labels = self.network(parameters, batch.columns["input"]), batch.columns["label"]
        each = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        return batch.mean(each).unsqueeze(-1)

    def evaluate(self, parameters, batch):
        return self.losses(parameters, batch)


def engine_for(problem: Images, clients: int, chunk: int, device: str, precision: str) -> LocalEngine:
    """An engine whose choices are given."""
    federation = Federation.create(problem, clients, 0, "dirichlet")
    setting = federation.setting(problem, rounds=10)
    options = LocalOptions(device=device, precision=precision)
    return LocalEngine(FedAvg(), problem, LEARNER, [federation], [setting], options, choices=Choices(1, chunk))


def plain_loop(problem: Images, engine: LocalEngine, device: str) -> Callable[[], list[Tensor]]:
    """The usual loop over clients, on the same minibatches."""
    work = engine._probe(len(engine.federations[0].ids))
    plan, rows = LEARNER.plan(work), work.splits["train"]
    start = engine.settings[0].initial
    network = convolutional("cnn", SHAPE, CLASSES).to(device)

    def train(client: int) -> Tensor:
        for name, value in problem.layout.unflatten(start).items():
            network.get_parameter(name).data.copy_(value)
        optimiser = torch.optim.SGD(network.parameters(), lr=LEARNER.lr)
        for index in plan.index[client]:
            pixels, labels = rows.columns["input"][index], rows.columns["label"][index]
            loss = nn.functional.cross_entropy(network(pixels.float().div_(127.5).sub_(1)), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return problem.layout.flatten({name: value.detach() for name, value in network.named_parameters()})

    return lambda: [train(client) for client in range(len(work))]


def stacked(engine: LocalEngine) -> Callable[[], list[Tensor]]:
    """The same work by an engine, on the minibatches of the probe's round."""
    work = engine._probe(len(engine.federations[0].ids))
    chunk = engine.chosen["chunk"]

    def train() -> list[Tensor]:
        models: list[Tensor] = []
        with engine.working():
            for first in range(0, len(work), chunk):
                clients = part_of(work, slice(first, first + chunk))
                start = engine.settings[0].initial.expand(len(clients), -1)
                models += LEARNER.train(clients, start, clients.preferences)
        return models

    return train


def part_of(clients: Clients, part: slice) -> Clients:
    """Some of them; what was recorded is shared."""
    return replace(
        clients,
        addresses=clients.addresses[part],
        positions=clients.positions[part],
        preferences=clients.preferences[part],
    )


def operations(problem: Images) -> float:
    """Floating-point operations of a training step of one image: three times the forward pass."""
    module, counted = problem.network.stacked.module, 0.0

    def count(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal counted
        if isinstance(layer, nn.Conv2d | nn.Linear):
            counted += 2 * layer.weight.numel() * (output[0, 0].numel() if isinstance(layer, nn.Conv2d) else 1)

    hooks = [layer.register_forward_hook(count) for layer in module.children()]
    module(torch.zeros(1, *SHAPE))
    for hook in hooks:
        hook.remove()
    return 3 * counted


def ceiling(device: str, precision: str, quick: bool) -> float:
    """Operations a second of one large product of matrices."""
    size = 512 if device == "cpu" else 8192
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, precision == "tf32"
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    torch.mm(a, b)
    seconds = best_times({"product": lambda: torch.mm(a, b)}, 1, 3 if quick else 10, device)["product"]
    torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * size**3 / seconds


def measure(clients: int, steps: int, device: str, precision: str, tries: int) -> dict[str, float]:
    """Seconds of every implementation of the same work, after checking that they give the same numbers."""
    problem = Images(steps)
    whole, single = (engine_for(problem, clients, chunk, device, precision) for chunk in (clients, 1))
    works = {"stacked": stacked(whole), "loop": stacked(single), "plain": plain_loop(problem, whole, device)}
    reference = torch.stack(works["plain"]())
    for name in ("stacked", "loop"):
        gap = float((torch.stack(works[name]()) - reference).abs().max())
        assert gap < TOLERANCE[precision], f"{name} and the plain loop differ by {gap}"
    return best_times(works, 1, tries, device)


def memory(budgets: list[str]) -> dict[str, float]:
    """Peak bytes of fresh processes that train 100 clients for a round, each with a budget; all end alike."""
    figures, sums = {}, []
    for budget in budgets:
        here = str(Path(__file__).parent)
        script = f"import sys; sys.path.insert(0, {here!r}); import images as i; i.one_round({budget!r})"
        result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        found = json.loads(result.stdout.splitlines()[-1])
        figures |= {f"peak_bytes_{budget}": found["peak"], f"chunk_{budget}": found["chunk"]}
        sums.append(found["models"])
        print(f"  budget {budget}: stacks of {found['chunk']}, at most {found['peak'] / 2**30:.2f} GB resident")
    gap = float(np.abs(np.array(sums) - sums[0]).max())
    print(f"  models of different budgets differ by at most {gap:.1e}")
    return figures | {"budgets_differ_by": gap}


def one_round(budget: str) -> None:
    """Trains 100 clients under a memory budget; prints the peak, the chunk and a few entries of every model."""
    problem = Images()
    federation = Federation.create(problem, 100, 0, "dirichlet")
    setting = federation.setting(problem, rounds=10)
    options = LocalOptions(memory=budget, threads=1, chunk=100)
    engine = LocalEngine(FedAvg(), problem, LEARNER, [federation], [setting], options)
    tasks = FedAvg().ask(FedAvg().begin(engine.settings[0]))
    models = engine.run(tasks).replies["model"][:, ::9973].tolist()
    print(json.dumps({"peak": peak_bytes(), "chunk": engine.chosen["chunk"], "models": models}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 clients only")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", default="float32,tf32,bfloat16", help="on a GPU: which, with commas")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each client")
    parser.add_argument("--memory", action="store_true", help="only: 100 clients with budgets of 4 GB and 1 GB")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory:
        print(f"100 clients with {Images.layout.size:,} parameters each, {STEPS} steps")
        memory(["4GB", "1GB"])
        return
    precisions = ["float32"] if options.device == "cpu" else options.precision.split(",")
    figures: dict[str, float] = {}
    per_image = operations(Images())
    print(f"torch {torch.__version__}, {options.device}; {per_image / 1e6:.0f} million operations an image and step")
    for precision in precisions:
        most = ceiling(options.device, precision, options.quick) / per_image
        print(f"{precision}: a large product of matrices would do {most:,.0f} images/s")
        for clients in [10] if options.quick else [10, 20, 100]:
            times = measure(clients, options.steps, options.device, precision, 3)
            images = clients * BATCH * options.steps / times["stacked"]
            figures |= {
                f"loop_over_stacked_{clients}_{precision}": times["loop"] / times["stacked"],
                f"plain_over_stacked_{clients}_{precision}": times["plain"] / times["stacked"],
                f"images_per_s_{clients}_{precision}": images,
                f"of_ceiling_{clients}_{precision}": images / most,
            }
            shown = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in times.items())
            print(
                f"  {clients:4} clients: {shown}; {times['plain'] / times['stacked']:.1f} times the plain loop, "
                f"{images:,.0f} images/s, {100 * images / most:.0f} % of the ceiling",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
