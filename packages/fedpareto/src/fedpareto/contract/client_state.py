"""Tensors that clients keep for themselves between rounds, in stacks: a row for each client that has worked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Message, take_rows, taken

Key = tuple[int, int, int]
"""Federation, lane and client."""


def _none() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass
class Shelf:
    """The private state of the clients of one federation, in one lane.

    New clients are appended, in tensors that grow by doubling: a round costs what its participants cost.
    """

    clients: np.ndarray = field(default_factory=_none)
    """Ids of those who have state, ascending …"""
    rows: np.ndarray = field(default_factory=_none)
    """… and the row of each."""
    tensors: Message = field(default_factory=dict)
    """Stacks of state, `[at least n, ...]`."""

    def read(self, clients: np.ndarray, fresh: Message) -> Message:
        """The state of these clients, `[n, ...]`: copies; of one that is not known or lacks a name, `fresh`."""
        known, rows = self._find(clients)
        return {name: self._read(name, blank, known, rows) for name, blank in fresh.items()}

    def _find(self, clients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find which of these clients are known, and in which rows those are."""
        if len(clients) == len(self.clients) and np.array_equal(clients, self.clients):
            return np.ones(len(clients), dtype=bool), self.rows
        places = np.searchsorted(self.clients, clients)
        known = places < len(self.clients)
        known[known] = self.clients[places[known]] == clients[known]
        return known, self.rows[places[known]]

    def _read(self, name: str, blank: Tensor, known: np.ndarray, rows: np.ndarray) -> Tensor:
        if name not in self.tensors or not len(rows):
            return blank.expand(len(known), *blank.shape).clone()
        found = take_rows(self.tensors[name], rows)
        if len(rows) == len(known):
            return found.clone()
        whole = blank.expand(len(known), *blank.shape).clone()
        whole[torch.as_tensor(np.flatnonzero(known), device=whole.device)] = found
        return whole

    def write(self, clients: np.ndarray, state: Message) -> None:
        """Replaces the state of these clients, in any order; names may be added."""
        known, _ = self._find(clients)
        if not known.all():
            self._make_room(clients[~known], state)
        _, rows = self._find(clients)
        for name, tensor in state.items():
            if name not in self.tensors:
                self.tensors[name] = tensor.new_zeros(len(next(iter(self.tensors.values()))), *tensor.shape[1:])
            self.tensors[name][torch.as_tensor(rows, device=tensor.device)] = tensor

    def _make_room(self, clients: np.ndarray, like: Message) -> None:
        used, wanted = len(self.clients), len(self.clients) + len(clients)
        room = len(next(iter(self.tensors.values()))) if self.tensors else 0
        if wanted > room:
            grown = max(wanted, 2 * room)
            self.tensors = {name: _grown(self.tensors.get(name), grown, tensor) for name, tensor in like.items()}
        ids = np.concatenate([self.clients, clients])
        rows = np.concatenate([self.rows, np.arange(used, wanted)])
        order = np.argsort(ids, kind="stable")
        self.clients, self.rows = ids[order], rows[order]

    def all(self) -> Message:
        """The state of all of them, `[n, ...]`, in the order of `clients`."""
        return taken(self.tensors, self.rows)

    def drop(self, clients: np.ndarray) -> None:
        """Forgets some of them."""
        left = np.flatnonzero(~np.isin(self.clients, clients))
        state = taken(self.all(), left)
        self.clients, self.rows = self.clients[left], np.arange(len(left))
        self.tensors = {name: tensor.clone() for name, tensor in state.items()}


class Kept(MutableMapping[Key, Message]):
    """The private state of several federations. As a mapping it gives one client's, without a client dimension."""

    def __init__(self) -> None:
        self.shelves: dict[tuple[int, int], Shelf] = {}

    def shelf(self, run: int, lane: int) -> Shelf:
        return self.shelves.setdefault((run, lane), Shelf())

    def __getitem__(self, key: Key) -> Message:
        run, lane, client = key
        shelf = self.shelves.get((run, lane), Shelf())
        known, rows = shelf._find(np.array([client]))
        if not known.all():
            raise KeyError(key)
        return {name: tensor[int(rows[0])] for name, tensor in shelf.tensors.items()}

    def __setitem__(self, key: Key, state: Message) -> None:
        run, lane, client = key
        self.shelf(run, lane).write(np.array([client]), {name: tensor[None] for name, tensor in state.items()})

    def __delitem__(self, key: Key) -> None:
        self[key]  # A KeyError if it is not there.
        self.shelf(*key[:2]).drop(np.array(key[2:]))

    def __iter__(self) -> Iterator[Key]:
        return ((run, lane, client) for (run, lane), one in self.shelves.items() for client in one.clients.tolist())

    def __len__(self) -> int:
        return sum(len(one.clients) for one in self.shelves.values())

    def of_run(self, run: int) -> Kept:
        """A copy of one federation's."""
        found = Kept()
        for (of, lane), one in self.shelves.items():
            if of == run and len(one.clients):
                found.shelf(of, lane).write(one.clients, one.all())
        return found

    def add(self, other: Kept) -> None:
        """Takes another's federations in."""
        self.shelves |= other.shelves

    def keep_lanes(self, run: int, lanes: Iterable[int]) -> None:
        """Forgets a federation's other lanes."""
        wanted = set(lanes)
        self.shelves = {key: one for key, one in self.shelves.items() if key[0] != run or key[1] in wanted}


def _grown(tensor: Tensor | None, rows: int, like: Tensor) -> Tensor:
    """The tensor with more rows, of which the new ones are still to be written."""
    whole = like.new_empty(rows, *like.shape[1:])
    if tensor is not None:
        whole[: len(tensor)] = tensor
    return whole
