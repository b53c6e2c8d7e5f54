"""Three agencies with different preferences learn over contacts for 72 hours; docs/space-missions.md.

Each agency has a plane of four satellites, which learn who earns how much (UCI Adult): one agency wants accuracy, one
parity, one both alike. `python benchmarks/agencies.py runs/agencies` runs what is missing there, `--jobs` at a time;
then `--table` prints what came out and `--picture FILE` draws hypervolume and fronts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.runs.loop import Experiment
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec

HOURS, SEEDS = 72.0, 5
ALGORITHMS = ("fedavg", "fedpref", "fedmgda-plus", "fedcmoo", "praffl")
POLICIES: dict[str, Any] = {"sync": "sync", "buffered": {"kind": "buffered", "buffer": 4}}
WAITING = ("fedcmoo",)
"""Those for which a late reply has no meaning."""
AGENCIES = ((0.9, 0.1), (0.5, 0.5), (0.1, 0.9))
"""What each weighs accuracy and parity with."""
EACH = 4
"""Satellites of an agency."""
TRAINING = 600.0
"""Seconds of one local training."""
HOURS_SHOWN = (6, 12, 24, 48, 72)


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each run, and what it is."""
    for algorithm in ALGORITHMS:
        for policy in ("sync",) if algorithm in WAITING else POLICIES:
            yield f"{algorithm} {policy}", {"algorithm": algorithm, "policy": POLICIES[policy]}


def spec_of(about: dict[str, Any], seeds: int, hours: float) -> Spec:
    """One run of all seeds."""
    values = {
        "problem": "adult",
        "preferences": [list(one) for one in AGENCIES for _ in range(EACH)],
        "learner": {"lr": 0.1},
        "seeds": seeds,
        "rounds": 10_000,
        "hours": hours,
        "codec": "float32-delta",
        "devices": {"kind": "equal", "speed": 1.0, "compute_watts": 15.0, "radio_watts": 10.0},
        "engine": {
            "name": "mission", "shell": "12/3/1", "stations": ["kiruna", "redu", "troll"], "timeout": 2 * hours,
            "threads": 1, "chunk": 64,
        },
        **about,
    }  # fmt: skip
    operations = float(backends.local(Draft(values).finish()).operations(0).mean())
    return Draft(values | {"devices": {**values["devices"], "speed": operations / TRAINING}}).finish()


def outcome(spec: Spec) -> list[dict[str, Any]]:
    """What each seed came to, by time; of the end, each satellite's objectives."""
    result = Experiment(spec, backends.local(spec), keep_models=False).run()
    found = []
    for run, seed in enumerate(spec.seeds):
        rows = [row for row in result.history if row["seed"] == seed]
        measured = [row for row in rows if row.get("hypervolume") is not None]
        solutions = result.solutions[run]
        replies = max(sum(row["replies"] for row in rows), 1)
        assert solutions.preferences is not None, "satellites have the preferences of their agencies"
        points = solutions.values["test"]
        found.append(
            {
                "clock": [row["clock"] for row in measured],
                "hypervolume": [row["hypervolume"] for row in measured],
                "bytes": np.cumsum([row["bytes_up"] + row["bytes_down"] for row in measured]).tolist(),
                "up": sum(row["bytes_up"] for row in rows) / replies,
                "rounds": rows[-1]["round"],
                "points": points.tolist(),
                "utility": (solutions.preferences * points).sum(axis=1).tolist(),
            }
        )
    return found


def run_missing(file: Path, about: dict[str, Any], seeds: int, hours: float) -> str:
    """Runs one algorithm and keeps what came out; its name."""
    file.write_text(json.dumps(outcome(spec_of(about, seeds, hours))))
    return file.stem


# -- what came out -------------------------------------------------------------------------------------------------


def at(one: dict[str, Any], hours: float) -> float:
    """The hypervolume of a seed after so many hours."""
    return float(one["hypervolume"][np.searchsorted(one["clock"], 3600 * hours, side="right") - 1])


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Means and deviations over the seeds, in Markdown."""
    head = [*(f"{hours} h" for hours in HOURS_SHOWN), "agency 1", "agency 2", "agency 3", "rounds", "kB a reply", "MB"]
    lines = [f"| hypervolume after | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for name, seeds in found.items():
        columns = [[at(one, hours) for one in seeds] for hours in HOURS_SHOWN]
        columns += [[np.mean(one["utility"][EACH * k : EACH * (k + 1)]) for one in seeds] for k in range(len(AGENCIES))]
        cells = [f"{np.mean(column):.3f} ± {np.std(column, ddof=1):.3f}" for column in columns]
        cells += [f"{np.mean([one['rounds'] for one in seeds]):.0f}"]
        cells += [f"{np.mean([one['up'] for one in seeds]) / 1e3:.1f}"]
        cells += [f"{np.mean([one['bytes'][-1] for one in seeds]) / 1e6:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Hypervolume over simulated hours, and what each satellite got at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    over_time, front = figure.subplots(1, 2)
    grid = np.linspace(0, HOURS, 300)
    for name, seeds in found.items():
        lines = [[at(one, hours) for hours in grid] for one in seeds]
        (line,) = over_time.plot(grid, np.mean(lines, axis=0), label=name)
        points = np.mean([one["points"] for one in seeds], axis=0)
        front.plot(*points.T, "o", color=line.get_color(), markersize=4, label=name)
    over_time.set(xlabel="simulated hours", ylabel="hypervolume")
    front.set(xlabel="accuracy", ylabel="demographic parity", title="each satellite after 72 h, mean of seeds")
    over_time.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Runs what is missing, or shows what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--hours", type=float, default=HOURS)
    parser.add_argument("--jobs", type=int, default=1, help="algorithms at a time")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    files = {name: given.folder / f"{name.replace(' ', '_')}.json" for name, _ in configurations()}
    if not given.table and given.picture is None:
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
            under_way = [
                pool.submit(run_missing, files[name], about, given.seeds, given.hours)
                for name, about in configurations()
                if not files[name].exists()
            ]
            for done in as_completed(under_way):
                print(done.result(), flush=True)
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    if given.table:
        print(table(found))
    if given.picture is not None:
        picture(found, given.picture)


if __name__ == "__main__":
    main()
