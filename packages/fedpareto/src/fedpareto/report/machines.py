"""Single clients' machines, updates, contributions and results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo.indicators import own_utilities
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record

THIRDS = ("slowest third", "middle third", "fastest third")
"""Groups of clients where devices have no tiers."""


@dataclass(frozen=True, eq=False)
class OfClients:
    """The clients of one seed, `[n]` each."""

    seconds: Array
    """Expected seconds of an exchange."""
    tier: Array
    """Index of the client's group among `groups`."""
    groups: tuple[str, ...]
    """Tiers of devices, or thirds by the seconds of an exchange."""
    updates: NDArray[np.int64]
    """Number of rounds that used a reply of the client."""
    utility: Array
    """Utility at the end; NaN where that is not known."""
    is_better_large: bool

    def correlation(self, key: str) -> float:
        """Correlate utility with speed, or with updates; positive: fast or often heard clients have more."""
        better = self.utility if self.is_better_large else -self.utility
        return rank_correlation(-self.seconds if key == "utility_by_speed" else self.updates.astype(float), better)

    def plain(self, client: int) -> dict[str, str | float | None]:
        if not 0 <= client < len(self.seconds):
            return {"device": None, "exchange_seconds": None}
        return {"device": self.groups[int(self.tier[client])], "exchange_seconds": float(self.seconds[client])}

    def worst(self, utility: Array) -> float:
        return float(utility.min() if self.is_better_large else utility.max())


def of_clients(run: Record, seed: int) -> OfClients | None:
    """Return what is known of the clients of a seed; None without devices."""
    first = run.of_seed(seed)[0]
    blocks = [first.columns.block(first.row, name) for name in ("device_seconds", "device_tier")]
    if None in blocks:
        return None
    seconds, tier = (first.columns.spread(block) for block in blocks if block is not None)
    groups = run.tiers
    if len(groups) < 2:
        order = np.argsort(np.argsort(-seconds, kind="stable"), kind="stable")
        tier, groups = np.asarray(order * len(THIRDS) // len(order), dtype=np.float64), THIRDS
    is_better_large = not run.single or run.objectives[0].maximise
    return OfClients(seconds, tier, groups, updates(run, seed), _utility(run, seed), is_better_large)


def updates(run: Record, seed: int) -> NDArray[np.int64]:
    """Number of rounds that used a reply of each client, `[n]`."""
    found = np.zeros(run.clients, dtype=np.int64)
    for line in run.of_seed(seed):
        block = line.columns.block(line.row, "traffic")
        if block is not None:
            found[line.columns.who(block)[line.columns.values(block, 1) > 0]] += 1
    return found


def contributions(run: Record, seed: int) -> dict[str, Array]:
    """Contribution of each client, `[n]` by name; empty where it was not measured."""
    lines = run.of_seed(seed)
    return lines[0].columns.contributions(line.row for line in lines)


def _utility(run: Record, seed: int) -> Array:
    one, found = run.solution(seed), np.full(run.clients, np.nan)
    points = one.objectives.get(run.own_split)
    if points is None or len(points) != run.clients:
        return found
    known = np.isfinite(points).all(axis=1)
    if run.single:
        found[known] = points[known, 0]
    elif one.preferences is not None:
        found[known] = own_utilities(points[known], one.preferences[known], run.maximise)
    return found


def rank_correlation(a: Array, b: Array) -> float:
    """Spearman's ρ of the pairs that are known; NaN where one of both is always the same."""
    known = np.isfinite(a) & np.isfinite(b)
    ranks = [_ranks(one[known]) for one in (a, b)]
    if not known.any() or any(np.ptp(one) == 0 for one in ranks):
        return float("nan")
    x, y = (one - one.mean() for one in ranks)
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def _ranks(values: Array) -> Array:
    """Rank values; equal ones share the mean of their places."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
