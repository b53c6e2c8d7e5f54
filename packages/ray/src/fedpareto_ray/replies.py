"""Replies that stay where they were made: of what grows with the model only sums travel, if these are enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Replies
from fedpareto.moo import updates
from fedpareto_ray import packing
from fedpareto_ray.crew import Crew

Row = tuple[tuple[int, ...], torch.dtype]
"""Shape and type of one client's tensor."""


def _none() -> np.ndarray:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Far:
    """The last exchange of one federation, at the workers."""

    crew: Crew
    exchange: int
    run: int
    large: Mapping[str, Row]
    """Tensors that have stayed there."""
    fetched: Callable[[int], None]
    """Function that is told how many bytes were brought here, for all rows of something."""


@dataclass(frozen=True, eq=False)
class RemoteReplies(Replies):
    """Replies of which a sum over tensors that are `far` is made by each worker, and the sums are added in a fixed
    order: the same bits for the same number of workers. `replies[name]` brings all rows here.
    """

    far: Far | None = field(default=None, repr=False)
    shards: np.ndarray = field(default_factory=_none, repr=False)
    """The worker of each reply …"""
    places: np.ndarray = field(default_factory=_none, repr=False)
    """… and its row there."""
    moves: Mapping[str, Tensor] = field(default_factory=dict, repr=False)
    """Offset that is added to each row of a tensor, see `moved`."""

    @property
    def _far(self) -> Far:
        assert self.far is not None, "made with it"
        return self.far

    def _is_far(self, name: str) -> bool:
        return name not in self.tensors and name in self._far.large

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._far.large

    def __getitem__(self, name: str) -> Tensor:
        if not self._is_far(name):
            return super().__getitem__(name)
        rows = self._rows("rows", lambda here: (name,), self._far.large[name])
        self._far.fetched(rows.numel() * rows.element_size())
        return rows + self.moves[name] if name in self.moves else rows

    @property
    def size(self) -> int:
        large = sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in self._far.large.values())
        return super().size + large if len(self) else 0

    def only(self, rows: np.ndarray) -> RemoteReplies:
        some = super().only(rows)
        return self if some is self else replace(some, shards=self.shards[rows], places=self.places[rows])

    def singly(self) -> list[RemoteReplies]:
        return [self.only(np.array([row])) for row in range(len(self))]

    def whole(self) -> Replies:
        tensors = {name: self[name] for name in (*self.tensors, *self._far.large)}
        return Replies(self.clients, tensors, self.step, self.lanes, self.rounds)

    def moved(self, name: str, by: Tensor) -> RemoteReplies:
        if not self._is_far(name):
            return super().moved(name, by)
        return replace(self, moves={**self.moves, name: self.moves.get(name, 0) + by})

    # -- less than all rows ----------------------------------------------------------------------------------------

    def sum(self, name: str, weights: Tensor, origin: Tensor | None = None) -> Tensor:
        if not self._is_far(name):
            return super().sum(name, weights, origin)
        begun = None if origin is None else packing.array(origin)
        total = self._added("sum", lambda here: (name, packing.array(weights[..., here]), begun))
        if name not in self.moves:
            return total
        move = self.moves[name].to(total)
        return total + weights.to(total).sum(-1).view(*weights.shape[:-1], *[1] * move.dim()) * move

    def sum_each(self, name: str, weights: Tensor, origins: Tensor) -> Tensor:
        if not self._is_far(name) or name in self.moves:
            return updates.sums_of_updates(weights, self[name], origins)
        begun = packing.array(origins)
        return self._added("sum_each", lambda here: (name, packing.array(weights[here]), begun))

    def mean(self, name: str) -> Tensor:
        if not self._is_far(name):
            return super().mean(name)
        return self.sum(name, torch.ones(len(self), dtype=self._far.large[name][1])) / len(self)

    def sum_of_products(self, left: str, right: str) -> Tensor:
        if {left, right} <= self._far.large.keys() - self.moves.keys():
            return self._added("sum_of_products", lambda here: (left, right))
        return updates.sum_of_products(self[left], self[right])

    def gram(self, name: str, origin: Tensor) -> Tensor:
        """Compute the Gram matrix. Each number travels once, a block of columns at a time: all rows are never here."""
        if not self._is_far(name):
            return super().gram(name, origin)
        return updates.gram_of_updates(_Columns(self, name), self._seen_from(name, origin))

    def squared_norms(self, name: str, origin: Tensor) -> Tensor:
        if not self._is_far(name):
            return super().squared_norms(name, origin)
        begun = packing.array(self._seen_from(name, origin))
        return self._rows("squared_norms", lambda here: (name, begun), ((), torch.float64))

    def _seen_from(self, name: str, origin: Tensor) -> Tensor:
        """Origin of updates if rows stay and the origin moves."""
        return origin - self.moves[name].to(origin) if name in self.moves else origin

    # -- workers ---------------------------------------------------------------------------------------------------

    def _asked(self, what: str, arguments: Callable[[np.ndarray], tuple[Any, ...]]) -> list[tuple[np.ndarray, Tensor]]:
        """Call a method at each worker that has some of the replies; return these replies and its result for them."""
        far, calls = self._far, []
        here = [np.flatnonzero(self.shards == shard) for shard in range(len(far.crew))]
        for rows in here:
            call = ((far.exchange, far.run, self.places[rows]), *arguments(rows))
            calls.append(call if len(rows) else None)
        far.crew.down += packing.size(calls)
        found = far.crew.each(what, calls)
        return [(rows, packing.tensor(one)) for rows, one in zip(here, found, strict=True) if one is not None]

    def _added(self, what: str, arguments: Callable[[np.ndarray], tuple[Any, ...]]) -> Tensor:
        """The sum of what the workers return, in their order."""
        first, *others = (part for _, part in self._asked(what, arguments))
        for part in others:
            first += part
        return first

    def _rows(self, what: str, arguments: Callable[[np.ndarray], tuple[Any, ...]], row: Row) -> Tensor:
        """Gather what the workers return for each reply, in the order of the replies."""
        whole = torch.empty((len(self), *row[0]), dtype=row[1])
        for rows, part in self._asked(what, arguments):
            whole[rows] = part
        return whole


@dataclass(frozen=True)
class _Columns:
    """Models at the workers, of which some columns are brought here at a time."""

    replies: RemoteReplies
    name: str

    def __len__(self) -> int:
        return len(self.replies)

    def __getitem__(self, place: tuple[slice, slice]) -> Tensor:
        columns = place[1]
        (size,), dtype = self.replies._far.large[self.name]
        first, last = columns.start, min(columns.stop, size)
        shape = (last - first,), dtype
        return self.replies._rows("rows", lambda here: (self.name, first, last), shape)
