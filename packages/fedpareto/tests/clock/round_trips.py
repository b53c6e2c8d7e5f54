"""Tasks to clients and back, in one call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedpareto.clock.trips import Fleet


class RoundTrips(NamedTuple):
    """Of k tasks."""

    received: np.ndarray
    computed: np.ndarray
    arrived: np.ndarray
    joules: np.ndarray


def trips(fleet: Fleet, rows: np.ndarray, started, operations, bytes_down, bytes_up, number=0) -> RoundTrips:
    """Both halves."""
    out = fleet.outward(rows, started, operations, bytes_down, number)
    back = fleet.homeward(rows, out.computed, bytes_up, number)
    return RoundTrips(out.received, out.computed, back.arrived, out.joules + back.joules)
