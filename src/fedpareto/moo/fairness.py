"""How evenly clients fare: pure functions of one number for each client, `[n]`.

What is better, small or large, is the caller's business: losses and accuracies are both welcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.errors import UserError
from fedpareto.moo.min_norm import Array

LOW_SHARE = 10
"""The percentile that stands for the clients at the bottom."""


@dataclass(frozen=True)
class AcrossClients:
    """What the clients' values look like together."""

    mean: float
    deviation: float
    """Of the population: the clients are all there are."""
    worst: float
    best: float
    low: float
    """Nine tenths of the clients fare at least so well: the 10th percentile where large values are good, the 90th where
    small ones are."""
    jain: float | None
    """Jain's index; None where a value is negative, for which it has no meaning."""


def across_clients(values: ArrayLike, better: Literal["large", "small"] = "large") -> AcrossClients:
    """All of them at once."""
    v = _finite(values)
    low, high = float(v.min()), float(v.max())
    large = better == "large"
    return AcrossClients(
        mean=float(v.mean()),
        deviation=float(v.std()),
        worst=low if large else high,
        best=high if large else low,
        low=float(np.percentile(v, LOW_SHARE if large else 100 - LOW_SHARE)),
        jain=jain_index(v) if low >= 0 else None,
    )


def jain_index(values: ArrayLike) -> float:
    """(Σv)² / (n Σv²), of values that are not negative: 1 where all are alike, 1/n where one has everything.

    It depends on where zero is: the index of accuracies and that of error rates tell different stories. All zero: 1.
    """
    v = _finite(values)
    if v.min() < 0:
        raise UserError(f"Jain's index is for values that are not negative; the smallest is {v.min():.3g}")
    largest = v.max()
    if not largest:
        return 1.0
    shares = v / largest
    return float(shares.sum() ** 2 / (len(v) * (shares**2).sum()))


def share_improved(before: ArrayLike, after: ArrayLike) -> float:
    """The share of participants whose loss did not rise: Σ_i 1{f_i(w_t+1) ≤ f_i(w_t)} / n (Hu et al., footnote 5)."""
    old, new = _finite(before), _finite(after)
    if old.shape != new.shape:
        raise ValueError(f"{len(old)} losses before, {len(new)} after")
    return float((new <= old).mean())


def _finite(values: ArrayLike) -> Array:
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1 or not len(v):
        raise ValueError(f"one number for each client, not an array of shape {v.shape}")
    if not np.isfinite(v).all():
        raise UserError("a client's value is not a finite number; leave out who has none")
    return v
