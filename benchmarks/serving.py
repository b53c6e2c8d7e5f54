"""Predictions in one call against a plain forward pass, and requests a second of the HTTP service.

    python benchmarks/serving.py [--rows 10000] [--json FILE]
    python benchmarks/serving.py --http [--connections 1,8,32,128] [--seconds 5] [--workers 1] [--json FILE]

Without `--http`: many predictions under many preferences in one call.

The network reads as many inputs as on Adult and has the hidden layers 64-32; the hypernetwork is PraFFL's own. The
plain pass is what one would write without preferences: an nn.Sequential of the same widths on the same rows. Both use
one thread and take turns; the best of many tries counts, in seconds of that thread, which on an idle machine are those
of the clock. Times include the check that preferences are on the simplex.

With `--http`: `fedpareto serve` in a process of its own answers requests with one row of 13 columns, as of Adult, each
under its own preference; this process sends requests on several connections at once, each as soon as the last is
answered. CPU time is that of the server's processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import torch
from load import Tally, load, post
from torch import Tensor, nn

from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.contract.problem import Objective
from fedpareto.inputs.table import NUMBER, VALUE, Input, InputSchema
from fedpareto.networks.mlp import MLP
from fedpareto.record.servable import Card
from fedpareto_serve import files
from fedpareto_serve.models import AnyPreference

HIDDEN, OBJECTIVES = (64, 32), 2
NUMBERS, VALUES = 6, (8, 16, 7, 15, 6, 5, 44)
"""Columns of numbers, and the values of each column of texts, much as of Adult."""
INPUTS = NUMBERS + sum(VALUES)
TRIES = 50
WARM_UP = 1.0
"""Seconds of requests that are not counted."""


def served() -> AnyPreference:
    """An untrained model; what it predicts does not matter here."""
    network = MLP(INPUTS, HIDDEN, 1)
    anatomy = PraFFL().anatomy(network.layout, OBJECTIVES)
    card = Card(
        algorithm="praffl",
        problem="adult",
        seed=0,
        client=0,
        objectives=tuple(Objective(f"objective {i}") for i in range(OBJECTIVES)),
        inputs=columns(),
        layout=network.layout,
    )
    body = network.initial(0)[: anatomy.body.size]
    middle = torch.full((1, OBJECTIVES), 1 / OBJECTIVES)
    return AnyPreference(card, anatomy, body, anatomy.hypernetwork.initial(0), lattice=middle, front=middle)


def columns() -> InputSchema:
    """Numbers first, then a 1 for each value of a text."""
    values = [Input(f"text {i}", VALUE, value=f"value {k}") for i, count in enumerate(VALUES) for k in range(count)]
    return InputSchema((*(Input(f"number {i}", NUMBER, 10.0, 0.5) for i in range(NUMBERS)), *values))


def plain() -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise((INPUTS, *HIDDEN, 1)):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Sigmoid())


def head_by_head(model: AnyPreference, x: Tensor, preferences: Tensor) -> Tensor:
    """The same predictions with a head written out for every row."""
    wide = model.body[None].expand(len(x), -1)
    hypernetwork = model.hypernetwork[None].expand(len(x), -1)
    models = model.anatomy.models(wide[:1], hypernetwork[:1], preferences[None])[0]
    return torch.sigmoid(model.network(model.card.layout.unflatten(models), x[:, None])[:, 0, 0])


def best(work: dict[str, Callable[[], Tensor]]) -> dict[str, float]:
    """Seconds of each, the best of many tries, taking turns so that a busy machine affects all alike."""
    seconds = dict.fromkeys(work, float("inf"))
    for _ in range(TRIES):
        for name, call in work.items():
            start = time.thread_time()
            call()
            seconds[name] = min(seconds[name], time.thread_time() - start)
    return seconds


# -- over HTTP -----------------------------------------------------------------------------------------------------


@contextmanager
def served_over_http(workers: int) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The service in its own process, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        files.save(served(), path)
        many = ["--workers", str(workers)] if workers > 1 else []
        command = [sys.executable, "-m", "fedpareto", "serve", str(path), "--port", "0", *many]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                line = next((line for line in process.stderr if line.startswith("serving")), "")
                yield process, int(line.rsplit(":", 1)[1])
            finally:
                process.terminate()


def cpu_seconds(process: int) -> float | None:
    """Of a process and its children so far; None where there is no /proc."""
    if not Path("/proc/self/stat").exists():
        return None
    total, ticks = 0.0, os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(entry.parent.name) == process or int(fields[1]) == process:
            total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def one_row() -> bytes:
    row = {f"number {i}": 10.5 + i for i in range(NUMBERS)} | {f"text {i}": "value 3" for i in range(len(VALUES))}
    return post("/predict", json.dumps({"rows": [row], "preference": [0.3, 0.7]}).encode())


async def for_seconds(port: int, connections: int, seconds: float) -> Tally:
    enough = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, enough.set)
    return await load("127.0.0.1", port, one_row(), connections, enough)


def over_http(connections: list[int], seconds: float, workers: int) -> list[dict[str, float | None]]:
    found = []
    with served_over_http(workers) as (process, port):
        asyncio.run(for_seconds(port, max(connections), WARM_UP))
        for count in connections:
            cpu, start = cpu_seconds(process.pid), time.perf_counter()
            tally = asyncio.run(for_seconds(port, count, seconds))
            wall, after = time.perf_counter() - start, cpu_seconds(process.pid)
            assert set(tally.statuses) == {200}, tally.statuses
            assert not tally.broken, f"{tally.broken} requests were not answered"
            figures = {
                "connections": count,
                "requests_per_second": tally.answered / wall,
                "p50_ms": tally.percentile(0.5),
                "p99_ms": tally.percentile(0.99),
                "cpu_ms_per_request": None if cpu is None else 1e3 * (after - cpu) / tally.answered,
            }
            found.append(figures)
            print("  ".join(f"{name} {value:.4g}" for name, value in figures.items() if value is not None), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--connections", default="1,8,32,128")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.http:
        counts = [int(count) for count in options.connections.split(",")]
        answers = over_http(counts, options.seconds, options.workers)
        if options.json:
            options.json.write_text(json.dumps({"workers": options.workers, "http": answers}, indent=1) + "\n")
        return
    model, network = served(), plain()
    x = torch.randn(options.rows, INPUTS)
    preferences = torch.distributions.Dirichlet(torch.ones(OBJECTIVES)).sample(torch.Size([options.rows]))
    difference = float((model(x, preferences) - head_by_head(model, x, preferences)).abs().max())
    with torch.no_grad():
        seconds = best(
            {
                "plain": lambda: network(x),
                "one_preference": lambda: model(x, preferences[0]),
                "a_preference_for_each_row": lambda: model(x, preferences),
                "a_head_for_each_row": lambda: head_by_head(model, x, preferences),
            }
        )
    ratios = {f"{name}_over_plain": seconds[name] / seconds["plain"] for name in seconds if name != "plain"}
    figures = {"rows": options.rows, "seconds": seconds, "largest_difference": difference, **ratios}
    for name, value in seconds.items():
        print(f"{name.replace('_', ' '):28} {value * 1e3:8.2f} ms {value / seconds['plain']:6.2f} times")
    print(f"largest difference to a head written out for every row: {difference:.1e}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
