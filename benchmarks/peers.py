"""Are we slower than a short program that somebody writes in JAX for just this work? In turns, in one process.

    pip install 'fedpareto[bench]'
    python benchmarks/peers.py [--quick] [--pieces usual|compiled] [--json FILE]

The work is a round of FedAvg, or of Ditto: every client runs one epoch of 1,000 rows in batches of 128 through an MLP
64-32 with 12 inputs; then FedFew's CNN as in images.py. The other side is compiled by XLA, `lax.map` over clients and
`lax.scan` over their minibatches (for the CNN a compiled step, which is faster there). Both have the same rows, losses
and minibatches: these are drawn by our generator, within our time, and handed to the program in JAX before its clock
starts. `jax_drawing_…` is what that takes if it draws its own. After three rounds both have the same models and the
same loss on held-out rows, or nothing is timed. Ours is measured twice: as it is, and with `compiled`.

`--pieces` shows where a round of ours goes, instead: each piece within the round, beside what its products take alone.

Times are CPU time of the whole process, which is held on one core with one thread on either side; the best of several.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

# Before JAX is imported, which starts its threads then.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
import torch
from images import Images, stacked
from images import engine_for as images_engine
from jax import lax

from engine import BATCH, LEARNER, ROWS, Tabular
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.personal.ditto import Ditto
from fedpareto.contract.federation import Federation
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners import supervised
from fedpareto.learners.supervised import Supervised
from fedpareto.networks import descending
from fedpareto.networks.descending import Descending, _Layer
from fedpareto.tensors.rows import Batch, Rows

CHUNK = 256
"""The best of those that the engine tries by itself: the fewer stacks, the less Python for each client."""
SAME = 1e-5
"""Tolerance between the models of two implementations of the same work, in a parameter."""
ROUNDS_CHECKED = 3
Work = Callable[[], Any]


# -- ours ------------------------------------------------------------------------------------------------------------


def engine_for(algorithm: FedAvg, clients: int, compiled: bool = False) -> LocalEngine:
    """On one thread, in stacks of CHUNK."""
    problem = Tabular()
    federation = Federation.create(problem, clients, 0, "uniform")
    setting = federation.setting(problem, rounds=10_000)
    choices = Choices(1, min(CHUNK, clients))
    options = LocalOptions(compiled=compiled)
    return LocalEngine(algorithm, problem, LEARNER, [federation], [setting], options, choices=choices)


class Ours:
    """Rounds of an algorithm, one after the other."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine, self.algorithm = engine, engine.algorithm
        self.state = self.algorithm.begin(engine.settings[0])

    def __call__(self) -> None:
        self.state = self.algorithm.tell(self.state, self.engine.run(self.algorithm.ask(self.state)).replies)

    def models(self) -> torch.Tensor:
        """The clients' models, `[n, d]`."""
        return self.engine.models(0, self.algorithm.solutions(self.state)).rows


# -- a program in JAX ------------------------------------------------------------------------------------------------


def perceptron(parameters: list[tuple[Any, Any]], rows: Any) -> Any:
    *hidden, (weight, bias) = parameters
    for w, b in hidden:
        rows = jax.nn.relu(rows @ w + b)
    return (rows @ weight + bias)[:, 0]


def objective(parameters: Any, rows: Any, labels: Any, mask: Any, preference: Any) -> Any:
    logits, share = perceptron(parameters, rows), mask / mask.sum()
    entropy = jnp.sum(share * (jax.nn.softplus(logits) - labels * logits))
    return preference[0] * entropy + preference[1] * jnp.sum(share * logits) ** 2


def moved(parameters: Any, gradient: Any, lr: float) -> Any:
    return jax.tree.map(lambda one, slope: one - lr * slope, parameters, gradient)


def local_training(model: Any, own: Any, client: Any, strength: float) -> tuple[Any, Any]:
    """An epoch of the global model and, for Ditto, of the client's own."""
    rows, labels, index, mask, preference = client

    def step(models: Any, batch: Any) -> tuple[Any, None]:
        where, real = batch
        here = rows[where], labels[where], real, preference
        shared, personal = models
        shared = moved(shared, jax.grad(objective)(shared, *here), LEARNER.lr)
        if personal is not None:
            gradient = jax.grad(objective)(personal, *here)
            pulled = jax.tree.map(lambda g, v, w: g + strength * (v - w), gradient, personal, model)
            personal = moved(personal, pulled, LEARNER.lr)
        return (shared, personal), None

    return lax.scan(step, (model, own), (index, mask))[0]


