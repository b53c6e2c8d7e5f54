"""Spread of performance over clients: pure functions of one number for each client, `[n]`.

Whether small or large is better is up to the caller: losses and accuracies both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.config.errors import UserError
from fedpareto.moo.min_norm import Array

Evaluation: TypeAlias = Literal["sent", "trained"]
"""Evaluation of the model that the server sends, or of the same after the client's local steps."""

LOW_SHARE = 10
"""The percentile that represents the worst-off clients."""


@dataclass(frozen=True)
class AcrossClients:
    """Summary statistics of the clients' values."""

    mean: float
    deviation: float
    """Deviation of the population: the clients are all there are."""
    worst: float
    best: float
    low: float
    """Nine tenths of the clients do at least as well: the 10th percentile where large values are good, the 90th where
    small ones are.
    """
    jain: float | None
    """Jain's index; None where a value is negative, for which it has no meaning."""


def across_clients(values: ArrayLike, better: Literal["large", "small"] = "large") -> AcrossClients:
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


def across_objectives(points: ArrayLike, maximise: Sequence[bool]) -> list[AcrossClients]:
    """Statistics of each objective, over the clients that have values: `points` `[n, m]` with NaN in the rows of the
    others."""
    rows = np.asarray(points, dtype=np.float64)
    known = rows[np.isfinite(rows).all(axis=1)]
    return [across_clients(column, "large" if up else "small") for column, up in zip(known.T, maximise, strict=True)]


def jain_index(values: ArrayLike) -> float:
    """(Σv)² / (n Σv²), of values that are not negative: 1 where all are alike, 1/n where one has everything.

    It depends on where zero is: the index of accuracies and that of error rates can disagree. All zero: 1.
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


def shares_improved(rounds: Iterable[tuple[int, ArrayLike, ArrayLike]]) -> dict[int, float]:
    """`share_improved` of every round between two measurements, by round.

    A measurement is the number t of rounds that are over, in ascending order; the clients' losses `[n]` of the models
    after them; and the positions of the clients that take part in round t + 1. A loss that is not finite has not
    improved, nor has one that follows it.
    """
    shares: dict[int, float] = {}
    last: tuple[int, Array, NDArray[np.int64]] | None = None
    for done, losses, participants in rounds:
        now = np.asarray(losses, dtype=np.float64)
        if last is not None and last[0] + 1 == done and len(last[2]):
            old, new = last[1][last[2]], now[last[2]]
            known = np.isfinite(old) & np.isfinite(new)
            shares[done] = share_improved(old[known], new[known]) * float(known.mean()) if known.any() else 0.0
        last = done, now, np.asarray(participants, dtype=np.int64)
    return shares


def _finite(values: ArrayLike) -> Array:
    v = np.asarray(values, dtype=np.float64)
    if v.ndim != 1 or not len(v):
        raise ValueError(f"one number for each client, not an array of shape {v.shape}")
    if not np.isfinite(v).all():
        raise UserError("a client's value is not a finite number; leave out who has none")
    return v
