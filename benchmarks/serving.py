"""Many predictions under many preferences in one call, against a plain forward pass of a network of the same size.

    python benchmarks/serving.py [--rows 10000] [--json FILE]

The network reads as many inputs as on Adult and has the hidden layers 64-32; the hypernetwork is PraFFL's own. The
plain pass is what one would write without preferences: an nn.Sequential of the same widths on the same rows. Both use
one thread and take turns; the best of many tries counts, in seconds of that thread, which on an idle machine are those
of the clock. Times include the check that preferences are on the simplex.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from fedpareto.algorithms.praffl import PraFFL
from fedpareto.core.inputs import numbers
from fedpareto.core.models import MLP
from fedpareto.core.problem import Objective
from fedpareto.experiments.servable import Card
from fedpareto.serving.models import AnyPreference

INPUTS, HIDDEN, OBJECTIVES = 107, (64, 32), 2
TRIES = 50


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
        inputs=numbers(f"input {i}" for i in range(INPUTS)),
        layout=network.layout,
    )
    body = network.initial(0)[: anatomy.body.size]
    nothing = torch.zeros(0, OBJECTIVES)
    return AnyPreference(card, anatomy, body, anatomy.hypernetwork.initial(0), lattice=nothing, front=nothing)


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
    """Seconds of each, the best of many tries, taking turns so that a busy machine is fair to all."""
    seconds = dict.fromkeys(work, float("inf"))
    for _ in range(TRIES):
        for name, call in work.items():
            start = time.thread_time()
            call()
            seconds[name] = min(seconds[name], time.thread_time() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
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
