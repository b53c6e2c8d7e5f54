"""The ground tracks of satellites, by which rows can be spread over clients: who is above a region has its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto_space.orbits.circular import Shell
from fedpareto_space.orbits.regions import scattered, times_above
from fedpareto_space.orbits.sights import LONGEST

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When the tracks begin."""
LONGEST_TRACK = LONGEST / 3600
"""Hours."""


@dataclass(frozen=True)
class GroundTracks:
    """Those of a Walker shell, for some hours."""

    shell: str
    altitude: float
    inclination: float
    hours: float

    def __post_init__(self) -> None:
        if not 0 < self.hours <= LONGEST_TRACK:
            raise UserError(f"track_hours is {self.hours:g}; it is above 0, and at most {LONGEST_TRACK:g}")
        _ = self.walker

    @property
    def walker(self) -> Shell:
        """The shell."""
        return Shell.parse(self.shell, self.altitude, self.inclination)

    def seen(self, clients: int, regions: int, stream: np.random.Generator) -> np.ndarray:
        """The seconds that each client is above each of some regions at random places, `[regions, clients]`."""
        shell = self.walker
        if clients != shell.satellites:
            raise UserError(
                f"partition is 'ground-track' of {shell.satellites} satellites ({self.shell}), not of {clients} "
                f"clients; take clients: {shell.satellites}, or another track_shell"
            )
        return times_above(shell.orbits(START), scattered(regions, stream), START, self.hours * 3600)
