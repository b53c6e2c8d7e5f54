"""Clusters and similarities of one seed, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpareto.record.entries import Line
from fedpareto.record.run_files import Array, Clusters
from fedpareto.record.run_record import Record
from fedpareto_page.about import plain
from fedpareto_page.frames import frame

MOST_CLIENTS = 64
"""Shown in one film; similarities are recorded of as many."""
ONE = 127
"""A similarity of 1, in a byte."""
UNKNOWN = -128
"""One that is not known."""


def film(record: Record, seed: int, preferences: Array | None) -> bytes:
    """A frame. `preferences`: what each client wants, `[n, m]`, if that may be told."""
    lines = record.of_seed(seed)
    shown = _shown(record, seed)
    similar = [line for line in lines if line.packed is not None]
    head = {
        "seed": seed,
        "rounds": [line.round for line in lines],
        "clients": shown,
        "preferences": None if preferences is None else plain(preferences[shown]),
        "order": by_preference(shown, preferences),
        "clusters": _clusters(lines, shown),
        "sampled": len(shown) < record.clients,
        "similarity_rounds": [line.round for line in similar],
    }
    return frame(head, {"similarity": np.stack([_bytes(line, shown) for line in similar])} if similar else {})


def _shown(record: Record, seed: int) -> list[int]:
    """Those whose similarities are known, else a few that lie evenly among all."""
    compared = record.similarity_of(seed)
    if len(compared) <= MOST_CLIENTS:
        return list(compared)
    return [round(place) for place in np.linspace(0, record.clients - 1, MOST_CLIENTS)]


def by_preference(clients: Sequence[int], preferences: Array | None) -> list[int]:
    """An order that stays the same for a whole film: neighbours want about the same."""
    if preferences is None:
        return sorted(clients)
    return sorted(clients, key=lambda client: (*np.round(preferences[client], 9).tolist(), client))


def labels_of(clusters: Clusters, clients: int) -> np.ndarray:
    """`[n]`: by client, the least member of its cluster; −1 where it is in none."""
    found = np.full(clients, -1, dtype=np.int64)
    for members in clusters:
        found[[client for client in members if 0 <= client < clients]] = min(members)
    return found


def _clusters(lines: Sequence[Line], shown: Sequence[int]) -> list[Any] | None:
    """Of each round; where one tells none, they are still those of the last that did."""
    found: list[Any] = []
    known = None
    for line in lines:
        clusters = line.clusters
        if clusters is not None:
            known = labels_of(clusters, line.columns.clients)[list(shown)].tolist()
        found.append(known if known is not None else [-1] * len(shown))
    return None if known is None else found


def _bytes(line: Line, shown: Sequence[int]) -> np.ndarray:
    """`[s, s]`, of the clients that are shown."""
    whole = line.similarity
    assert whole is not None
    ids = line.similarity_of if line.similarity_of is not None else range(len(whole))
    place = {client: i for i, client in enumerate(ids)}
    chosen = [place[client] for client in shown if client in place]
    found = np.full((len(shown), len(shown)), UNKNOWN, dtype=np.int8)
    where = [i for i, client in enumerate(shown) if client in place]
    values = np.clip(np.round(ONE * whole[np.ix_(chosen, chosen)]), -ONE, ONE)
    found[np.ix_(where, where)] = np.where(np.isfinite(values), values, UNKNOWN).astype(np.int8)
    return found
