"""Graphs as lists of neighbours: who exchanges models with whom where there is no server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.moo.neighbourhoods import Neighbourhoods

SHOWN_PARTS, SHOWN_CLIENTS = 4, 8
"""Parts of a graph that is not connected, and clients of a part, that are named."""


@dataclass(frozen=True, eq=False)
class Graph:
    """Neighbours of n clients; all that is kept and done is linear in clients and edges."""

    starts: np.ndarray
    """Place of each client's first neighbour among the `others`, and the end of the last ones, `[n + 1]`."""
    others: np.ndarray
    """The neighbours of client 0, of client 1, …, each ascending."""

    @classmethod
    def of(cls, n: int, ends: np.ndarray, others: np.ndarray) -> Graph:
        """Graph with edges between these ends; an edge may come twice and either way, and one to oneself is none."""
        apart = ends != others
        one, other = ends[apart].astype(np.int64), others[apart].astype(np.int64)
        rows, whom = np.divmod(np.unique(np.concatenate([one * n + other, other * n + one])), n)
        return cls(np.searchsorted(rows, np.arange(n + 1)), whom)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def beside(self, client: int) -> np.ndarray:
        return self.others[self.starts[client] : self.starts[client + 1]]

    @cached_property
    def degrees(self) -> np.ndarray:
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> np.ndarray:
        """The client that has each of the `others` as its neighbour."""
        return np.repeat(np.arange(len(self)), self.degrees)

    @property
    def edges(self) -> np.ndarray:
        """Ends of every edge, the lower one first, in their order, `[edges, 2]`."""
        return np.stack([self.rows, self.others], axis=1)[self.rows < self.others]

    @property
    def is_complete(self) -> bool:
        return len(self.others) == len(self) * (len(self) - 1)

    def matrix(self) -> np.ndarray:
        """Neighbours as truth values, `[n, n]`: for few clients."""
        found = np.zeros((len(self), len(self)), dtype=bool)
        found[self.rows, self.others] = True
        return found

    def among(self, rows: np.ndarray) -> Graph:
        if len(rows) == len(self) and np.array_equal(rows, np.arange(len(self))):
            return self
        place = np.full(len(self), -1)
        place[rows] = np.arange(len(rows))
        kept = (place[self.rows] >= 0) & (place[self.others] >= 0)
        return Graph.of(len(rows), place[self.rows[kept]], place[self.others[kept]])

    @cached_property
    def neighbourhoods(self) -> Neighbourhoods:
        everyone = np.arange(len(self))
        who, whom = np.concatenate([self.rows, everyone]), np.concatenate([self.others, everyone])
        order = np.lexsort([whom, who])
        return Neighbourhoods(who[order], whom[order], len(self))


def ring(n: int) -> Graph:
    rows = np.arange(n)
    return Graph.of(n, rows, (rows + 1) % n)


def torus(n: int, planes: int = 0) -> Graph:
    """Rings of equal length side by side, first to last, each member also with the same one of the rings beside it: as
    satellites in planes. Of so many `planes`; 0: the largest number of them that divides n and is at most √n.
    """
    planes = _planes(n, planes)
    size, rows = n // planes, np.arange(n)
    plane, place = np.divmod(rows, size)
    return Graph.of(n, np.tile(rows, 2), np.concatenate([(rows + size) % n, plane * size + (place + 1) % size]))


def _planes(n: int, planes: int) -> int:
    planes = planes or max(p for p in range(1, math.isqrt(n) + 1) if n % p == 0)
    if n % planes:
        raise UserError(f"planes is {planes}, but {n} clients do not fit into as many equal ones")
    return planes


def grid(n: int, planes: int = 0) -> Graph:
    """Torus whose rings are cut open: rows side by side, each with the one beside it; with one row, a line."""
    planes = _planes(n, planes)
    size, rows = n // planes, np.arange(n)
    along, across = rows[rows % size < size - 1], rows[: n - size]
    return Graph.of(n, np.concatenate([along, across]), np.concatenate([along + 1, across + size]))


def random_regular(n: int, degree: int, seed: int) -> Graph:
    """Everybody with `degree` others, drawn: from neighbours on a circle, edges a-b and c-d change to a-d and c-b, ten
    times as often as there are edges; and on, until all are connected.
    """
    _must_fit(n, degree)
    if n * degree % 2:
        raise UserError(
            f"degree is {degree}, but {n} clients with as many neighbours each are no graph; take an even one"
        )
    stream, found = np.random.default_rng(seed), _circle(n, degree)
    while True:
        ends = found.edges.tolist()
        there = {(a, b) for a, b in ends}
        for _ in range(10 * len(ends) if len(ends) > 1 else 0):
            one, other = stream.choice(len(ends), 2, replace=False).tolist()
            (a, b), (c, d) = ends[one], ends[other][:: (-1, 1)[stream.integers(0, 2)]]
            new = {(min(a, d), max(a, d)), (min(c, b), max(c, b))}
            if len({a, b, c, d}) == 4 and not new & there:
                there -= {(min(a, b), max(a, b)), (min(c, d), max(c, d))}
                there |= new
                ends[one], ends[other] = [a, d], [c, b]
        found = Graph.of(n, *np.array(ends).T)
        if degree < 2 or len(parts(found)) == 1:  # With one neighbour each, only two can be connected.
            return found


