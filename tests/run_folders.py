"""Run folders as the experiment runner writes them, of a made-up but plausible federation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedpareto.moo.indicators import all_indicators, hypervolume, own_utilities
from fedpareto.moo.preferences import equidistant, groups
from fedpareto.record.columns import in_folder
from fedpareto.record.parsing import FORMAT

# How close to the known front an algorithm gets, and how much its clients differ.
CHARACTERS = {"fedpref": (0.03, 0.95), "fedavg": (0.12, 0.1), "local": (0.2, 1.0), "fedprox": (0.1, 0.35)}
NAMES = ("accuracy", "equal opportunity gap", "log loss", "energy", "latency", "calibration error")

WriteRun = Callable[..., Path]


def _objectives(m: int) -> list[dict]:
    """The first is maximised, the others are minimised."""
    return [{"name": NAMES[j], "maximise": j == 0, "reference": 0.0 if j == 0 else 1.3} for j in range(m)]


def _losses(wishes: np.ndarray) -> np.ndarray:
    return 0.9 * (1 - wishes) ** 2


def _signed(losses: np.ndarray) -> np.ndarray:
    values = losses.copy()
    values[:, 0] = 1 - losses[:, 0]
    return values


def _points(algorithm: str, preferences: np.ndarray, progress: float, rng: np.random.Generator) -> np.ndarray:
    distance, freedom = CHARACTERS.get(algorithm, (0.1, 0.5))
    wishes = freedom * preferences + (1 - freedom) / preferences.shape[1]
    noise = rng.normal(0, 0.012, preferences.shape)
    return _signed(_losses(wishes) + distance + 0.35 * (1 - progress) ** 2 + noise)


def _clusters(preferences: np.ndarray, r: int, rounds: int) -> list[list[int]]:
    """One cluster, then two halves of the preferences, then one per preference."""
    labels = np.unique(preferences, axis=0, return_inverse=True)[1].ravel()
    if r < rounds / 3:
        labels = np.zeros_like(labels)
    elif r < 2 * rounds / 3:
        labels = labels // 2
    return [np.flatnonzero(labels == c).tolist() for c in np.unique(labels)]


def _similarity(preferences: np.ndarray, progress: float, rng: np.random.Generator) -> list[list[float]]:
    gaps = np.abs(preferences[:, None] - preferences[None]).sum(-1)
    noise = rng.normal(0, 0.05, gaps.shape)
    values = np.clip(0.9 - gaps * (0.4 + 1.2 * progress) + noise + noise.T, -1, 1)
    np.fill_diagonal(values, 1.0)
    return values.tolist()


def _write_run(
    folder: Path,
    algorithm: str = "fedavg",
    *,
    problem: str = "synthetic",
    seeds: tuple[int, ...] = (0, 1, 2),
    sizes: tuple[int, ...] | None = None,
    clients: int = 10,
    m: int = 2,
    rounds: int = 12,
    reached: int | None = None,
    status: str = "finished",
    clustered: bool = False,
    known: bool = False,
    constant: bool = False,
    measured: bool = False,
    slow: float = 0.0,
    splits: tuple[str, ...] = ("train", "test"),
    events: list[dict] | None = None,
    extra: dict | None = None,
) -> Path:
    folder.mkdir(parents=True)
    preferences = groups(sizes, m=m) if sizes else equidistant(clients, m)
    clients = len(preferences)
    objectives = _objectives(m)
    maximise, reference = [o["maximise"] for o in objectives], [o["reference"] for o in objectives]
    front = _signed(_losses(equidistant(40 if m == 2 else 21, m))) if known else None
    run = {
        "format": FORMAT,
        "algorithm": algorithm,
        "problem": problem,
        "seeds": list(seeds),
        "clients": clients,
        "rounds": rounds,
        "objectives": objectives,
        "splits": list(splits),
        "known_front": None if front is None else front.tolist(),
        "versions": {"fedpareto": "0.1.0", "torch": "2.6.0"},
        "choices": {"threads": 1, "chunk": 10},
    } | (extra or {})
    reached = rounds if reached is None else reached
    lines, solutions = [], []
    columns = in_folder(folder, clients, splits, m)
    for seed in seeds:
        rng = np.random.default_rng([seed, len(algorithm)])
        for r in range(reached + 1):
            progress = 1.0 if constant else r / rounds
            drawn = np.random.default_rng(0) if constant else rng
            sent = {split: _points(algorithm, preferences, progress, drawn) for split in splits}
            held_out = sent[splits[-1]]
            blocks = {"sent": columns.put(np.stack(list(sent.values()), axis=1))}
            line = {
                "seed": seed,
                "round": r,
                "columns": blocks,
                "sent": _means(sent),
                "trained": None,
                "hypervolume": 0.5 if constant else hypervolume(held_out, reference, maximise),
                "trained_hypervolume": None,
                "seconds": 0.1 + 0.01 * seed,
                "replies": clients if r < rounds else 0,
                "failures": 1 if r == 1 and events else 0,
                "bytes_up": 1000 * clients if r < rounds else 0,
                "bytes_down": 1000 * clients,
            }
            if r < rounds:
                trained = {split: points[1:] for split, points in sent.items()}
                line["trained"], line["trained_hypervolume"] = _means(trained), line["hypervolume"] * 1.03
                blocks["trained"] = columns.put(np.stack(list(trained.values()), axis=1), np.arange(1, clients))
            if measured:
                blocks["losses"] = columns.put(rng.uniform(size=clients))
                who = np.arange(0, clients if r < rounds else 0, 2)
                blocks["participants"] = columns.put(np.zeros((len(who), 0)), who)
            if slow:  # Seconds that a round takes under seed 0; the others are slower, each by the same again.
                line |= {"clock": slow * (seed + 1) * r, "joules": 50.0 * r, "staleness": float(seed)}
            if clustered:
                line["clusters"] = _clusters(preferences, r, rounds)
                line["similarity"] = _similarity(preferences, progress, rng)
            lines.append(line)
        solutions.append(
            {
                "seed": seed,
                "clients": list(range(clients)),
                "preferences": preferences.tolist(),
                "objectives": {split: points.tolist() for split, points in sent.items()},
                "indicators": {
                    **all_indicators(held_out, reference, maximise, front, preferences),
                    "own_utility": own_utilities(held_out, preferences, maximise).mean(),
                },
            }
        )
    finished = status == "finished"
    _dump(folder / "run.json", run)
    _dump(folder / "status.json", {"status": status, "round": reached, "seconds": 3.4, "message": ""})
    (folder / "spec.yaml").write_text(f"algorithm: {algorithm}\nproblem: {problem}\n", encoding="utf-8")
    _dump_lines(folder / "metrics.jsonl", lines)
    _dump_lines(folder / "events.jsonl", events or [])
    if finished:
        _dump(folder / "solutions.json", solutions)
    return folder


def _means(points: dict[str, np.ndarray]) -> dict[str, list[float] | None]:
    return {split: of_split.mean(axis=0).tolist() if len(of_split) else None for split, of_split in points.items()}


def _dump(path: Path, value: object) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _dump_lines(path: Path, values: list[dict]) -> None:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")


@pytest.fixture(scope="session")
def write_run_at() -> WriteRun:
    """`write_run_at(folder, algorithm, ...)` writes a run folder anywhere."""
    return _write_run


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """`write_run(name, algorithm, ...)` writes a run folder below the test's folder."""
    return lambda name, *args, **choices: _write_run(tmp_path / name, *args, **choices)
