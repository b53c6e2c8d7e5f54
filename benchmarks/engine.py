"""How fast is the stacked local engine? Everything is measured side by side in one run.

    python benchmarks/engine.py [--quick] [--json FILE] [--device cuda]

The work is one round of local training: every client runs one epoch of 1,000 rows in batches of 128 through an MLP
64-32 with 12 inputs. "loop" trains one client after the other through the same engine (chunks of one), "plain" is
the usual loop of nn.Sequential and torch.optim.SGD, "matmul" is nothing but the batched matrix products of the same
work. Times are the best of several tries, taken in turns so that a busy machine harms all of them alike.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.contract.federation import Federation
from fedpareto.contract.problem import Objective, Readout, SupervisedProblem
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.networks.mlp import MLP
from fedpareto.tensors.rows import Rows

ROWS, BATCH, INPUTS = 1000, 128, 12
WARM_UPS, A_TURN = 5, 0.02
LEARNER = Supervised(lr=0.05, batch_size=BATCH, epochs=1)


@dataclass(frozen=True)
class Tabular(SupervisedProblem):
    """Random rows for a classifier with two losses: the shape of the fairness problems, without their data."""

    name = "benchmark"
    hidden: tuple[int, ...] = (64, 32)
    inputs: int = INPUTS
    rows: int = ROWS

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return Objective("first"), Objective("second")

    @cached_property
    def model(self) -> MLP:
        return MLP(self.inputs, self.hidden, 1)

    @property
    def layout(self):
        return self.model.layout

    def initial(self, seed):
        return self.model.initial(seed)

    def learner(self):
        return LEARNER

    def data(self, clients, seed):
        stream = torch.Generator().manual_seed(seed)
        count = clients * self.rows
        columns = {
            "x": torch.randn(count, self.inputs, generator=stream),
            "y": torch.randint(0, 2, (count,), generator=stream).float(),
        }
        return {"train": Rows.end_to_end(columns, [self.rows] * clients)}

    def readout(self):
        return Readout(self.model, lambda batch: batch.columns["x"], self.losses_of, self.slopes)

    def losses(self, parameters, batch):
        return self.losses_of(self.model(parameters, batch.columns["x"]), batch)

    def losses_of(self, outputs, batch):
        logits = outputs.squeeze(-1)
        entropy = batch.mean(binary_cross_entropy_with_logits(logits, batch.columns["y"], reduction="none"))
        return torch.stack([entropy, batch.mean(logits).square()], dim=-1)

    def slopes(self, outputs, batch, weights):
        logits, (fits, centred) = outputs.squeeze(-1), weights.unsqueeze(-1).unbind(1)
        missed, mean = logits.sigmoid().sub_(batch.columns["y"]), batch.mean(logits).unsqueeze(-1)
        return missed.mul_(fits).add_(centred * mean, alpha=2).mul_(batch.shares).unsqueeze(-1)

    def evaluate(self, parameters, batch):
        return self.losses(parameters, batch)


def engine_for(problem: Tabular, clients: int, chunk: int, threads: int, device: str) -> LocalEngine:
    """An engine whose choices are given, with FedPref, whose messages are one model for each client."""
    federation = Federation.create(problem, clients, 0, "dirichlet")
    setting = federation.setting(problem, rounds=10)
    options = LocalOptions(device=device)
    choices = Choices(threads, chunk)
    return LocalEngine(FedPref(), problem, LEARNER, [federation], [setting], options, choices=choices)


def plain_loop(problem: Tabular, clients: int, device: str) -> Callable[[], None]:
    """The usual loop over clients in PyTorch, on the same data and with the same two losses."""
    rows = problem.data(clients, 0)["train"].to(torch.device(device), torch.float32)
    preferences = torch.full((2,), 0.5, device=device)
    widths = (problem.inputs, *problem.hidden)

    def train(table: dict[str, torch.Tensor]) -> None:
        layers = [part for a, b in pairwise(widths) for part in (torch.nn.Linear(a, b), torch.nn.ReLU())]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], 1)).to(device)
        optimiser = torch.optim.SGD(network.parameters(), lr=LEARNER.lr)
        for index in torch.randperm(problem.rows, device=device).split(BATCH):
            logits = network(table["x"][index]).squeeze(-1)
            entropy = binary_cross_entropy_with_logits(logits, table["y"][index])
            optimiser.zero_grad()
            (torch.stack([entropy, logits.mean().square()]) @ preferences).backward()
            optimiser.step()

    return lambda: [train(rows.of_client(client)) for client in range(clients)] and None


def bare_matmul(problem: Tabular, clients: int, device: str) -> Callable[[], None]:
    """The batched products of forward and backward pass, and nothing else."""
    widths = (problem.inputs, *problem.hidden, 1)
    weights = [torch.randn(clients, a, b, device=device) for a, b in pairwise(widths)]
    transposed = [weight.mT.contiguous() for weight in weights]
    inputs = torch.randn(clients, BATCH, problem.inputs, device=device)

    def work() -> None:
        for start in range(0, problem.rows, BATCH):
            activations = [inputs[:, : min(BATCH, problem.rows - start)]]
            for weight in weights:
                activations.append(torch.bmm(activations[-1], weight))
            gradient = activations.pop()
            for layer in reversed(range(len(weights))):
                torch.bmm(activations[layer].mT, gradient)
                if layer:
                    gradient = torch.bmm(gradient, transposed[layer])

    return work


def best_times(works: dict[str, Callable[[], Any]], threads: int, tries: int, device: str) -> dict[str, float]:
    """The best time of each, taken in turns; of one thread its CPU time, whatever else runs on the core."""
    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 and device == "cpu" else time.perf_counter
    best = dict.fromkeys(works, float("inf"))
    for _ in range(WARM_UPS if device != "cpu" else 0):
        works.get("stacked", bool)()  # What is recorded is recorded before it is measured.
    for _ in range(tries):
        for name, work in works.items():
            turn = time.perf_counter() + A_TURN
            while True:  # Short work more than once: what was done before it is not in the caches any more.
                start = clock()
                work()
                if device != "cpu":
                    torch.cuda.synchronize()
                best[name] = min(best[name], clock() - start)
                if time.perf_counter() > turn:
                    break
    return best


def stacked_against_loop(clients: int, threads: int, tries: int, device: str) -> dict[str, float]:
    """Seconds for one round of every implementation of the same work."""
    problem = Tabular()
    whole = engine_for(problem, clients, clients if device != "cpu" else min(clients, 256), threads, device)
    single = engine_for(problem, clients, 1, threads, device)
    tasks = FedPref().ask(FedPref().begin(whole.settings[0]))
    works: dict[str, Callable[[], Any]] = {
        "stacked": lambda: whole.run(tasks),
        "matmul": bare_matmul(problem, clients, device),
        "loop": lambda: single.run(tasks),
        "plain": plain_loop(problem, clients, device),
    }
    if clients <= 50:
        gap = float((whole.run(tasks).replies["model"] - single.run(tasks).replies["model"]).abs().max())
        assert gap < 1e-5, f"stack and loop differ by {gap}"
    return best_times(works, threads, tries, device)


def aggregation_share(tries: int, device: str) -> dict[str, float]:
    """The server's part of a FedPref round: 200 clients, d ≈ 1e5, one epoch of 1,000 rows in batches of 128."""
    problem = Tabular(hidden=(256, 256), inputs=100)
    engine = engine_for(problem, 200, 64, 1, device)
    algorithm = FedPref(threshold=0)  # A typical round; one that splits a cluster computes its similarities twice.
    state = algorithm.begin(engine.settings[0])
    torch.set_num_threads(1)
    local, server = [], []
    for _ in range(tries):
        tasks = algorithm.ask(state)
        start = time.perf_counter()
        outcome = engine.run(tasks)
        middle = time.perf_counter()
        state = algorithm.tell(state, outcome.replies)
        end = time.perf_counter()
        local.append(middle - start)
        server.append(end - middle)
    share = sum(server) / (sum(server) + sum(local))
    return {"share": share, "local": min(local), "server": min(server), "d": problem.layout.size}


