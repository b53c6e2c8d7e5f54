"""Gains of federation: the utility of each client, under its own preference, beyond training alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpareto.moo.intervals import Interval, interval
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.report.likeness import unlike

LOCAL = "local"
"""The algorithm without communication."""


@dataclass(frozen=True)
class Gain:
    """The gains of the clients of one run over those of another."""

    by_client: Array
    """`[seeds, n]`: utility of a client's model under its own preference, less that of the same client's alone."""

    @property
    def mean(self) -> float:
        return float(self.by_client.mean())

    @property
    def over_seeds(self) -> Interval | None:
        """Interval of the clients' mean over the seeds; None for a single seed."""
        return interval(self.by_client.mean(axis=1))

    @property
    def better_off(self) -> int:
        """Number of clients with a gain, those of all seeds counted."""
        return int((self.by_client > 0).sum())

    def in_words(self) -> str:
        sure = self.over_seeds
        seeds = "" if sure is None else f" ({sure.low:+.3f} to {sure.high:+.3f}, 95 % over {len(self.by_client)} seeds)"
        return f"{self.mean:+.3f}{seeds}, {self.better_off} of {self.by_client.size} clients better off"


def gain(run: Record, alone: Record) -> Gain | None:
    """Return the gain of a run over one of `local`; None where seeds or clients are missing in either, or preferences
    differ.
    """
    found = [gains_of_seed(run, alone, seed) for seed in run.started]
    return Gain(np.array(found)) if all(len(one) == run.clients for one in found) else None


def gains_of_seed(run: Record, alone: Record, seed: int) -> Array:
    """Gains `[n]`, or empty where the two runs' clients are not the same."""
    if run is alone or seed not in alone.started or unlike([run, alone]):
        return np.zeros(0)
    a, b = run.solution(seed), alone.solution(seed)
    mine, theirs = run.own_utilities(seed), alone.own_utilities(seed)
    if mine is None or theirs is None or a.preferences is None or b.preferences is None:
        return np.zeros(0)
    is_same = a.clients == b.clients and np.array_equal(a.preferences, b.preferences)
    return np.asarray(mine - theirs) if is_same else np.zeros(0)
