"""Who exchanges models with whom where there is no server: graphs as symmetric matrices `[n, n]` of truth values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedpareto.errors import UserError


def ring(n: int) -> np.ndarray:
    """Each with the one before it and the one after it."""
    rows = np.arange(n)
    return _both_ways(n, rows, (rows + 1) % n)


def torus(n: int, planes: int = 0) -> np.ndarray:
    """Rings of equal length side by side, first to last, each member also with the same one of the rings beside it: as
    satellites in planes. Of so many `planes`; 0: the largest number of them that divides n and is at most √n.
    """
    planes = planes or max(p for p in range(1, math.isqrt(n) + 1) if n % p == 0)
    if n % planes:
        raise UserError(f"planes is {planes}, but {n} clients do not fit into as many equal ones")
    size, rows = n // planes, np.arange(n)
    plane, place = np.divmod(rows, size)
    across = _both_ways(n, rows, (rows + size) % n)
    return np.asarray(across | _both_ways(n, rows, plane * size + (place + 1) % size))


def complete(n: int) -> np.ndarray:
    """Everybody with everybody."""
    return ~np.eye(n, dtype=bool)


def of_edges(n: int, edges: Sequence[str]) -> np.ndarray:
    """From pairs such as `0-3`."""
    try:
        pairs = np.array([[int(end) for end in edge.split("-")] for edge in edges], dtype=np.int64).reshape(-1, 2)
    except ValueError:
        raise UserError(f"edges is {', '.join(edges)}; an edge is two clients such as 0-3") from None
    if len(pairs) and pairs.max() >= n:
        raise UserError(f"edges has a client {pairs.max()}; of {n} the last one is {n - 1}")
    return _both_ways(n, *pairs.T)


def _both_ways(n: int, ends: np.ndarray, others: np.ndarray) -> np.ndarray:
    found = np.zeros((n, n), dtype=bool)
    found[ends, others] = found[others, ends] = True
    np.fill_diagonal(found, False)
    return found


def must_be_connected(graph: np.ndarray) -> None:
    """Raises UserError if what one learns never reaches another."""
    reached = np.zeros(len(graph), dtype=bool)
    front = np.arange(len(graph)) == 0
    while front.any():
        reached |= front
        front = graph[front].any(axis=0) & ~reached
    if not reached.all():
        alone = int(np.flatnonzero(~reached)[0])
        raise UserError(f"no way leads from client 0 to client {alone} in the graph; add an edge between their parts")


def metropolis(graph: np.ndarray) -> np.ndarray:
    """Weights W `[n, n]` whose rows and columns sum to 1: 1 / (1 + max(d_i, d_j)) for neighbours with d_i and d_j
    neighbours, and the rest for oneself (Xiao and Boyd, "Fast linear iterations for distributed averaging", 2004).
    """
    degrees = graph.sum(axis=1)
    weights = np.where(graph, 1 / (1 + np.maximum.outer(degrees, degrees)), 0.0)
    np.fill_diagonal(weights, 1 - weights.sum(axis=1))
    return weights
