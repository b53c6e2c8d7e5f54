"""Architectures by NSGA-II: widths of hidden layers alone, against widths and sparsity, for accuracy and bytes.

    python benchmarks/sparse_tuning.py --out runs/architectures

Both searches have as many trials, and the same sampler's seeds. Candidates are chosen by validation rows: for each
budget the most accurate one, among all trials of a search, whose run sends no more. Those are trained again with seeds
of their own, which no search has seen, and reported on test rows. The picture has all trials on validation rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fedpareto
from fedpareto.campaigns.tuning.study import Tried
from fedpareto.report.style import colour, render, styled
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft

BASE = {
    "problem": {"name": "adult"},
    "algorithm": "fedavg",
    "clients": 10,
    "rounds": 10,
    "evaluate_every": 10,
    "preferences": [1.0, 0.0],
    "engine": {"threads": 1, "chunk": 10},
}
WIDTHS: dict[str, Any] = {
    "problem.hidden": {"low": 0, "high": 64, "layers": 2},
    "learner.lr": {"low": 0.002, "high": 0.05, "log": True},
}
SEARCHES = {
    "widths": WIDTHS,
    "widths and sparsity": WIDTHS | {"problem.sparsity": {"low": 0.5, "high": 20, "log": True}},
}
BUDGETS = (100e3, 200e3, 400e3, 800e3, 1600e3)
"""Bytes of all messages of a run."""
TICKS = (100, 200, 500, 1000, 2000, 5000)
"""Of the picture, in kB."""


def searched(search: str, seeds: int, trials: int, out: Path) -> list[Tried]:
    """All candidates of a search with several of the sampler's seeds."""
    found: list[Tried] = []
    for seed in range(seeds):
        how = {"objectives": ["accuracy", "bytes"], "trials": trials, "population": 10, "seed": seed}
        outcome = fedpareto.tune(BASE | {"tune": {"search": SEARCHES[search], **how}}, out / f"{search} {seed}")
        found += [one for one in outcome.tried if one.counts]
    return found


def within(tried: Sequence[Tried], budget: float) -> Tried | None:
    """The most accurate one on validation rows that sends no more; None: all send more."""
    able = [one for one in tried if one.values["bytes"] <= budget]
    return max(able, key=lambda one: one.values["accuracy"]) if able else None


def tested(parameters: Mapping[str, Any], seeds: Sequence[int]) -> np.ndarray:
    """The accuracy on test rows, mean over clients, of each seed."""
    draft = Draft(BASE | {"seeds": list(seeds)}).with_settings(
        [f"{key}={json.dumps(value)}" for key, value in parameters.items()]
    )
    return np.array([one.points[:, 0].mean() for one in start(draft.finish()).solutions])


@styled
def picture(tried: Mapping[str, Sequence[Tried]]) -> Any:
    """Accuracy on validation rows over bytes: all trials, and what is best for any budget."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, (name, some) in enumerate(tried.items()):
        ordered = sorted(some, key=lambda one: one.values["bytes"])
        sent, right = (np.array([one.values[key] for one in ordered]) for key in ("bytes", "accuracy"))
        axes.plot(sent / 1e3, right, "o", color=colour(number), ms=3, alpha=0.35, mew=0)
        axes.step(sent / 1e3, np.maximum.accumulate(right), where="post", color=colour(number), label=name)
    axes.set_xscale("log")
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes.set_ylim(0.75)
    axes.set_xlabel("kB of all messages of a run (lower is better)")
    axes.set_ylabel("accuracy on validation rows (higher is better)")
    axes.legend(loc="lower right")
    return figure


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--searches", type=int, default=1, help="seeds of the sampler")
    parser.add_argument("--seeds", type=int, default=3, help="of the trainings that are tested")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tried = {search: searched(search, given.searches, given.trials, given.out) for search in SEARCHES}
    (given.out / "architectures.png").write_bytes(render(picture(tried), "png"))
    print("| kB | searched | hidden | ε | kB sent | validation | test |\n|---|---|---|---|---|---|---|")
    known: dict[str, np.ndarray] = {}
    for budget in BUDGETS:
        for search, some in tried.items():
            one = within(some, budget)
            if one is None:
                print(f"| {budget / 1e3:g} | {search} | all send more | | | | |")
                continue
            key = json.dumps(one.parameters)
            right = known[key] = known[key] if key in known else tested(one.parameters, range(1, given.seeds + 1))
            widths = ", ".join(map(str, one.parameters["problem.hidden"])) or "none"
            epsilon = one.parameters.get("problem.sparsity")
            print(
                f"| {budget / 1e3:g} | {search} | {widths} | {'' if epsilon is None else f'{epsilon:.2g}'} | "
                f"{one.values['bytes'] / 1e3:.0f} | {one.values['accuracy']:.4f} | "
                f"{right.mean():.4f} ± {right.std(ddof=1):.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