def small_world(n: int, degree: int, rewiring: float, seed: int) -> Graph:
    """Neighbours on a circle, half of `degree` on each side, of whose edges a share has another end, drawn (Watts and
    Strogatz, "Collective dynamics of small-world networks", 1998); drawn again until all are connected.
    """
    _must_fit(n, degree)
    if degree % 2 or not 0 <= rewiring <= 1:
        raise UserError(f"degree is {degree}, rewiring {rewiring}; a small world has an even degree and a share 0 to 1")
    stream, circle = np.random.default_rng(seed), _circle(n, degree)
    while True:
        beside = [set(circle.beside(client).tolist()) for client in range(n)]
        for one, other in circle.edges.tolist():
            free = n - 1 - len(beside[one])
            if stream.random() < rewiring and free:
                new = _stranger(sorted(beside[one] | {one}), int(stream.integers(0, free)))
                beside[one] ^= {other, new}
                beside[other].remove(one)
                beside[new].add(one)
        ends = np.repeat(np.arange(n), [len(some) for some in beside])
        found = Graph.of(n, ends, np.array([other for some in beside for other in some]))
        if len(parts(found)) == 1:
            return found


def _stranger(known: Sequence[int], number: int) -> int:
    """The client with this number among those that are not `known`, which are ascending."""
    for client in known:
        number += client <= number
    return number


def _circle(n: int, degree: int) -> Graph:
    """Each with so many of those before and after it; of an odd degree also with the one across."""
    rows = np.arange(n)
    steps = [*range(1, degree // 2 + 1), *([n // 2] if degree % 2 else [])]
    return Graph.of(n, np.tile(rows, len(steps)), np.concatenate([(rows + step) % n for step in steps]))


def _must_fit(n: int, degree: int) -> None:
    if not 1 <= degree < n:
        raise UserError(f"degree is {degree}; of {n} clients each has 1 to {n - 1} neighbours")


def complete(n: int) -> Graph:
    return Graph(np.arange(n + 1) * (n - 1), np.flatnonzero(~np.eye(n, dtype=bool)) % n)


def of_edges(n: int, edges: Sequence[str]) -> Graph:
    """Graph from pairs such as `0-3`, or from a file that has one in each line."""
    return of_pairs(n, *pairs_in(edges))


def pairs_in(edges: Sequence[str]) -> tuple[str, str]:
    """Source of the edges, as errors name it, and all of them, separated by commas."""
    listed = ",".join(edges)
    if "," in listed or _is_pair(listed):
        return "edges", listed
    return listed, ",".join(_lines(listed))


def of_pairs(n: int, whence: str, listed: str) -> Graph:
    edges = listed.split(",") if listed else []
    wrong = next((edge for edge in edges if not _is_pair(edge)), None)
    if wrong is not None:
        raise UserError(f"{whence} has {wrong!r}; an edge is two clients such as 0-3")
    pairs = np.array([[int(end) for end in edge.split("-")] for edge in edges], dtype=np.int64).reshape(-1, 2)
    if len(pairs) and pairs.max() >= n:
        raise UserError(f"{whence} has a client {pairs.max()}; of {n} the last one is {n - 1}")
    return Graph.of(n, *pairs.T)


def _is_pair(edge: str) -> bool:
    ends = edge.split("-")
    return len(ends) == 2 and all(end.strip().isdecimal() and len(end.strip()) < 10 for end in ends)


def _lines(file: str) -> list[str]:
    """Lines of a file but for empty ones and those that begin with #; `0 3` and `0,3` are edges, too."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise UserError(
            f"edges is {file!r}, neither a pair such as 0-3 nor a file that can be read; give edges=0-1,1-2"
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    return ["-".join(line.replace(",", " ").split()) for line in lines if line and not line.startswith("#")]


def parts(graph: Graph) -> list[np.ndarray]:
    """Connected parts of a graph: the rows of each, ascending, in the order of their first ones."""
    from scipy.sparse.csgraph import connected_components

    count, part = connected_components(_as_sparse(graph), directed=False)
    if count == 1:
        return [np.arange(len(graph))]
    by_part, sizes = np.argsort(part, kind="stable"), np.bincount(part)
    return sorted(np.split(by_part, np.cumsum(sizes)[:-1]), key=lambda rows: int(rows[0]))


def breadth_first(graph: Graph, start: int = 0) -> np.ndarray:
    """Rows that can be reached from one: first its neighbours, then theirs; those of equal distance in their order."""
    from scipy.sparse.csgraph import breadth_first_order

    found = breadth_first_order(_as_sparse(graph), start, return_predecessors=False)
    return np.asarray(found, dtype=np.int64)


def _as_sparse(graph: Graph) -> Any:
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(graph.others)), graph.others, graph.starts), shape=(len(graph), len(graph)))


def must_be_connected(graph: Graph) -> None:
    """Raises UserError if what one learns never reaches another, and says who they are."""
    apart = parts(graph)
    if len(apart) > 1:
        told = "; ".join(_told(some) for some in apart[:SHOWN_PARTS]) + ("; …" if len(apart) > SHOWN_PARTS else "")
        raise UserError(f"the graph is not connected: {told} are apart; add an edge between them")


def _told(rows: np.ndarray) -> str:
    named = ", ".join(map(str, rows[:SHOWN_CLIENTS].tolist()))
    return f"client{'s' if len(rows) > 1 else ''} {named}" + (", …" if len(rows) > SHOWN_CLIENTS else "")


def metropolis(pairs: Neighbourhoods, degrees: np.ndarray) -> np.ndarray:
    """A weight for each of the `pairs`: 1 / (1 + max(d_i, d_j)) for neighbours with d_i and d_j neighbours (`degrees`),
    and the rest for oneself (Xiao and Boyd, "Fast linear iterations for distributed averaging", 2004). A client's sum
    to 1, and so do, where all neighbours are there, those that it has with others.
    """
    who, whom = pairs.who, pairs.whom
    weights = np.where(who == whom, 0.0, 1 / (1 + np.maximum(degrees[who], degrees[whom])))
    given = np.bincount(who, weights)
    return np.where(who == whom, 1 - given[who], weights)