class Program:
    """A round of FedAvg, or of Ditto, as one compiled function."""

    def __init__(self, engine: LocalEngine, draws: bool = False) -> None:
        self.engine, self.layout = engine, engine.problem.layout
        self.n = len(engine.federations[0].ids)
        rows = engine.federations[0].splits["train"]
        inputs = jnp.asarray(rows.columns["x"].view(self.n, ROWS, -1).numpy())
        labels = jnp.asarray(rows.columns["y"].view(self.n, ROWS).numpy())
        preferences = jnp.asarray(engine.federations[0].preferences, dtype=jnp.float32)
        self.model = self.parameters(engine.settings[0].initial)
        self.ditto = isinstance(engine.algorithm, Ditto)
        alike = jax.tree.map(lambda one: jnp.broadcast_to(one, (self.n, *one.shape)), self.model)
        self.own = alike if self.ditto else None
        self.strength = engine.algorithm.strength if isinstance(engine.algorithm, Ditto) else 0.0
        self.round, self.draws = 1, draws
        places = jnp.arange(-(-ROWS // BATCH) * BATCH).reshape(-1, BATCH)
        mask = jnp.broadcast_to((places < ROWS).astype(jnp.float32), (self.n, *places.shape))
        self.data = inputs, labels, mask, preferences
        self.compiled = jax.jit(self.all_clients)
        self.index = self.minibatches()

    def parameters(self, flat: torch.Tensor) -> list[tuple[Any, Any]]:
        parts = [jnp.asarray(part.numpy()) for part in self.layout.unflatten(flat).values()]
        return list(zip(parts[::2], parts[1::2], strict=True))

    def minibatches(self) -> Any:
        """Those that our side draws in this round, `[n, steps, batch]`; or, to draw them here, keys."""
        if self.draws:
            return jax.random.split(jax.random.key(self.round), self.n)
        clients = self.engine._probe(self.n)
        clients.addresses.round.fill_(self.round)
        rows = LEARNER.plan(clients).index - torch.as_tensor(clients.splits["train"].starts).view(-1, 1, 1)
        return jax.block_until_ready(jnp.asarray(rows.clamp_min(0).numpy(), dtype=jnp.int32))

    def all_clients(self, model: Any, own: Any, index: Any, data: Any) -> tuple[Any, Any]:
        def one(given: Any) -> tuple[Any, Any]:
            own, index, (rows, labels, mask, preference) = given
            if self.draws:
                order = jax.random.permutation(index, ROWS)
                index = jnp.pad(order, (0, mask.size - ROWS)).reshape(mask.shape)
            return local_training(model, own, (rows, labels, index, mask, preference), self.strength)

        models, own = lax.map(one, (own, index, data))
        return jax.tree.map(lambda each: each.mean(0), models), own

    def __call__(self) -> None:
        self.model, self.own = jax.block_until_ready(self.compiled(self.model, self.own, self.index, self.data))

    def next(self) -> None:
        """The minibatches of the next round."""
        self.round += 1
        self.index = self.minibatches()

    def models(self) -> torch.Tensor:
        """The clients' models, `[n, d]`."""
        leaves = [np.asarray(leaf).reshape(self.n if self.ditto else 1, -1) for leaf in jax.tree.leaves(self.used)]
        return torch.as_tensor(np.concatenate(leaves, axis=1)).expand(self.n, -1)

    @property
    def used(self) -> Any:
        return self.own if self.ditto else self.model


def held_out(models: torch.Tensor) -> float:
    """The mean loss of models on rows that nobody trains on."""
    problem = Tabular()
    table = problem.data(1, seed=1)["train"].columns
    batch = Batch({name: column.unsqueeze(0) for name, column in table.items()}, torch.ones(1, ROWS))
    losses = problem.losses(problem.layout.unflatten(models), batch.shared_by(len(models)))
    return float(losses.mean())


def perceptrons(algorithm: FedAvg, clients: int, tries: int) -> dict[str, float]:
    """Milliseconds of a round on either side."""
    engine = engine_for(algorithm, clients)
    ours, compiled, program = Ours(engine), Ours(engine_for(algorithm, clients, compiled=True)), Program(engine)
    before = held_out(ours.models())
    for number in range(ROUNDS_CHECKED):
        if number:
            program.next()
        ours(), compiled(), program()
    theirs, gaps = program.models(), []
    for one in (ours, compiled):
        after, largest = held_out(one.models()), float((one.models() - theirs).abs().max())
        gaps.append(abs(after - held_out(theirs)))
        assert gaps[-1] <= abs(after - before) / 100, f"held-out losses differ by {gaps[-1]}; they began at {before}"
        assert largest < SAME, f"models differ by {largest}"
    works = {"ours": ours, "compiled": compiled, "jax": program, "jax_drawing": Program(engine, draws=True)}
    return {**best_times(works, tries), "held_out_gap": max(gaps)}


# -- the CNN ---------------------------------------------------------------------------------------------------------


def convolutional(parameters: dict[str, Any], pixels: Any) -> Any:
    values = pixels.astype(jnp.float32) / 127.5 - 1
    for i in range(2):
        kernel, bias = parameters[f"convolution{i}.weight"], parameters[f"convolution{i}.bias"]
        values = lax.conv_general_dilated(values, kernel, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))
        values = jax.nn.relu(values + bias[:, None, None])
        values = lax.reduce_window(values, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    values = values.reshape(len(values), -1)
    values = jax.nn.relu(values @ parameters["linear0.weight"].T + parameters["linear0.bias"])
    return values @ parameters["linear1.weight"].T + parameters["linear1.bias"]


def images(clients: int, tries: int) -> dict[str, float]:
    """Milliseconds of four steps of each client on either side."""
    problem = Images()
    engine = images_engine(problem, clients, clients, "cpu", "float32")
    work = engine._probe(clients)
    index, rows = engine.learner.plan(work).index, work.splits["train"].columns
    given = jnp.asarray(rows["input"][index].numpy()), jnp.asarray(rows["label"][index].numpy())
    initial = problem.layout.unflatten(engine.settings[0].initial)
    start = {name: jnp.asarray(part.numpy()) for name, part in initial.items()}

    def loss(parameters: Any, pixels: Any, labels: Any) -> Any:
        scores = jax.nn.log_softmax(convolutional(parameters, pixels))
        return -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()

    step = jax.jit(lambda parameters, batch: moved(parameters, jax.grad(loss)(parameters, *batch), engine.learner.lr))
    batches = [[(given[0][i, k], given[1][i, k]) for k in range(index.shape[1])] for i in range(clients)]

    def program() -> list[Any]:
        # In a loop of Python: inside `lax.map` XLA's convolutions on a CPU take several times as long.
        return jax.block_until_ready([reduce(step, own, start) for own in batches])

    train, found = stacked(engine), program()
    stacks = (torch.stack([torch.as_tensor(np.array(one[name])) for one in found]) for name in problem.layout.names)
    theirs = torch.cat([stack.flatten(1) for stack in stacks], dim=1)
    gap = float((torch.stack(train()) - theirs).abs().max())
    assert gap < SAME, f"models differ by {gap}"
    return {**best_times({"ours": train, "jax": program}, tries), "largest_gap": gap}


# -- where a round of ours goes --------------------------------------------------------------------------------------


class Pieces:
    """CPU time within some functions, by name; what one of them calls is not counted twice."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self.inner = [0]

    def watch(self, owner: Any, function: str, name: Callable[..., str]) -> None:
        """Replaces a function by one that counts; its arguments tell its name."""
        real = getattr(owner, function)

        def counted(*given: Any, **named: Any) -> Any:
            self.inner.append(0)
            start = time.process_time_ns()
            found = real(*given, **named)
            spent = time.process_time_ns() - start
            self.spent[name(*given)] = self.spent.get(name(*given), 0) + spent - self.inner.pop()
            self.inner[-1] += spent
            return found

        setattr(owner, function, counted)


def pieces(clients: int, tries: int, compiled: bool) -> None:
    """Prints microseconds of each piece, for a client and a step of its training: the least of `tries` rounds."""
    engine, found = engine_for(FedAvg(), clients, compiled), Pieces()
    widths = engine.problem.model.widths
    if compiled:
        from fedpareto.networks import kernels

        found.watch(kernels, "forward", lambda *_: "forward")
        found.watch(kernels, "descend", lambda *_: "backward, with the step")
    else:
        watch_layers(found, widths)
    found.watch(Tabular, "slopes", lambda *_: "loss")
    found.watch(Rows, "take", lambda *_: "gathering of rows")
    found.watch(supervised, "drawn", lambda *_: "drawing of minibatches")
    found.watch(Supervised, "train", lambda *_: "the rest of training")
    rounds, ours, steps = [], Ours(engine), clients * -(-ROWS // BATCH)
    for _ in range(tries + 1):
        found.spent.clear()
        start = time.process_time_ns()
        ours()
        whole = time.process_time_ns() - start
        rounds.append({**found.spent, "averaging, checks": whole - sum(found.spent.values()), "the round": whole})
    bare = {} if compiled else alone(clients, widths, tries)
    print("us of CPU time for a client and a step      here    alone")
    for name in rounds[1]:
        least = min(one[name] for one in rounds[1:]) / steps / 1e3
        print(f"{name:40} {least:7.1f} {bare.get(name, '') and f'{bare[name]:8.1f}'}")


def watch_layers(found: Pieces, widths: tuple[int, ...]) -> None:
    """Each product by its layer, and what is between them."""
    layer_of = {(a + (i == 0), b): f"layer {i + 1}" for i, (a, b) in enumerate(pairwise(widths))}
    for function, kind in {"forward": "x·W + b", "to_inputs": "g·Wᵀ", "descend": "W − lr·xᵀ·g"}.items():
        found.watch(_Layer, function, lambda own, *_, kind=kind: f"{layer_of[own.weight.shape[1:]]}: {kind}")
    found.watch(descending, "relu_backward_", lambda *_: "ReLU, backward")
    found.watch(Descending, "forward", lambda *_: "ReLU, inputs beside ones")


def alone(clients: int, widths: tuple[int, ...], tries: int) -> dict[str, float]:
    """Microseconds of nothing but the product, for a client, by the names of `pieces`."""
    n, best = min(CHUNK, clients), {}
    for i, (a, b) in enumerate(pairwise(widths)):
        shapes = {"x·W + b": (BATCH, a, b), "g·Wᵀ": (BATCH, b, a), "W − lr·xᵀ·g": (a, BATCH, b)}
        for kind, (rows, inner, columns) in shapes.items():
            left, right, to = (torch.randn(n, *shape) for shape in ((rows, inner), (inner, columns), (rows, columns)))
            times = best_times({kind: lambda one=left, two=right, to=to: torch.bmm(one, two, out=to)}, 10 * tries)
            best[f"layer {i + 1}: {kind}"] = 1e3 * times[kind] / n
    return best


def best_times(works: dict[str, Work], tries: int) -> dict[str, float]:
    """Milliseconds of CPU time of each, the best of `tries` in turns."""
    best = dict.fromkeys(works, float("inf"))
    for number in range(tries + 1):
        for name, work in works.items():
            start = time.process_time()
            work()
            if number:  # The first warms up.
                best[name] = min(best[name], 1e3 * (time.process_time() - start))
    return best


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description="A round of ours against a program in JAX, on one core.",
        epilog="Example: python benchmarks/peers.py --quick --json peers.json",
    )
    parser.add_argument("--quick", action="store_true", help="50 clients only, without the CNN")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--pieces", choices=("usual", "compiled"), help="where a round of FedAvg with 50 clients goes, of ours"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    tries = 5 if options.quick else 15
    if options.pieces:
        pieces(50, 2 * tries, options.pieces == "compiled")
        return
    print(f"torch {torch.__version__}, jax {jax.__version__}; ms of CPU time of a round, load {os.getloadavg()[0]:.1f}")
    print("                      ours compiled      jax   jax that draws | jax/ours jax/compiled")
    figures: dict[str, float] = {}
    works: dict[str, Callable[[], dict[str, float]]] = {"fedavg_50": lambda: perceptrons(FedAvg(), 50, tries)}
    works["ditto_50"] = lambda: perceptrons(Ditto(), 50, tries)
    if not options.quick:
        works["fedavg_200"] = lambda: perceptrons(FedAvg(), 200, tries)
        works["fedavg_1000"] = lambda: perceptrons(FedAvg(), 1000, tries // 2)
        works["cnn_10"] = lambda: images(10, 3)
    for name, work in works.items():
        found = work()
        figures |= {f"{key}_{name}": value for key, value in found.items()}
        over = {side: found["jax"] / found[side] for side in ("ours", "compiled") if side in found}
        figures |= {f"jax_over_{side}_{name}": ratio for side, ratio in over.items()}
        compiled, drawing = (f"{found[side]:.1f}" if side in found else "" for side in ("compiled", "jax_drawing"))
        ratios = f"{over['ours']:8.2f} " + (f"{over['compiled']:12.2f}" if "compiled" in over else "")
        print(f"{name:14} {found['ours']:11.1f} {compiled:>8} {found['jax']:8.1f} {drawing:>16} | {ratios}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
