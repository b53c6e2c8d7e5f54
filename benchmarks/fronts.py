"""Fronts led by a server, by clients and by nobody, at equal trainings and at equal bytes; docs/fronts.md.

    python benchmarks/fronts.py convex [--seeds 5] [--picture FILE] [--json FILE]
    python benchmarks/fronts.py adult --scale 0.5
    python benchmarks/fronts.py deep-sea-treasure

A training is one client's local training in one round. `mofld` (on a lattice) spends n · samples · rounds of them;
`client-mofld` as many; `dmoead`, whose clients train one model each, has as many more rounds. Bytes are those that
travel: between clients and server, or once for each message between neighbours. Those of `mofld` are the measure, and
the rounds of others are cut to it, in whole trainings. Whatever a method calls its front is then measured on the test
rows of all clients, which none of them saw: the mean over clients. IGD+ is to the known front, or to the best of all
methods and seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.contract.messages import Parcels
from fedpareto.moo import dominance, indicators
from fedpareto.report.style import colour, marker, render, styled
from fedpareto.runs import runner
from fedpareto.runs.result import Result
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec


@dataclass(frozen=True)
class Work:
    """A problem, and how much is done on it."""

    problem: Mapping[str, Any]
    clients: int
    samples: int
    training_rounds: int
    iterations: int
    learner: Mapping[str, Any]

    @property
    def rounds(self) -> int:
        """Of `mofld`."""
        return self.training_rounds * self.iterations


WORK = {
    "convex": Work({"name": "convex"}, 8, 4, 5, 4, {}),
    "adult": Work({"name": "adult"}, 8, 4, 5, 3, {}),
    "deep-sea-treasure": Work({"name": "deep-sea-treasure"}, 4, 4, 5, 3, {}),
}


def methods(work: Work) -> dict[str, tuple[dict[str, Any], int]]:
    """By name: the algorithm, and its rounds for as many trainings as `mofld` has."""
    shared = {"samples": work.samples, "training_rounds": work.training_rounds}
    longer = work.rounds * work.samples
    return {
        "mofld": ({"name": "mofld", "generator": "lattice", **shared}, work.rounds),
        "client-mofld": ({"name": "client-mofld", **shared}, work.rounds),
        "client-mofld, radius 0.3": ({"name": "client-mofld", "radius": 0.3, **shared}, work.rounds),
        "dmoead, ring": ({"name": "dmoead"}, longer),
        "dmoead, complete": ({"name": "dmoead", "graph": "complete"}, longer),
    }


@dataclass(frozen=True)
class Front:
    """What a method found with one seed, and what it cost."""

    points: np.ndarray
    """On all clients' test rows, `[k, m]`."""
    trainings: int
    megabytes: float


def run(work: Work, algorithm: Mapping[str, Any], rounds: int, seeds: int) -> list[Front]:
    """One front for each seed."""
    spec = Draft(
        {
            "algorithm": dict(algorithm),
            "problem": dict(work.problem),
            "clients": work.clients,
            "rounds": rounds,
            "step": "fixed",
            "seeds": seeds,
            "evaluate_every": rounds,
            "learner": dict(work.learner),
            "engine": {"threads": 1},
        }
    ).finish()
    result = runner.start(spec)
    return [front(spec, result, number) for number in range(len(spec.seeds))]


def front(spec: Spec, result: Result, number: int) -> Front:
    """The models of one seed, measured by everybody."""
    models = list(result.models[number].values())
    one = replace(spec, algorithm=FedAvg(), seeds=(spec.seeds[number],))
    engine = backends.local(one)
    points = []
    for model in models:
        sent = Parcels(engine.settings[0].clients, {"model": torch.as_tensor(model)})
        values = engine.run_all([[]], [sent])[0].evaluations.sent.rows
        points.append(values[:, -1].double().mean(dim=0).numpy())
    rows = [row for row in result.history if row["seed"] == spec.seeds[number]]
    down, up = np.sum([result.columns.traffic(row).sum(axis=0) for row in rows], axis=0)
    between = spec.algorithm.neighbours(spec.clients) is not None
    lanes = spec.algorithm.lanes
    return Front(np.array(points), spec.clients * lanes * spec.rounds, float(up if between else down + up) / 1e6)


