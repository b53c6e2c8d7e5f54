"""Data of the papers' figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.record.run_files import Array

WIDTH = 3.1
"""Inches of a panel of series."""


@dataclass(frozen=True)
class Series:
    """Points `[k, 2]`, or a line through them. A name has one colour in all panels."""

    name: str
    points: Array
    kind: Literal["points", "line"] = "points"
    spread: Array | None = None
    """Deviation around a line, `[k]`."""
    tones: Array | None = None
    """Numbers that become the colours of points, `[k]`."""
    pale: NDArray[np.bool_] | None = None
    """Points that are shown faintly, `[k]` true or false."""

    @classmethod
    def over_seeds(cls, name: str, xs: ArrayLike, values: Array) -> Series:
        """A line of the mean over seeds of `[seeds, k]`, with the deviation."""
        return cls(
            name, np.stack([np.asarray(xs, dtype=float), values.mean(axis=0)], axis=1), "line", values.std(axis=0)
        )


@dataclass(frozen=True)
class Curve:
    """One front."""

    name: str
    """Name of the algorithm, which has the same colour in every panel."""
    points: Sequence[Sequence[float]]
    """`[k, 2]`; may be empty."""
    frame: tuple[tuple[float, float], tuple[float, float]] | None = None
    """The range of another front of that name: ((least, largest x), (least, largest y))."""


@dataclass(frozen=True)
class Panel:
    """A cloud of points with its means and their front."""

    title: str
    single: Array
    """Points of single runs, `[k, 2]`: pale."""
    means: Array
    """Means over runs, `[p, 2]`: solid."""
    front: Array
    """The means that no other dominates, `[f, 2]`, ascending by the first: joined by a staircase."""


@dataclass(frozen=True)
class Bar:
    """One number as a bar."""

    label: str
    value: float
    spread: float = 0.0
    kind: str = ""
    """Bars of one kind have one colour; the legend shows the kinds."""
