"""Who exchanges models with whom where there is no server: graphs as symmetric matrices `[n, n]` of truth values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedpareto.errors import UserError

SHOWN_PARTS, SHOWN_CLIENTS = 4, 8
"""Of a graph that is not connected: parts, and clients of a part, that are named."""


def ring(n: int) -> np.ndarray:
    """Each with the one before it and the one after it."""
    rows = np.arange(n)
    return _both_ways(n, rows, (rows + 1) % n)


def torus(n: int, planes: int = 0) -> np.ndarray:
    """Rings of equal length side by side, first to last, each member also with the same one of the rings beside it: as
    satellites in planes. Of so many `planes`; 0: the largest number of them that divides n and is at most √n.
    """
    planes = _planes(n, planes)
    size, rows = n // planes, np.arange(n)
    plane, place = np.divmod(rows, size)
    across = _both_ways(n, rows, (rows + size) % n)
    return np.asarray(across | _both_ways(n, rows, plane * size + (place + 1) % size))


def _planes(n: int, planes: int) -> int:
    planes = planes or max(p for p in range(1, math.isqrt(n) + 1) if n % p == 0)
    if n % planes:
        raise UserError(f"planes is {planes}, but {n} clients do not fit into as many equal ones")
    return planes


def grid(n: int, planes: int = 0) -> np.ndarray:
    """As a torus whose rings are cut open: rows side by side, each with the one beside it; with one row, a line."""
    planes = _planes(n, planes)
    size, rows = n // planes, np.arange(n)
    along, across = rows[rows % size < size - 1], rows[: n - size]
    return np.asarray(_both_ways(n, along, along + 1) | _both_ways(n, across, across + size))


def random_regular(n: int, degree: int, seed: int) -> np.ndarray:
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
        ends = np.argwhere(np.triu(found))
        for _ in range(10 * len(ends)):
            one, other = stream.choice(len(ends), 2, replace=False)
            (a, b), (c, d) = ends[one], ends[other][:: stream.choice([-1, 1])]
            if len({a, b, c, d}) == 4 and not (found[a, d] or found[c, b]):
                found[[a, b, c, d], [b, a, d, c]] = False
                found[[a, d, c, b], [d, a, b, c]] = True
                ends[one], ends[other] = (a, d), (c, b)
        if degree < 2 or len(parts(found)) == 1:  # With one neighbour each, only two can be connected.
            return found


def small_world(n: int, degree: int, rewiring: float, seed: int) -> np.ndarray:
    """Neighbours on a circle, half of `degree` on each side, of whose edges a share has another end, drawn (Watts and
    Strogatz, "Collective dynamics of small-world networks", 1998); drawn again until all are connected.
    """
    _must_fit(n, degree)
    if degree % 2 or not 0 <= rewiring <= 1:
        raise UserError(f"degree is {degree}, rewiring {rewiring}; a small world has an even degree and a share 0 to 1")
    stream = np.random.default_rng(seed)
    while True:
        found = _circle(n, degree)
        for one, other in np.argwhere(np.triu(found)):
            free = np.flatnonzero(~found[one] & (np.arange(n) != one))
            if stream.random() < rewiring and len(free):
                new = stream.choice(free)
                found[[one, other], [other, one]], found[[one, new], [new, one]] = False, True
        if len(parts(found)) == 1:
            return found


def _circle(n: int, degree: int) -> np.ndarray:
    """Each with so many of those before and after it; of an odd degree also with the one across."""
    rows = np.arange(n)
    steps = [*range(1, degree // 2 + 1), *([n // 2] if degree % 2 else [])]
    found = np.zeros((n, n), dtype=bool)
    for step in steps:
        found |= _both_ways(n, rows, (rows + step) % n)
    return found


def _must_fit(n: int, degree: int) -> None:
    if not 1 <= degree < n:
        raise UserError(f"degree is {degree}; of {n} clients each has 1 to {n - 1} neighbours")


def complete(n: int) -> np.ndarray:
    """Everybody with everybody."""
    return ~np.eye(n, dtype=bool)


def of_edges(n: int, edges: Sequence[str]) -> np.ndarray:
    """From pairs such as `0-3`, or from a file that has one in each line."""
    whence, edges = "edges", [part for edge in edges for part in edge.split(",")]
    if len(edges) == 1 and not _is_pair(edges[0]):
        whence, edges = edges[0], _lines(edges[0])
    wrong = next((edge for edge in edges if not _is_pair(edge)), None)
    if wrong is not None:
        raise UserError(f"{whence} has {wrong!r}; an edge is two clients such as 0-3")
    pairs = np.array([[int(end) for end in edge.split("-")] for edge in edges], dtype=np.int64).reshape(-1, 2)
    if len(pairs) and pairs.max() >= n:
        raise UserError(f"{whence} has a client {pairs.max()}; of {n} the last one is {n - 1}")
    return _both_ways(n, *pairs.T)


def _is_pair(edge: str) -> bool:
    ends = edge.split("-")
    return len(ends) == 2 and all(end.strip().isdecimal() and len(end.strip()) < 10 for end in ends)


def _lines(file: str) -> list[str]:
    """What a file has in its lines, but for empty ones and those that begin with #; `0 3` and `0,3` are edges, too."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise UserError(
            f"edges is {file!r}, neither a pair such as 0-3 nor a file that can be read; give edges=0-1,1-2"
        ) from None
    lines = [line.strip() for line in text.splitlines()]
    return ["-".join(line.replace(",", " ").split()) for line in lines if line and not line.startswith("#")]


