"""Messages between the driver and its workers: arrays and plain values, nothing else.

Ray pickles its own messages, inside the cluster of one user. No class of ours is in them but the worker itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.client_state import Kept
from fedpareto.contract.messages import ByClient, Failure, Message, Parcels, Tasks, taken

Arrays: TypeAlias = dict[str, np.ndarray]
Plain: TypeAlias = Any
"""Numbers, texts and arrays, in lists, tuples and dictionaries."""


def array(tensor: Tensor) -> np.ndarray:
    """A tensor as it travels."""
    found: np.ndarray = tensor.detach().cpu().numpy()
    return found


def tensor(values: np.ndarray, device: torch.device | str = "cpu") -> Tensor:
    """Back again. A copy: what Ray hands over lies in memory that nobody may write to."""
    return torch.from_numpy(np.array(values)).to(device)


def arrays(message: Message) -> Arrays:
    """A message as it travels."""
    return {name: array(one) for name, one in message.items()}


def tensors(message: Arrays, device: torch.device | str = "cpu") -> Message:
    """Back again."""
    return {name: tensor(one, device) for name, one in message.items()}


def size(plain: Plain) -> int:
    """Bytes of the arrays in it."""
    if isinstance(plain, np.ndarray):
        return plain.nbytes
    if isinstance(plain, Mapping):
        return sum(size(one) for one in plain.values())
    return sum(size(one) for one in plain) if isinstance(plain, list | tuple) else 0


class Parts(NamedTuple):
    """Parcels of every federation, taken apart: what all clients share, and what each worker's clients get."""

    shared: list[list[Arrays] | None]
    own: list[list[list[dict[str, Plain]] | None]]
    """Parts by worker."""


def taken_apart(parcels: Sequence[Sequence[Parcels] | None], shards: Shards, begun: bool = False) -> Parts:
    """The parcels of every federation for the workers; with `begun`, also where the server knows that clients begin."""
    shared = [None if some is None else [arrays(one.shared) for one in some] for some in parcels]
    own: list[list[list[dict[str, Plain]] | None]] = []
    for shard in range(len(shards)):
        part = [
            None if some is None else [_own(one.only(shards.rows(one.clients, shard)), begun) for one in some]
            for some in parcels
        ]
        own.append(part)
    return Parts(shared, own)


def _own(parcel: Parcels, begun: bool) -> dict[str, Plain]:
    found: dict[str, Plain] = {"clients": parcel.clients, "own": arrays(parcel.own)}
    if isinstance(parcel, Tasks):
        found |= {"round": parcel.round, "step": parcel.step, "lane": parcel.lane}
        found["begun"] = arrays(parcel.begun) if begun else {}
    return found


def put_together(
    shared: list[list[Arrays] | None], own: list[list[dict[str, Plain]] | None], device: torch.device
) -> list[list[Parcels] | None]:
    """The parcels again, as one worker gets them."""
    found: list[list[Parcels] | None] = []
    for common, each in zip(shared, own, strict=True):
        if common is None or each is None:
            found.append(None)
            continue
        found.append([_parcel(one, other, device) for one, other in zip(common, each, strict=True)])
    return found


def _parcel(shared: Arrays, own: dict[str, Plain], device: torch.device) -> Parcels:
    common = own["clients"], tensors(shared, device), tensors(own["own"], device)
    if "step" not in own:
        return Parcels(*common)
    rest = {name: own[name] for name in ("round", "step", "lane")}
    return Tasks(*common, **rest, begun=tensors(own["begun"], device))


class Shards:
    """Division of the clients among workers: neighbours together, as evenly as it goes."""

    def __init__(self, clients: np.ndarray, count: int) -> None:
        self._firsts = [part[0] for part in np.array_split(clients, count)]
        self.clients = clients

    def __len__(self) -> int:
        return len(self._firsts)

    def of(self, clients: np.ndarray) -> np.ndarray:
        """The worker of each."""
        found: np.ndarray = np.searchsorted(self._firsts, clients, side="right") - 1
        return found

    def rows(self, clients: np.ndarray, shard: int) -> np.ndarray:
        """Rows of these clients, in ascending order, that a worker holds."""
        ends = [*self._firsts[1:], np.inf]
        return np.arange(np.searchsorted(clients, self._firsts[shard]), np.searchsorted(clients, ends[shard]))

    def places(self, shard: int) -> tuple[int, int]:
        """A worker's clients among all: from the first to before the last."""
        rows = self.rows(self.clients, shard)
        return int(rows[0]), int(rows[-1]) + 1


# -- what clients keep, and what was measured ----------------------------------------------------------------------


def packed(private: Kept) -> list[Plain]:
    """Private state: federation, lane, ids and a stack of each part."""
    shelves = private.shelves.items()
    return [(*key, shelf.clients, arrays(shelf.all())) for key, shelf in shelves if len(shelf.clients)]


def unpacked(parts: Sequence[Plain], device: torch.device | str = "cpu") -> Kept:
    """Private state again, of one worker or of several."""
    private = Kept()
    for run, lane, clients, message in parts:
        private.shelf(run, lane).write(clients, tensors(message, device))
    return private


def for_shard(private: Kept, shards: Shards, shard: int) -> list[Plain]:
    """Pack what a worker's clients keep."""
    found = []
    for key, shelf in private.shelves.items():
        rows = shards.rows(shelf.clients, shard)
        if len(rows):
            found.append((*key, shelf.clients[rows], arrays(taken(shelf.tensors, shelf.rows[rows]))))
    return found


def measured(values: ByClient) -> Plain:
    return values.clients, array(values.rows)


def all_measured(parts: Sequence[Plain]) -> ByClient:
    """Unpack what was measured at all workers, who are in the order of their clients."""
    some = [part for part in parts if len(part[0])]
    if not some:
        return ByClient.none()
    order = np.argsort(clients := np.concatenate([clients for clients, _ in some]), kind="stable")
    return ByClient(clients[order], torch.from_numpy(np.concatenate([rows for _, rows in some])[order]))


def failures(found: Sequence[Failure]) -> list[Plain]:
    return [(one.client, one.round, one.reason, one.step, one.lane) for one in found]
