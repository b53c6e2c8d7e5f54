"""When satellites have the power to compute: in sunlight, and as long as the battery lasts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from fedpareto.fleet.presence import Presence
from fedpareto.space.missions.sky import Sky
from fedpareto.space.orbits.windows import Windows


class Power(Protocol):
    """The power of all satellites."""

    def finish(self, rows: np.ndarray, start: np.ndarray, seconds: np.ndarray, watts: np.ndarray) -> np.ndarray:
        """When each is done with work that takes it so long and so much power, from `start` on; infinite: never."""


@dataclass(frozen=True)
class Sunlight:
    """Without a battery: satellites compute while the Sun shines on them, or always."""

    light: Presence

    def finish(self, rows: np.ndarray, start: np.ndarray, seconds: np.ndarray, watts: np.ndarray) -> np.ndarray:
        """See Power."""
        return self.light.finish(rows, start, seconds)


def power_of(sky: Sky) -> Power:
    """Of a mission's satellites."""
    if not sky.options.solar_watts:
        return Sunlight(Presence.always(len(sky.names)))
    return Sunlight(sunlit(sky.shadows, len(sky.names), sky.seconds))


def sunlit(shadows: Windows, satellites: int, seconds: float) -> Presence:
    """When the Sun shines on each satellite; after the mission always."""
    bounds = np.searchsorted(shadows.rows, np.arange(satellites + 1))
    parts = list[np.ndarray]()
    for low, high in pairwise(bounds.tolist()):
        edges = np.concatenate(
            [[0.0], np.stack([shadows.starts[low:high], shadows.ends[low:high]], 1).ravel(), [np.inf]]
        )
        spans = edges.reshape(-1, 2)
        parts.append(spans[spans[:, 1] > spans[:, 0]])
    return Presence.of(parts)