def _both_ways(n: int, ends: np.ndarray, others: np.ndarray) -> np.ndarray:
    found = np.zeros((n, n), dtype=bool)
    found[ends, others] = found[others, ends] = True
    np.fill_diagonal(found, False)
    return found


def parts(graph: np.ndarray) -> list[np.ndarray]:
    """Who can reach whom: the rows of each connected part, ascending, in the order of their first ones."""
    found, left = [], np.ones(len(graph), dtype=bool)
    while left.any():
        order = breadth_first(graph, int(np.flatnonzero(left)[0]))
        left[order] = False
        found.append(np.sort(order))
    return found


def breadth_first(graph: np.ndarray, start: int = 0) -> np.ndarray:
    """All that can be reached from one: first its neighbours, then theirs; those of equal distance in their order."""
    order, seen = [start], np.zeros(len(graph), dtype=bool)
    seen[start] = True
    for row in order:
        new = np.flatnonzero(graph[row] & ~seen)
        seen[new] = True
        order += new.tolist()
    return np.array(order)


def must_be_connected(graph: np.ndarray) -> None:
    """Raises UserError if what one learns never reaches another, and says who they are."""
    apart = parts(graph)
    if len(apart) > 1:
        told = "; ".join(_told(some) for some in apart[:SHOWN_PARTS]) + ("; …" if len(apart) > SHOWN_PARTS else "")
        raise UserError(f"the graph is not connected: {told} are apart; add an edge between them")


def _told(rows: np.ndarray) -> str:
    """Clients in few words."""
    named = ", ".join(map(str, rows[:SHOWN_CLIENTS].tolist()))
    return f"client{'s' if len(rows) > 1 else ''} {named}" + (", …" if len(rows) > SHOWN_CLIENTS else "")


def metropolis(graph: np.ndarray) -> np.ndarray:
    """Weights W `[n, n]` whose rows and columns sum to 1: 1 / (1 + max(d_i, d_j)) for neighbours with d_i and d_j
    neighbours, and the rest for oneself (Xiao and Boyd, "Fast linear iterations for distributed averaging", 2004).
    """
    degrees = graph.sum(axis=1)
    weights = np.where(graph, 1 / (1 + np.maximum.outer(degrees, degrees)), 0.0)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights
