"""Work of several workers as one, before replies are checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from fedpareto.contract.messages import Failure, Tasks, places
from fedpareto.engines.reply_checks import Done, Part
from fedpareto.engines.work import Work, by_kind, lane_of
from fedpareto_ray.packing import Plain


def gathered(tasks: Sequence[Sequence[Tasks]], parts: Sequence[dict[str, Plain]]) -> list[Done]:
    """Gather the results of the tasks of every federation, from what workers did for parts of their clients."""
    return [_gathered(work, parts) for work in by_kind(tasks)]


def _gathered(work: Work, parts: Sequence[dict[str, Plain]]) -> Done:
    found: list[Part] = []
    failures: dict[int, Failure] = {}
    for part in parts:
        here = _rows(work, part["run"], part["client"], part["lane"])
        if len(here):
            message = {name: torch.from_numpy(array.copy()) for name, array in part["message"].items()}
            values = None if part["values"] is None else torch.from_numpy(part["values"].copy())
            found.append(Part(here, message, values, np.empty(0, dtype=np.int64)))
        for run, *failed in part["failed"]:
            failure = Failure(*failed)
            row = _rows(work, np.array([run]), np.array([failure.client]), np.array([failure.lane]))
            failures |= {int(one): failure for one in row}
    return Done.of(work, found, failures)


def _rows(work: Work, run: np.ndarray, client: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Rows of these clients in some work; none if they belong to other work."""
    starts = np.cumsum([0, *(len(parcel) for parcel in work.parcels)])
    found = np.full(len(client), -1)
    for number, (of, parcel) in enumerate(zip(work.runs, work.parcels, strict=True)):
        here = np.flatnonzero((run == of) & (lane == lane_of(parcel)))
        found[here] = starts[number] + places(parcel.clients, client[here])
    return found[found >= 0]
