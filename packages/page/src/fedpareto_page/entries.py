"""Entries of the shelf: a run in short."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.record.entries import Line
from fedpareto.record.lines import NUMBERS
from fedpareto.record.run_record import Record, mean_and_deviation
from fedpareto_page.run import Run

SPARK = 40
"""Most numbers of a small curve."""
TOLD = ("algorithm", "problem", "held_out", "own_split", "measured", "clients", "rounds", "attack", "defence")
"""Entries of a record that are told as they are."""


def entry(run: Run, label: str, deployment: str | None = None) -> dict[str, Any]:
    if run.is_starting:
        return _starting(run, deployment)
    if run.error is not None:
        return {"id": run.id, "name": run.name, "error": run.error}
    about, sums = run.about, summed(run)
    return {
        "id": run.id,
        "name": run.name,
        "label": label,
        **{name: getattr(about, name) for name in TOLD},
        "objectives": [
            {
                "name": one.name,
                "maximise": one.maximise,
                "reference": finite(one.reference),
                "fairness": one.fairness,
            }
            for one in about.objectives
        ],
        "splits": list(about.splits),
        "seeds": list(about.seeds),
        "started": [seed for seed in about.seeds if seed in sums.seeds],
        "status": run.plain_status,
        "began": about.began or None,
        "changed": run.following.changed,
        "lines": len(run.lines),
        "epoch": run.following.epoch,
        **{name: getattr(sums, name) for name in ("headline", "spark", "failures", "bytes_up", "bytes_down")},
        "private": run.is_private,
        "servable": run.is_servable,
        "spec": run.spec,
        "has": {**sums.has, "mission": (run.folder / "mission.json").is_file()},
        "deployment": deployment,
        "error": None,
    }


def _starting(run: Run, deployment: str | None) -> dict[str, Any]:
    """A run of which only the spec is known: its data are being read."""
    algorithm, problem = (str(run.spec.get(key, "")) for key in ("algorithm.name", "problem.name"))
    return {
        "id": run.id,
        "name": run.name,
        "label": algorithm or run.name,
        "algorithm": algorithm,
        "problem": problem,
        **dict.fromkeys(("objectives", "splits", "started", "spark"), ()),
        **dict.fromkeys(("held_out", "own_split", "measured", "attack", "defence"), ""),
        **dict.fromkeys(("lines", "epoch", "failures", "bytes_up", "bytes_down"), 0),
        **dict.fromkeys(("began", "headline", "error"), None),
        **{key: run.spec.get(key) for key in ("seeds", "clients", "rounds")},
        "status": run.plain_status | {"name": "starting"},
        "changed": run.following.changed,
        "private": run.is_private,
        "servable": False,
        "spec": run.spec,
        "has": dict.fromkeys(("clusters", "similarity", "grid", "mission", "losses"), False),
        "deployment": deployment,
    }


@dataclass(frozen=True)
class Sums:
    """Figures that follow from all lines of a run."""

    seeds: frozenset[int]
    headline: list[Any] | None
    """Name of the measure, its mean over seeds, and the deviation."""
    spark: list[float | None]
    """The measure over rounds, mean over seeds."""
    failures: int
    bytes_up: int
    bytes_down: int
    has: Mapping[str, bool]


def summed(run: Run) -> Sums:
    """Sum a run up; again only when there are other lines or solutions."""
    version = run.following.version
    if run.sums is None or run.sums[0] != version:
        run.sums = version, _summed(run)
    found = run.sums[1]
    assert isinstance(found, Sums)
    return found


def _summed(run: Run) -> Sums:
    about, lines = run.about, run.following.kept
    assert lines is not None, "run.json can be read"
    numbers = lines.numbers()
    by_name = dict(zip(NUMBERS, numbers.T, strict=False))
    held_out = about.splits.index(about.held_out)
    values = lines.averages(numbers)[:, 0, held_out, 0] if about.single else by_name["hypervolume"]
    seeds = [lines.seed_of(place) for place in range(len(lines))]
    by_seed: dict[int, dict[int, float]] = {}
    for seed, r, value in zip(seeds, by_name["round"].astype(int).tolist(), values.tolist(), strict=True):
        if seed in about.seeds and not math.isnan(value):
            by_seed.setdefault(seed, {})[r] = value
    common = sorted(set.intersection(*map(set, by_seed.values()))) if by_seed else []
    curve = np.array([[of_seed[r] for r in common] for of_seed in by_seed.values()]).reshape(len(by_seed), len(common))
    ends = _ends(run, about)
    if ends is None and len(common):
        ends = curve[:, -1]
    elif ends is None and run.following.left and not about.single:
        newest = run.following.glimpse().get("hypervolume")
        ends = np.array([newest if isinstance(newest, int | float) else np.nan])
    chosen = np.unique(np.linspace(0, max(len(common) - 1, 0), min(SPARK, len(common))).round().astype(int))
    what = f"mean {about.objectives[0].name}" if about.single else "hypervolume"
    return Sums(
        seeds=frozenset(seeds),
        headline=None if ends is None or np.isnan(ends).all() else [what, *map(finite, mean_and_deviation(ends))],
        spark=[finite(curve[:, i].mean()) for i in chosen],
        failures=int(by_name["failures"].sum()),
        bytes_up=int(by_name["bytes_up"].sum()),
        bytes_down=int(by_name["bytes_down"].sum()),
        has=_has(lines),
    )


def _ends(run: Run, about: Record) -> np.ndarray | None:
    """Measure at the end of each seed that ended, from solutions.json."""
    found = run.following.solutions.value
    if not found:
        return None
    if about.single:
        return np.array([one.objectives[about.held_out][:, 0].mean() for one in found.values()])
    return np.array([one.indicators.get("hypervolume", np.nan) for one in found.values()])


def _has(lines: Sequence[Line]) -> dict[str, bool]:
    """Kinds of data that some rounds have; the first of them may be without."""
    some = [lines[place] for place in sorted({0, len(lines) // 2, len(lines) - 1})] if lines else []
    blocks = {name for line in some for name in line.columns.blocks(line.row)}
    return {
        "clusters": "clusters" in blocks or any(line.few_clusters is not None for line in some),
        "similarity": any(line.packed is not None for line in some),
        "grid": "traffic" in blocks,
        "losses": "losses" in blocks,
    }


def finite(value: float) -> float | None:
    """A number for JSON, which has no infinite ones."""
    return float(value) if math.isfinite(value) else None


def finite_rows(points: np.ndarray) -> list[list[float | None]]:
    """Rows of numbers; null where one is not finite."""
    return [[finite(value) for value in row] for row in points.tolist()]
