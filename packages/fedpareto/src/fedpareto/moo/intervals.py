"""Confidence intervals of means, and of paired differences, from a few seeds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
"""Level of every interval, in the sense of Student's t."""

FEWEST_EQUAL = 6
"""Values that are all equal need to be this many to have an interval: see `interval`."""
ROUNDING = 1e-9
"""Values closer than this share of the largest differ by rounding alone."""


class Interval(NamedTuple):
    """A mean and the interval around it."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True if the sign of the mean is certain at this level."""
        return self.low > 0 or self.high < 0


def interval(values: ArrayLike) -> Interval | None:
    """Interval of the mean of `values` `[k]`; None for fewer than two values, a value that is not finite, or few equal
    ones.

    Equal values show no scatter, of which Student's t is made. What is left is the sign test: that k differences have
    one sign by chance has the probability 2 / 2^k, which is below 5 % from six on. Then their interval has no width.
    """
    known = np.asarray(values, dtype=float)
    if len(known) < 2 or not np.isfinite(known).all():
        return None
    if len(known) < FEWEST_EQUAL and np.ptp(known) <= ROUNDING * np.abs(known).max():
        return None
    from scipy.special import stdtrit  # Half a second that a run of one seed need not wait.

    mean = float(known.mean())
    half = float(stdtrit(len(known) - 1, (1 + LEVEL) / 2) * known.std(ddof=1) / math.sqrt(len(known)))
    return Interval(mean, mean - half, mean + half)
