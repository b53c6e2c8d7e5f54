"""Where the clients of several federations are in one stack of all clients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Parcels, places
from fedpareto.engines.work import Work


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
        """Of each row of some work."""
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
