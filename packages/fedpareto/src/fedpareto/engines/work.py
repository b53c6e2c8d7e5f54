"""Work of one kind for clients of any federation: stacks of tasks side by side, cut into chunks; and where the clients
of several federations are in one stack of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Message, Parcels, Tasks, is_all, places, take_rows
from fedpareto.tensors import rng

Kind = tuple[str, frozenset[tuple[str, tuple[int, ...]]]]
"""A step, and the names and shapes of what it gets."""


@dataclass(frozen=True, eq=False)
class Work:
    """Parcels of one kind, one after the other. Row i of everything belongs to one client of one federation."""

    parcels: Sequence[Parcels]
    runs: Sequence[int]
    """The federation of each."""
    which: np.ndarray
    """The parcel of each row …"""
    row: np.ndarray
    """… and the row in it."""
    run: np.ndarray
    """The federation of each row …"""
    client: np.ndarray
    """… the id of its client …"""
    round: np.ndarray
    """… the round, 0 where something is only measured …"""
    lane: np.ndarray
    """… and the lane."""

    @classmethod
    def of(cls, parcels: Sequence[Parcels], runs: Sequence[int]) -> Work:
        """Make the work of all rows of some parcels."""
        if len(parcels) == 1:
            first, nothing = parcels[0], np.zeros(len(parcels[0]), dtype=np.int64)
            round_, lane = (first.round, first.lane) if isinstance(first, Tasks) else (0, 0)
            row = np.arange(len(nothing))
            return cls(parcels, runs, nothing, row, nothing + runs[0], first.clients, nothing + round_, nothing + lane)
        sizes = np.array([len(one) for one in parcels])
        which = np.repeat(np.arange(len(parcels)), sizes)
        row = np.arange(len(which)) - (np.cumsum(sizes) - sizes)[which]
        client = np.concatenate([one.clients for one in parcels])
        rounds = np.array([one.round if isinstance(one, Tasks) else 0 for one in parcels])
        lanes = np.array([lane_of(one) for one in parcels])
        return cls(parcels, runs, which, row, np.asarray(runs)[which], client, rounds[which], lanes[which])

    def __len__(self) -> int:
        return len(self.which)

    @cached_property
    def everything(self) -> np.ndarray:
        return np.arange(len(self))

    @cached_property
    def step(self) -> str:
        """The client step; measuring is none."""
        first = self.parcels[0]
        return first.step if isinstance(first, Tasks) else ""

    def only(self, rows: np.ndarray) -> Work:
        if is_all(rows, len(self.which)):
            return self
        which, row, run, client = self.which[rows], self.row[rows], self.run[rows], self.client[rows]
        return Work(self.parcels, self.runs, which, row, run, client, self.round[rows], self.lane[rows])

    def parts(self) -> Iterator[tuple[int, Parcels, np.ndarray]]:
        """Yield for each parcel its federation, itself, and which of these rows belong to it."""
        for number in np.flatnonzero(np.bincount(self.which)).tolist():
            rows = np.flatnonzero(self.which == number) if len(self.parcels) > 1 else self.everything
            yield self.runs[number], self.parcels[number], rows

    def addresses(self, seeds: Sequence[int], device: torch.device) -> rng.Addresses:
        """Addresses of each row's random numbers."""
        if len(self.parcels) == 1:
            first = self.parcels[0]
            round_ = first.round if isinstance(first, Tasks) else 0
            return rng.Addresses.at(seeds[self.runs[0]], self.client, round_, lane_of(first), device)
        seed_of = np.array([rng.signed(one) for one in seeds], dtype=np.int64)[self.run]
        columns = np.stack([seed_of, self.client, self.round, self.lane])
        return rng.Addresses(*torch.as_tensor(columns, device=device).unbind())

    def message(self) -> Message:
        """Message that the rows get, as one: `[n, ...]`. What all of them share is not copied."""
        if len(self.parcels) == 1:
            return self.parcels[0].only(self.row).stacked()
        used, inverse = np.unique(self.which, return_inverse=True)
        if len(used) == 1:
            return self.parcels[int(used[0])].only(self.row).stacked()
        parcels = [self.parcels[number] for number in used]
        return {name: self._joined(parcels, inverse, name) for name in parcels[0].names}

    def _joined(self, parcels: Sequence[Parcels], inverse: np.ndarray, name: str) -> Tensor:
        if all(name in one.shared for one in parcels):
            different = torch.stack([one.shared[name] for one in parcels])
            return different[torch.as_tensor(inverse, device=different.device)]
        parts = [take_rows(one.stacked()[name], self.row[inverse == number]) for number, one in enumerate(parcels)]
        place = np.argsort(np.argsort(inverse, kind="stable"), kind="stable")
        return take_rows(torch.cat(parts), place)


def by_kind(parcels: Sequence[Sequence[Parcels]]) -> list[Work]:
    """The parcels of several federations as work of as few kinds as they have."""
    kinds: dict[Kind, tuple[list[Parcels], list[int]]] = {}
    for run, of_run in enumerate(parcels):
        for one in of_run:
            if len(one):
                some, runs = kinds.setdefault(_kind(one), ([], []))
                some.append(one)
                runs.append(run)
    works = []
    for some, runs in kinds.values():
        works.append(Work.of(some, runs))
    return works


def _kind(parcel: Parcels) -> Kind:
    shapes = []
    for name, tensor in parcel.shared.items():
        shapes.append((name, tuple(tensor.shape)))
    for name, tensor in parcel.own.items():
        shapes.append((name, tuple(tensor.shape[1:])))
    return parcel.step if isinstance(parcel, Tasks) else "", frozenset(shapes)


def lane_of(parcel: Parcels) -> int:
    """Lane of the clients' private state; what is only measured is in lane 0."""
    return parcel.lane if isinstance(parcel, Tasks) else 0


class Registered:
    """The clients of all federations, one federation after the other, each in its own order."""

    def __init__(self, federations: Sequence[Federation]) -> None:
        self._bases = np.cumsum([0, *(len(federation.ids) for federation in federations)])
        self._orders = [np.argsort(federation.ids, kind="stable") for federation in federations]
        self._ids = [np.asarray(one.ids)[order] for one, order in zip(federations, self._orders, strict=True)]

    def __len__(self) -> int:
        return int(self._bases[-1])

    def of_run(self, run: int, clients: np.ndarray) -> np.ndarray:
        """The positions of a federation's clients."""
        found: np.ndarray = self._bases[run] + self._orders[run][places(self._ids[run], clients)]
        return found

    def positions(self, work: Work) -> np.ndarray:
        """Positions of each row of some work."""
        if len(work.parcels) == 1:
            return self.of_run(work.runs[0], work.client)
        found = np.empty(len(work), dtype=np.int64)
        for run in set(work.runs):
            rows = np.flatnonzero(work.run == run)
            found[rows] = self.of_run(run, work.client[rows])
        return found

    def largest(self, counts: np.ndarray, size: int) -> Work:
        """The clients with the most rows, by their `counts`, as work without any message."""
        largest = np.argsort(-counts[: len(self)], kind="stable")[:size]
        runs = np.searchsorted(self._bases, largest, side="right") - 1
        used = np.unique(runs)
        parcels = []
        for run in used:
            order = self._orders[run]
            ids = np.empty(len(order), dtype=np.int64)
            ids[order] = self._ids[run]
            parcels.append(Parcels(np.sort(ids[largest[runs == run] - self._bases[run]])))
        return Work.of(parcels, used.tolist())


def in_order(parts: Sequence[Tensor], order: np.ndarray) -> Tensor:
    """The parts one after the other, with rows in this order; a single part in its own order is not copied."""
    return take_rows(parts[0] if len(parts) == 1 else torch.cat(list(parts)), order)
