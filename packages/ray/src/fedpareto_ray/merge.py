"""Work of several workers as one, before it is judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Failure, Message, Tasks, places
from fedpareto.engines.screening import Done
from fedpareto.engines.work import Work, by_kind, lane_of
from fedpareto_ray.packing import Plain


def gathered(tasks: Sequence[Sequence[Tasks]], parts: Sequence[dict[str, Plain]]) -> list[Done]:
    """What came of the tasks of every federation, from what workers did for parts of their clients."""
    return [_gathered(work, parts) for work in by_kind(tasks)]


def _gathered(work: Work, parts: Sequence[dict[str, Plain]]) -> Done:
    rows, messages, values = [], [], []
    failures: dict[int, Failure] = {}
    for part in parts:
        here = _rows(work, part["run"], part["client"], part["lane"])
        if len(here):
            rows.append(here)
            messages.append(part["message"])
            values.append(part["values"])
        for run, *failed in part["failed"]:
            failure = Failure(*failed)
            row = _rows(work, np.array([run]), np.array([failure.client]), np.array([failure.lane]))
            failures |= {int(one): failure for one in row}
    if not rows:
        return Done(work, np.empty(0, dtype=np.int64), {}, None, failures=failures)
    order = np.argsort(np.concatenate(rows), kind="stable")
    message: Message = {name: _joined([one[name] for one in messages], order) for name in messages[0]}
    measured = [one for one in values if one is not None]
    objectives = _joined(measured, order) if measured else None
    return Done(work, np.concatenate(rows)[order], message, objectives, failures=failures)


def _rows(work: Work, run: np.ndarray, client: np.ndarray, lane: np.ndarray) -> np.ndarray:
    """Where these clients are in some work; none if they belong to other work."""
    starts = np.cumsum([0, *(len(parcel) for parcel in work.parcels)])
    found = np.full(len(client), -1)
    for number, (of, parcel) in enumerate(zip(work.runs, work.parcels, strict=True)):
        here = np.flatnonzero((run == of) & (lane == lane_of(parcel)))
        found[here] = starts[number] + places(parcel.clients, client[here])
    return found[found >= 0]


def _joined(parts: Sequence[np.ndarray], order: np.ndarray) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)[order])
