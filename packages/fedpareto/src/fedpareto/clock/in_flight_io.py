"""Work under way as tensors and plain values, for checkpoints, and back: simulated work goes on bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.clock.activity import IDLE, Roster
from fedpareto.contract.messages import Failure, Message, Replies, Tasks

PARTS = ("shared", "own", "begun")


def written(flight: Roster) -> tuple[Message, dict[str, Any]]:
    """Write down what is under way: tensors by name, and plain values."""
    tensors: Message = {name: torch.as_tensor(getattr(flight, name).copy()) for name in flight.ARRAYS}
    busy = flight.status != IDLE
    tasks: list[dict[str, Any]] = []
    for round_, of_round in flight.tasks.items():
        working = flight.setting.clients[busy & (flight.version == round_)]
        for some in of_round:
            kept = some.only(np.flatnonzero(np.isin(some.clients, working)))
            _put(tensors, f"tasks/{len(tasks)}", kept)
            tasks.append({"round": round_, "step": kept.step, "lane": kept.lane})
    steps = {}
    for number, replies in flight.replies.items():
        rows = np.flatnonzero(busy & (flight.stack == number))
        kept_replies = replies.only(flight.row[rows])
        tensors["row"][torch.as_tensor(rows)] = torch.arange(len(rows))
        tensors |= {f"replies/{number}/{name}": tensor for name, tensor in kept_replies.tensors.items()}
        for name in ("clients", "lanes", "rounds", "coded"):
            tensors[f"replies/{number}/ {name}"] = torch.as_tensor(getattr(kept_replies, name))
        steps[str(number)] = kept_replies.step
    failures = {str(row): asdict(failure) for row, failure in flight.failures.items()}
    numbers = {name: getattr(flight, name) for name in flight.VALUES}
    return tensors, {**numbers, "tasks": tasks, "replies": steps, "failures": failures}


def _put(tensors: Message, place: str, tasks: Tasks) -> None:
    tensors[f"{place}/clients"] = torch.as_tensor(tasks.clients)
    for part in PARTS:
        tensors |= {f"{place}/{part}/{name}": tensor for name, tensor in getattr(tasks, part).items()}


def read(flight: Roster, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Puts into a new roster what was written."""
    device = flight.setting.initial.device
    for name in flight.ARRAYS:
        setattr(flight, name, tensors[name].numpy().copy())
    for name in flight.VALUES:
        setattr(flight, name, float(values[name]))
    for number, about in enumerate(values["tasks"]):
        place = f"tasks/{number}"
        shared, own, begun = (_below(tensors, f"{place}/{part}/", device) for part in PARTS)
        clients = tensors[f"{place}/clients"].numpy()
        some = Tasks(clients, shared, own, about["round"], about["step"], about["lane"], begun)
        flight.tasks.setdefault(some.round, []).append(some)
    for name, step in values["replies"].items():
        found = _below(tensors, f"replies/{name}/", device)
        about = {part: found.pop(f" {part}").cpu().numpy() for part in ("lanes", "rounds", "coded")}
        flight.replies[int(name)] = Replies(found.pop(" clients").cpu().numpy(), found, step, **about)
    flight.failures |= {int(row): Failure(**about) for row, about in values["failures"].items()}
    flight.count_users()


def _below(tensors: Mapping[str, Tensor], place: str, device: torch.device) -> Message:
    """The tensors whose names begin with a place, without it."""
    return {name.removeprefix(place): one.to(device) for name, one in tensors.items() if name.startswith(place)}
