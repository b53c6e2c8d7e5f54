"""Sums over what each client hears from its neighbours, of all clients at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Pairs of who hears whom: each of n clients itself and its neighbours, as pairs, in the order of clients and of
    whom each hears.

    Sums go turn by turn: to what each has, one operation adds the second of those whom it hears, then the third. So
    there is no loop over clients, time and memory are linear in the pairs, and a client's sum is the same to the bit
    whoever else is in the stack, as where a node computes its own.
    """

    who: np.ndarray
    """`[pairs]`."""
    whom: np.ndarray
    """`[pairs]`."""
    clients: int
    """n."""

    @cached_property
    def starts(self) -> np.ndarray:
        """The first pair of each client, and the end of the last ones, `[n + 1]`."""
        return np.searchsorted(self.who, np.arange(self.clients + 1))

    @cached_property
    def _order(self) -> np.ndarray:
        """Clients by how many they hear, most first: those who have another turn are always the first ones."""
        return np.argsort(-np.diff(self.starts), kind="stable")

    @cached_property
    def _turns(self) -> list[np.ndarray]:
        """Pairs that are added in each turn, of clients in their `_order`."""
        counts = np.diff(self.starts)[self._order]
        first, having = self.starts[self._order], np.searchsorted(-counts, -np.arange(counts.max(initial=0)))
        return [first[:some] + turn for turn, some in enumerate(having.tolist())]

    def sum(self, terms: Callable[[Tensor], Tensor], device: torch.device) -> Tensor:
        """Sum of the terms of each client, `[n, ...]`; `terms` are those of some pairs, by their places `[k]`."""
        first, *others = (torch.as_tensor(turn, device=device) for turn in self._turns)
        total = terms(first)
        for places in others:
            total[: len(places)] += terms(places)
        found = torch.empty_like(total)
        found[torch.as_tensor(self._order, device=device)] = total
        return found

    def mixed(self, shares: Tensor, rows: Tensor) -> Tensor:
        """Mixture for each client of the `rows` `[n, d]` of those whom it hears, by `shares` `[pairs]`; `[n, d]`."""
        whom, shares = torch.as_tensor(self.whom, device=rows.device), shares.to(rows)
        return self.sum(lambda pairs: rows[whom[pairs]].mul_(shares[pairs].unsqueeze(1)), rows.device)

    def mean(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mixture by `weights` of any sum."""
        totals = self.sum(weights.__getitem__, rows.device)
        return self.mixed(weights / totals[torch.as_tensor(self.who, device=rows.device)], rows)