def fewer(algorithm: Mapping[str, Any], rounds: int, share: float) -> int:
    """Rounds that cost such a share of the bytes, as near as whole trainings come to it."""
    step = int(algorithm.get("training_rounds", 1))
    return max(round(rounds * min(share, 1.0) / step), 1) * step


def judged(fronts: Sequence[Front], spec: Spec, best: np.ndarray) -> dict[str, list[float]]:
    """Hypervolume, IGD+ and the rest of each seed."""
    objectives = spec.problem.objectives
    maximise, reference = [one.maximise for one in objectives], [one.reference for one in objectives]
    return {
        "hypervolume": [indicators.hypervolume(one.points, reference, maximise) for one in fronts],
        "IGD+": [indicators.igd_plus(one.points, best, maximise) for one in fronts],
        "models": [float(len(one.points)) for one in fronts],
        "trainings": [float(one.trainings) for one in fronts],
        "MB": [one.megabytes for one in fronts],
    }


def table(title: str, found: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """In Markdown, mean and deviation over seeds."""
    lines = [f"| {title} | trainings | MB | models | hypervolume | IGD+ |", "|---|---|---|---|---|---|"]
    for name, of in found.items():
        told = [f"{np.mean(of['trainings']):,.0f}", f"{np.mean(of['MB']):.3g}", f"{np.mean(of['models']):.1f}"]
        told += [f"{np.mean(of[key]):.4g} ± {np.std(of[key]):.2g}" for key in ("hypervolume", "IGD+")]
        lines.append(f"| {name} | {' | '.join(told)} |")
    return "\n".join(lines)


@styled
def picture(fronts: Mapping[str, Sequence[Front]], spec: Spec, best: np.ndarray) -> Figure:
    """The first seed's fronts of all methods."""
    figure = Figure(figsize=(5.6, 4.2), layout="constrained")
    panel = figure.add_subplot()
    order = best[:, 0].argsort()
    panel.plot(*best[order][:, :2].T, color="black", lw=0.8, label="known front" if knows(spec) else "best of all")
    for place, (name, of) in enumerate(fronts.items()):
        panel.scatter(*of[0].points[:, :2].T, s=22, color=colour(place), marker=marker(place), label=name, alpha=0.8)
    objectives = spec.problem.objectives
    panel.set_xlabel(f"{objectives[0].name} ({'higher' if objectives[0].maximise else 'lower'} is better)")
    panel.set_ylabel(f"{objectives[1].name} ({'higher' if objectives[1].maximise else 'lower'} is better)")
    panel.legend()
    return figure


def knows(spec: Spec) -> bool:
    """Whether the problem's front is known."""
    return spec.problem.known_front() is not None


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=WORK)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the iterations")
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    work = WORK[given.problem]
    work = replace(work, iterations=max(1, round(work.iterations * given.scale)))
    equal: dict[str, dict[str, list[Front]]] = {"equal trainings": {}, "equal bytes": {}}
    for name, (algorithm, rounds) in methods(work).items():
        fronts = equal["equal trainings"][name] = run(work, algorithm, rounds, given.seeds)
        share = equal["equal trainings"]["mofld"][0].megabytes / fronts[0].megabytes
        cut = fewer(algorithm, rounds, share)
        equal["equal bytes"][name] = fronts if cut == rounds else run(work, algorithm, cut, given.seeds)
        print(name, rounds, cut, flush=True)
    spec = Draft({"algorithm": "fedavg", "problem": dict(work.problem), "clients": work.clients}).finish()
    everything = np.concatenate([one.points for of in equal.values() for fronts in of.values() for one in fronts])
    maximise = [one.maximise for one in spec.problem.objectives]
    known = spec.problem.known_front()
    best = dominance.front(everything, maximise=maximise) if known is None else known
    found = {title: {name: judged(of, spec, best) for name, of in fronts.items()} for title, fronts in equal.items()}
    for title, of in found.items():
        print(table(f"{given.problem}, {title}", of), end="\n\n", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found), encoding="utf-8")
    if given.picture:
        given.picture.write_bytes(render(picture(equal["equal trainings"], spec, best), "png"))


if __name__ == "__main__":
    main()
