"""Where the model is put together: on the ground, over a geostationary relay, or nowhere; docs/space-missions.md.

The comparison of Östman et al. 2023: forty satellites learn MNIST with a server that they reach over three stations,
with one that they reach over a geostationary relay, and as a swarm without any. `python benchmarks/places.py` prints
hours and energy until they are equally good; then one mission for each thing that can go wrong, with what was lost.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.runs import runner
from fedpareto.runs.loop import Experiment
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto_space.missions.schemes import changed_to

HOURS, ROUNDS, TRAINING = 72.0, 40, 600.0
TARGETS = (0.7, 0.8, 0.85)
PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "ground": ("fedavg", {}),
    "relay": ("fedavg", {"stations": [], "relays": [10.0]}),
    "three relays": ("fedavg", {"stations": [], "relays": [10.0, 130.0, 250.0]}),
    "swarm": ("dsfl", {}),
}
"""A scheme, and what the engine has besides."""
MISHAPS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "bit flips": {"mishaps": [f"flip sat-{plane}-1 at {5 * plane}" for plane in range(1, 5)]},
    "eclipse, no battery": {"solar_watts": 30.0},
    "eclipse, 4 Wh": {"solar_watts": 30.0, "battery": 4.0, "idle_watts": 5.0},
    "a dead station": {"mishaps": ["dead svalbard at 8"]},
    "a lost satellite": {"mishaps": ["lost sat-1-3 at 8"], "timeout": 8.0},
    "a new server": {"mishaps": ["server at 12"], "handover": 30.0},
}


def values_of(seeds: int, engine: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A mission as in its file."""
    return {
        "problem": {"name": "mnist", "model": "mlp", "hidden": [48], "rows": 10_000, "alpha": 0.3},
        "learner": {"epochs": 3, "batch_size": 32, "lr": 0.1},
        "seeds": seeds,
        "rounds": ROUNDS,
        "hours": HOURS,
        "codec": "int8-delta",
        "devices": {"kind": "equal", "speed": 1.0, "compute_watts": 15.0, "radio_watts": 10.0},
        "engine": {"shell": "40/4/1", "threads": 1, "chunk": 64, "between": 64_000.0, **engine},
        **changes,
    }


def timed(values: dict[str, Any], scheme: str) -> dict[str, Any]:
    """The same with machines that take ten minutes for one training."""
    draft = Draft(changed_to(scheme, values)).finish()
    speed = float(backends.local(draft).operations(0).mean()) / TRAINING
    return changed_to(scheme, values | {"devices": values["devices"] | {"speed": speed}})


def compare(seeds: int) -> None:
    """Hours and energy of each place until the model is as good."""
    print("| place | " + " | ".join(f"hours, MJ to {target:.0%}" for target in TARGETS) + " | rounds | best |")
    print("|---" * (len(TARGETS) + 3) + "|")
    for place, (scheme, engine) in PLACES.items():
        spec = Draft(timed(values_of(seeds, engine), scheme)).finish()
        history = Experiment(spec, backends.local(spec), keep_models=False).run().history
        cells = []
        for target in TARGETS:
            first = [_first(history, seed, target) for seed in spec.seeds]
            there = [one for one in first if one is not None]
            means = np.mean(there, axis=0) if there else ()
            few = "" if len(there) == len(first) else f" ({len(there)} of {len(first)})"
            cells.append(f"{means[0] / 3600:.1f}, {means[1] / 1e6:.2f}{few}" if there else "never")
        best = np.mean([max(row["sent"]["test"][0] for row in _of(history, seed)) for seed in spec.seeds])
        rounds = np.mean([_of(history, seed)[-1]["round"] for seed in spec.seeds])
        print(f"| {place} | {' | '.join(cells)} | {rounds:.0f} | {best:.3f} |", flush=True)


def _of(history: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    return [row for row in history if row["seed"] == seed and row.get("sent")]


def _first(history: list[dict[str, Any]], seed: int, target: float) -> tuple[float, float] | None:
    """When a seed was first that good, and what had been spent by then."""
    good = [row for row in _of(history, seed) if row["sent"]["test"][0] >= target]
    return (good[0]["clock"], good[0]["joules"]) if good else None


def disturb() -> None:
    """A day with each thing that can go wrong: every mission ends, and says what was lost."""
    print("\n| what goes wrong | rounds | replies | accuracy | faults |\n|---|---|---|---|---|")
    for name, engine in MISHAPS.items():
        policy = {"kind": "buffered", "buffer": 8}
        values = timed(values_of(1, engine, hours=24.0, rounds=1000, evaluate_every=50, policy=policy), "fedbuff")
        with tempfile.TemporaryDirectory() as folder:
            result = runner.start(Draft(values | {"policy": policy}).finish(), Path(folder) / "run")
            lines = [json.loads(line) for line in (Path(folder) / "run" / "mission.jsonl").read_text().splitlines()]
        faults = Counter(line["fault"] for line in lines if line["what"] == "fault")
        last, replies = result.history[-1], sum(row["replies"] for row in result.history)
        told = "; ".join(f"{count} × {fault}" for fault, count in faults.items()) or "none"
        print(f"| {name} | {last['round']} | {replies} | {last['sent']['test'][0]:.3f} | {told} |", flush=True)


def main() -> None:
    """Both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    compare(given.seeds)
    disturb()


if __name__ == "__main__":
    main()
