"""What waiting costs, and whom: 1,000 clients with phones, laptops and servers under every policy; docs/time.md.

`python benchmarks/late.py runs/late --problem synthetic` runs what is missing there, a process for each seed of each
run, `--jobs` at a time; then `--table` prints what came out and `--picture FILE` draws it. Every run has the
same number of updates, so they differ in hours and joules. A network of a real size is 100,000 times as much work as
this one, so devices are that much slower here.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.contract.federation import Federation
from fedpareto.moo.fairness import jain_index
from fedpareto.runs.loop import Experiment
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto.tensors.rows import Rows

CLIENTS, AT_WORK, LOOKS = 1000, 100, 20
"""Clients, those at work at a time, and how often a run's solutions are measured."""
TESTED = 500
"""Test rows, of all there are."""
PROBLEMS: dict[str, Any] = {
    "synthetic": {"name": "synthetic", "rows": 50_000},
    "adult": {"name": "adult"},
}
POLICIES: dict[str, dict[str, Any]] = {
    "sync": {"kind": "sync"},
    "deadline": {"kind": "deadline"},
    "tiers": {"kind": "tiers"},
    "buffered": {"kind": "buffered", "buffer": 10},
    "asynchronous": {"kind": "asynchronous"},
}
REPLIES = {"sync": 100, "deadline": 70, "tiers": 34, "buffered": 10, "asynchronous": 1}
"""About how many a round has under each."""
SELECTIONS = ("random", "round-robin", "available", "power-of-choice", "oort", "nsga2")


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each run, and what is special about it."""
    for policy in POLICIES:
        yield f"fedavg {policy}", {"algorithm": "fedavg", "policy": policy}
    yield "fedbuff", {"algorithm": "fedbuff", "policy": "buffered"}
    yield "fedasync", {"algorithm": "fedasync", "policy": "asynchronous"}
    for policy in POLICIES:
        yield f"fedpref {policy}", {"algorithm": "fedpref", "policy": policy}
    for selection in SELECTIONS[1:]:
        yield f"fedavg sync, {selection}", {"algorithm": "fedavg", "policy": "sync", "selection": selection}


def spec_of(problem: str, about: dict[str, Any], seed: int, updates: int, deadline: float) -> Spec:
    """One run of one seed."""
    policy = dict(POLICIES[about["policy"]])
    if policy["kind"] == "deadline":
        policy["deadline"] = deadline
    rounds = math.ceil(updates / REPLIES[about["policy"]])
    return Draft(
        {
            "problem": PROBLEMS[problem],
            "clients": CLIENTS,
            "participation": AT_WORK / CLIENTS,
            "seeds": [seed],
            "step": "fixed",
            "rounds": rounds,
            "evaluate_every": max(1, rounds // LOOKS),
            "devices": {"kind": "tiers", "factor": 1e-5},
            "engine": {"threads": 1, "chunk": 64},
            **about,
            "policy": policy,
        }
    ).finish()


def thinned(federation: Federation) -> Federation:
    """The same clients; every model is tested on the same few of all test rows."""
    splits = dict(federation.splits)
    test = splits["test"]
    step = max(1, int(test.counts[0]) // TESTED)
    columns = {name: column[: int(test.counts[0])][::step] for name, column in test.columns.items()}
    count = len(next(iter(columns.values())))
    splits["test"] = Rows(columns, np.zeros(CLIENTS, dtype=int), np.full(CLIENTS, count))
    return replace(federation, splits=splits)


def outcome(spec: Spec) -> dict[str, Any]:
    """What a run came to: by time, and by client at the end."""
    federations = [thinned(spec.federation(seed)) for seed in spec.seeds]
    experiment = Experiment(spec, backends.local(spec, federations=federations), keep_models=False)
    result = experiment.run()
    rows = [row for row in result.history if "hypervolume" in row]
    flight, found = experiment.dispatch.flights[0], result.solutions[0]
    preferences = found.preferences
    assert preferences is not None
    utility = {name: (preferences * found.values[name]).sum(axis=1) for name in ("test", "own-test")}
    late = [row["staleness"] for row in result.history if row.get("staleness") is not None]
    return {
        "clock": [row["clock"] for row in rows],
        "joules": [row["joules"] for row in rows],
        "hypervolume": [row["hypervolume"] for row in rows],
        "accuracy": [row["sent"]["test"][0] for row in rows],
        "staleness": float(np.mean(late)) if late else 0.0,
        "tier": flight.fleet.tier.tolist(),
        "tasks": flight.number.tolist(),
        "utility": utility["test"].tolist(),
        "own utility": utility["own-test"].tolist(),
    }


def run_missing(file: Path, spec: Spec) -> str:
    """Runs one seed and keeps what came out; its file's name."""
    file.write_text(json.dumps(outcome(spec)))
    return file.stem


