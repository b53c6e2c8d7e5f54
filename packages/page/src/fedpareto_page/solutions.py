"""What a run ended with, and what its clients wanted: numbers of every client, so columns and not texts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fedpareto.record.entries import Solution
from fedpareto.record.run_record import Record
from fedpareto_page.entries import finite
from fedpareto_page.frames import frame
from fedpareto_page.run import Run


def solutions(run: Run, split: str) -> bytes:
    """A frame: by seed the final models' objectives `[m, k]` on a split and all clients' preferences `[n, m]`.

    A run that goes on has no solutions yet. Whose the models are is told where they are not those of clients 0, 1, ….
    """
    record = run.latest
    found = [_without_outliers(one, record) for one in record.solutions] if record.finished else []
    columns = {f"values.{one.seed}": one.objectives[split].T for one in found if split in one.objectives}
    wanted = preferences_of(run)
    columns |= {f"preferences.{seed}": points for seed, points in wanted.items()}
    return frame({"solutions": [_plain(one, record) for one in found]}, columns)


def preferences_of(run: Run) -> dict[int, np.ndarray]:
    """By seed, what each client wants, `[n, m]`; nothing where that stays with the clients, or is not known yet."""
    if run.is_private:
        return {}
    record = run.latest
    found = {seed: record.preferences(seed) for seed in record.started}
    return {seed: wishes for seed, wishes in found.items() if wishes is not None}


def _without_outliers(one: Solution, record: Record) -> Solution:
    if record.rank == 1 and not record.converged:
        return one
    kept = np.flatnonzero(record.counts(one))
    objectives = {split: points[kept] for split, points in one.objectives.items()}
    return dataclasses.replace(one, clients=tuple(one.clients[i] for i in kept), objectives=objectives)


def _plain(one: Solution, record: Record) -> dict[str, Any]:
    is_everybody = one.clients == tuple(range(record.clients))
    return {
        "seed": one.seed,
        "round": one.round,
        "clients": None if is_everybody else list(one.clients),
        "count": len(one.clients),
        "indicators": {name: finite(value) for name, value in one.indicators.items()},
    }