def peak_memory(clients: int) -> int:
    """Peak resident bytes of a fresh process that holds `clients` clients in one stack for one round."""
    script = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import engine as e; e.one_round({clients})"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return int(result.stdout.strip().splitlines()[-1])


def one_round(clients: int) -> None:
    """Trains one round and prints this process's peak memory in bytes."""
    engine = engine_for(Tabular(), clients, clients, 1, "cpu")
    engine.run(FedPref().ask(FedPref().begin(engine.settings[0])))
    print(peak_bytes())


def peak_bytes() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the parent's peak too: Linux keeps it across exec.
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory(counts: list[int]) -> dict[str, float]:
    """Bytes per client, by least squares over several sizes of the stack, and how linear the growth is."""
    peaks = [peak_memory(count) for count in counts]
    slope, intercept = np.polyfit(counts, peaks, 1)
    residual = np.abs(np.polyval([slope, intercept], counts) - peaks).max() / max(peaks)
    return {"bytes_per_client": float(slope), "largest_deviation_from_the_line": float(residual)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of the local engine.")
    parser.add_argument("--quick", action="store_true", help="only 50 clients, in under a minute")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    print(f"torch {torch.__version__}, {options.device}; one epoch of {ROWS} rows in batches of {BATCH}, MLP 64-32")
    print("clients  threads |  stacked     loop    plain   matmul (ms) | loop/stacked plain/stacked stacked/matmul")
    on_gpu = options.device != "cpu"
    for clients in [50] if options.quick else [50, 500] if on_gpu else [10, 50, 200, 1000]:
        for threads in (1,) if on_gpu else (1, 2):
            times = stacked_against_loop(clients, threads, 2 if clients >= 500 else 5, options.device)
            ratios = {
                "stacked_over_loop": times["loop"] / times["stacked"],
                "stacked_over_plain_loop": times["plain"] / times["stacked"],
                "stacked_over_matmul": times["stacked"] / times["matmul"],
            }
            shown = " ".join(f"{1e3 * times[name]:8.1f}" for name in ("stacked", "loop", "plain", "matmul"))
            factors = " ".join(f"{ratio:13.1f}" for ratio in ratios.values())
            print(f"{clients:7}  {threads:7} | {shown}      |{factors}", flush=True)
            figures |= {f"{name}_{clients}_{threads}t": ratio for name, ratio in ratios.items()}
    share = aggregation_share(1 if options.quick else 3, options.device)
    figures["fedpref_aggregation_share_200"] = share["share"]
    print(
        f"FedPref, 200 clients, d = {share['d']:.0f}: {100 * share['share']:.1f} % of a round is aggregation "
        f"({share['server']:.2f} s of {share['server'] + share['local']:.2f} s)"
    )
    if options.device == "cpu":
        figures |= memory([400, 1200] if options.quick else [200, 500, 1000, 2000])
        print(
            f"memory: {figures['bytes_per_client'] / 2**20:.2f} MB per client; "
            f"off the line by at most {100 * figures['largest_deviation_from_the_line']:.1f} %"
        )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