# -- what came out -------------------------------------------------------------------------------------------------


def settled(one: dict[str, Any], measure: str) -> float:
    """When a seed's measure came within 5 % of its final value for good."""
    values = np.array(one[measure])
    far = np.flatnonzero(np.abs(values - values[-1]) > 0.05 * abs(values[-1]))
    return float(one["clock"][far[-1] + 1 if len(far) else 0])


def measures(one: dict[str, Any]) -> dict[str, float]:
    """The columns of the table, of one seed."""
    utility, tier, tasks = np.array(one["own utility"]), np.array(one["tier"]), np.array(one["tasks"])
    shared = np.array(one["utility"])
    return {
        "hours to 95 % of hypervolume": settled(one, "hypervolume") / 3600,
        "of accuracy": settled(one, "accuracy") / 3600,
        "hours": one["clock"][-1] / 3600,
        "MJ": one["joules"][-1] / 1e6,
        "hypervolume": one["hypervolume"][-1],
        "utility": float(shared.mean()),
        "worst": float(shared.min()),
        "Jain": jain_index(shared),
        "phones": float(utility[tier == 0].mean()),
        "servers": float(utility[tier == 2].mean()),
        "tasks of phones": float(tasks[tier == 0].mean()),
        "tasks of servers": float(tasks[tier == 2].mean()),
        "staleness": one["staleness"],
    }


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Means and deviations over the seeds, in Markdown."""
    lines: list[str] = []
    for name, seeds in found.items():
        of_seeds = [measures(one) for one in seeds]
        if not lines:
            lines += [f"| run | {' | '.join(of_seeds[0])} |", "|---" * (len(of_seeds[0]) + 1) + "|"]
        cells = []
        for key in of_seeds[0]:
            values = np.array([one[key] for one in of_seeds])
            cells.append(f"{values.mean():.3g} ± {values.std(ddof=1):.1g}" if len(values) > 1 else f"{values[0]:.3g}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Hypervolume over simulated hours: FedAvg and its relatives, and FedPref."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, start in zip(
        figure.subplots(1, 2, sharey=True), (("fedavg", "fedbuff", "fedasync"), ("fedpref",)), strict=True
    ):
        for name, seeds in found.items():
            if not name.startswith(start) or "," in name:
                continue
            grid = np.linspace(0, max(one["clock"][-1] for one in seeds), 200)
            lines = [
                np.array(one["hypervolume"])[np.searchsorted(one["clock"], grid, side="right") - 1] for one in seeds
            ]
            axes.plot(grid / 3600, np.mean(lines, axis=0), label=name)
        axes.set_xlabel("simulated hours")
        axes.legend(fontsize=8)
        axes.set_xscale("symlog", linthresh=0.1)
    figure.axes[0].set_ylabel("hypervolume")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Runs what is missing, or shows what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--problem", choices=PROBLEMS, default="synthetic")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=10_000, help="of a run")
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds of the policy deadline")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--only", default="", help="runs whose names begin with this")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    folder = given.folder / given.problem
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        name: [folder / f"{name}, seed {seed}.json" for seed in range(given.seeds)] for name, _ in configurations()
    }
    if not given.table and given.picture is None:
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
            under_way = [
                pool.submit(run_missing, file, spec_of(given.problem, about, seed, given.updates, given.deadline))
                for name, about in configurations()
                for seed, file in enumerate(files[name])
                if name.startswith(given.only) and not file.exists()
            ]
            for done in as_completed(under_way):
                print(done.result(), flush=True)
    read = {
        name: [json.loads(file.read_text()) for file in of_seeds if file.exists()] for name, of_seeds in files.items()
    }
    found = {name: seeds for name, seeds in read.items() if seeds}
    if given.table:
        print(table(found))
    if given.picture is not None:
        picture(found, given.picture)


if __name__ == "__main__":
    main()
