"""In the place of moocore, where that is not installed: readers need runs, and runs the volume of a few points."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np


def for_moocore() -> None:
    """Makes the three functions that a run of small federations needs."""
    if "moocore" not in sys.modules and find_spec("moocore") is None:
        module: Any = ModuleType("moocore")
        module.hypervolume, module.is_nondominated, module.pareto_rank = hypervolume, is_nondominated, pareto_rank
        sys.modules["moocore"] = module


def hypervolume(points: np.ndarray, ref: np.ndarray) -> float:
    """The sum over a grid's cells that a point dominates; for a few points."""
    points = points[(points < ref).all(axis=1)]
    if not len(points):
        return 0.0
    edges = [np.unique([*points[:, side], ref[side]]) for side in range(len(ref))]
    found = 0.0
    for places in product(*(range(len(edge) - 1) for edge in edges)):
        corner = np.array([edge[place] for edge, place in zip(edges, places, strict=True)])
        if (points <= corner).all(axis=1).any():
            found += float(np.prod([edge[place + 1] - edge[place] for edge, place in zip(edges, places, strict=True)]))
    return found


def is_nondominated(points: np.ndarray, keep_weakly: bool = False) -> np.ndarray:
    """A mask of the points that none dominates; of equal ones the first, unless they are kept."""
    better = (points[:, None] <= points[None]).all(2) & (points[:, None] < points[None]).any(2)
    kept = ~better.any(axis=0)
    if not keep_weakly:
        first = np.unique(points, axis=0, return_index=True)[1]
        kept &= np.isin(np.arange(len(points)), first)
    return np.asarray(kept)


def pareto_rank(points: np.ndarray) -> np.ndarray:
    """0 on the front, 1 on the front without it, and so on."""
    ranks = np.full(len(points), -1)
    for rank in range(len(points)):
        left = np.flatnonzero(ranks < 0)
        if len(left):
            ranks[left[is_nondominated(points[left], keep_weakly=True)]] = rank
    return ranks
