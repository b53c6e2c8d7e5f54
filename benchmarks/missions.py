"""How long satellites learn until their model is good, by scheme and codec; docs/space-missions.md.

Forty satellites learn MNIST over three stations for 72 hours. What decides is ρ, the bytes of an update by those of a
contact: the links are made so slow that it is 0.3, 2 and 10. `python benchmarks/missions.py runs/missions` runs what is
missing there, `--jobs` at a time; then `--table` prints hours until 90 % of the test rows are right, and `--picture
FILE` draws them.
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
from fedpareto_space.missions.schemes import changed_to
from fedpareto_space.missions.sky import sky_of

HOURS, TARGET, SEEDS = 72.0, 0.9, 5
TRAINING = 600.0
"""Seconds of one local training."""
RATIOS = (0.3, 2.0, 10.0)
CODECS = {"float32": "float32", "int8": "int8-delta", "int4": "int4-delta"}
SCHEMES = ("fedavg", "fedasync", "fedbuff", "fedspace", "fedgsm", "fedisl")
"""Six ways to learn; see `fedpareto space schemes`."""
LOOKS = {"fedavg": 1, "fedisl": 1, "fedasync": 16, "fedgsm": 2, "fedbuff": 2, "fedspace": 2}
"""Rounds between two looks at the model."""
ROUNDS = 100_000
"""More than there is time for."""


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each run, and what it is."""
    for ratio in RATIOS:
        for scheme in SCHEMES:
            for codec in CODECS:
                yield f"{scheme} {codec} {ratio:g}", {"scheme": scheme, "codec": codec, "ratio": ratio}


def spec_of(scheme: str, codec: str, ratio: float, seeds: int, hours: float) -> Spec:
    """One run of all seeds."""
    values: dict[str, Any] = {
        "problem": {"name": "mnist", "model": "mlp", "hidden": [48], "rows": 20_000, "alpha": 0.3},
        "learner": {"epochs": 5, "batch_size": 32, "lr": 0.1},
        "seeds": seeds,
        "rounds": ROUNDS,
        "hours": hours,
        "codec": CODECS[codec],
        "server_codec": CODECS[codec],
        "evaluate_every": LOOKS[scheme],
        "devices": {"kind": "equal", "speed": 1.0, "compute_watts": 15.0, "radio_watts": 10.0},
        "engine": {"shell": "40/4/1", "threads": 1, "chunk": 64, "timeout": 2 * hours},
    }
    spec = Draft(changed_to(scheme, values)).finish()
    rate = rate_of(spec, ratio)
    values["devices"] |= {"speed": float(backends.local(spec).operations(0).mean()) / TRAINING}
    values["engine"] |= {"down": rate, "up": rate}
    return Draft(changed_to(scheme, values)).finish()


def rate_of(spec: Spec, ratio: float) -> float:
    """Bits a second with which an update has so many times the bytes of a contact of median length."""
    contacts = sky_of(spec.engine, 24 * 3600.0).contacts
    median = float(np.median(contacts.ends - contacts.starts))
    return 8 * 4 * spec.problem.layout.size / (ratio * median)


def outcome(spec: Spec) -> list[dict[str, Any]]:
    """What each seed came to, by time."""
    experiment = Experiment(spec, backends.local(spec), keep_models=False)
    history = experiment.run().history
    found = []
    for run, seed in enumerate(spec.seeds):
        rows = [row for row in history if row["seed"] == seed]
        measured = [row for row in rows if row.get("sent")]
        late = [row["staleness"] for row in rows if row.get("staleness") is not None]
        found.append(
            {
                "clock": [row["clock"] for row in measured],
                "accuracy": [row["sent"]["test"][0] for row in measured],
                "updates": sum(row["replies"] for row in rows),
                "bytes": sum(row["bytes_up"] + row["bytes_down"] for row in rows),
                "joules": experiment.dispatch.flights[run].noted()["joules"],
                "staleness": float(np.mean(late)) if late else 0.0,
            }
        )
    return found


def run_missing(file: Path, about: dict[str, Any], seeds: int, hours: float) -> str:
    """Runs one scheme and keeps what came out; its name."""
    file.write_text(json.dumps(outcome(spec_of(**about, seeds=seeds, hours=hours))))
    return file.stem


# -- what came out -------------------------------------------------------------------------------------------------


def hours_to(one: dict[str, Any], target: float = TARGET) -> float:
    """When a seed was first that good; infinite: never."""
    good = np.flatnonzero(np.array(one["accuracy"]) >= target)
    return float(one["clock"][good[0]]) / 3600 if len(good) else np.inf


def cell(seeds: list[dict[str, Any]]) -> str:
    """Mean and half of the 95 % interval of hours over the seeds; what was reached, where some never got there."""
    hours = np.array([hours_to(one) for one in seeds])
    if np.isfinite(hours).all():
        half = 2.776 * hours.std(ddof=1) / np.sqrt(len(hours)) if len(hours) == SEEDS else hours.std()
        return f"{hours.mean():.1f} ± {half:.1f}"
    best = np.mean([max(one["accuracy"]) for one in seeds])
    there = np.isfinite(hours).sum()
    return f"{there} of {len(hours)} ({best:.3f})" if there else f"never ({best:.3f})"


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Hours until the target, in Markdown; in brackets the best accuracy within the mission."""
    lines = [f"| ρ | codec | {' | '.join(SCHEMES)} |", "|---" * (len(SCHEMES) + 2) + "|"]
    for ratio in RATIOS:
        for codec in CODECS:
            seeds = [found.get(f"{scheme} {codec} {ratio:g}") for scheme in SCHEMES]
            lines.append(f"| {ratio:g} | {codec} | {' | '.join(cell(one) if one else '' for one in seeds)} |")
    return "\n".join(lines)


def costs(found: dict[str, list[dict[str, Any]]]) -> str:
    """Updates, megabytes, megajoules and staleness of whole missions, in Markdown."""
    lines = ["| run | updates | MB | MJ | staleness | best accuracy |", "|---|---|---|---|---|---|"]
    for name, seeds in found.items():
        means = [np.mean([one[key] for one in seeds]) for key in ("updates", "bytes", "joules", "staleness")]
        best = np.mean([max(one["accuracy"]) for one in seeds])
        row = f"{means[0]:.0f} | {means[1] / 1e6:.1f} | {means[2] / 1e6:.2f} | {means[3]:.1f} | {best:.3f}"
        lines.append(f"| {name} | {row} |")
    return "\n".join(lines)


def picture(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Accuracy over simulated hours: a row for each ρ, a column for each codec."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 8), layout="constrained")
    grid = np.linspace(0, HOURS * 3600, 300)
    for row, (of_row, ratio) in enumerate(zip(figure.subplots(3, 3, sharex=True, sharey=True), RATIOS, strict=True)):
        for column, (axes, codec) in enumerate(zip(of_row, CODECS, strict=True)):
            for scheme in SCHEMES:
                seeds = found.get(f"{scheme} {codec} {ratio:g}", [])
                lines = [
                    np.array(one["accuracy"])[np.searchsorted(one["clock"], grid, side="right") - 1] for one in seeds
                ]
                if lines:
                    axes.plot(grid / 3600, np.mean(lines, axis=0), label=scheme)
            axes.axhline(TARGET, color="grey", linewidth=0.5)
            axes.set_title(f"ρ = {ratio:g}, {codec}", fontsize=9)
            if row == len(RATIOS) - 1:
                axes.set_xlabel("simulated hours")
            if not column:
                axes.set_ylabel("accuracy")
    figure.axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Runs what is missing, or shows what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--hours", type=float, default=HOURS)
    parser.add_argument("--jobs", type=int, default=1, help="schemes at a time")
    parser.add_argument("--only", default="", help="runs whose names begin with this")
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
                if name.startswith(given.only) and not files[name].exists()
            ]
            for done in as_completed(under_way):
                print(done.result(), flush=True)
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    if given.table:
        print(table(found), "", costs(found), sep="\n")
    if given.picture is not None:
        picture(found, given.picture)


if __name__ == "__main__":
    main()
