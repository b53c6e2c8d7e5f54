"""What privacy costs: utility and accuracy against ε as a front; docs/privacy.md.

`python benchmarks/privacy.py` sweeps over kinds and amounts of noise, one run for each seed, since ε counts all seeds
of a run together. `--clients 20 --seeds 1 --rounds 5` is quick. The folder is kept: a sweep goes on where it was.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import fedpareto
from fedpareto.moo.dominance import is_nondominated
from fedpareto.record.reading import load
from fedpareto.record.run_record import Record

NOISE = {"central": (1.0, 2.0, 4.0, 8.0, 16.0), "local": (0.5, 1.0, 2.0, 4.0, 8.0)}
Point = tuple[str, float, float, np.ndarray, np.ndarray]
"""Kind, z, ε, and the accuracy and own utility of each seed."""


def specs(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """One for each kind and seed, with a grid of noise; and without privacy."""
    base = {
        "problem": {"name": "synthetic", "rows": 100 * chosen.clients},
        "algorithm": {"name": chosen.algorithm} | ({"weighting": "equal"} if chosen.algorithm == "fedavg" else {}),
        "clients": chosen.clients,
        "rounds": chosen.rounds,
        "evaluate_every": chosen.rounds,
        "preferences": "equidistant",
    }
    kinds = ("local",) if chosen.algorithm != "fedavg" else tuple(NOISE)
    found = []
    for seed in range(chosen.seeds):
        found.append({**base, "sweep": {"seeds": [seed], "privacy.kind": ["none"]}})
        for kind in kinds:
            privacy = {"kind": kind, "clip": chosen.clip}
            found.append({**base, "privacy": privacy, "sweep": {"seeds": [seed], "privacy.noise": [*NOISE[kind]]}})
    return found


def points(records: list[Record]) -> list[Point]:
    """Over the seeds: runs that differ in nothing else."""
    groups: dict[tuple[str, float], list[Record]] = {}
    for record in records:
        privacy = yaml.safe_load(record.spec)["privacy"]
        noise = 0.0 if privacy["kind"] == "none" else float(privacy["noise"])
        groups.setdefault((privacy["kind"], noise), []).append(record)
    found = []
    for (kind, noise), runs in sorted(groups.items()):
        spent = runs[0].of_seed(runs[0].started[0])[-1].epsilon
        accuracy = np.array([run.points(run.held_out)[0][:, 0].mean() for run in runs])
        utility = np.concatenate([run.indicator("own_utility") for run in runs])
        found.append((kind, noise, np.inf if kind == "none" else spent, accuracy, utility))
    return found


def table(found: list[Point]) -> str:
    """A line for each, the front marked: no other has less ε and more accuracy."""
    values = np.array([[min(spent, 1e9), accuracy.mean()] for _, _, spent, accuracy, _ in found])
    best = is_nondominated(values, [False, True])
    lines = ["| privacy | z | ε | accuracy | own utility | on the front |", "|---|---|---|---|---|---|"]
    for (kind, noise, spent, accuracy, utility), is_best in zip(found, best, strict=True):
        both = " | ".join(f"{one.mean():.3f} ± {one.std():.3f}" for one in (accuracy, utility))
        z, epsilon = ("", "infinite") if kind == "none" else (f"{noise:g}", f"{spent:.3g}")
        lines.append(f"| {kind} | {z} | {epsilon} | {both} | {'yes' if is_best else ''} |")
    return "\n".join(lines)


def draw(found: list[Point], path: Path) -> None:
    """Accuracy against ε, the front as a staircase."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for kind, mark in (("central", "o"), ("local", "s")):
        own = [(spent, accuracy) for one, _, spent, accuracy, _ in found if one == kind]
        if own:
            axes.errorbar(
                [spent for spent, _ in own],
                [accuracy.mean() for _, accuracy in own],
                yerr=[accuracy.std() for _, accuracy in own],
                fmt=mark,
                label=kind,
                capsize=2,
            )
    order = sorted((spent, accuracy.mean()) for kind, _, spent, accuracy, _ in found if kind != "none")
    axes.step([e for e, _ in order], np.maximum.accumulate([a for _, a in order]), "k:", where="post", label="front")
    for kind, _, _, accuracy, _ in found:
        if kind == "none":
            axes.axhline(accuracy.mean(), color="grey", lw=1, label="without privacy")
    axes.set(xscale="log", xlabel="ε at δ = 1e-5, less is better", ylabel="mean test accuracy")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", default="fedavg")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clip", type=float, default=0.3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/privacy"))
    parser.add_argument("--picture", type=Path, help="a PNG")
    chosen = parser.parse_args()
    campaign = fedpareto.sweep(specs(chosen), chosen.out, jobs=chosen.jobs)
    found = points([load(run.folder) for run in campaign.runs])
    print(table(found))
    if chosen.picture is not None:
        draw(found, chosen.picture)


if __name__ == "__main__":
    main()
