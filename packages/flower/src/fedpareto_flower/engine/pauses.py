"""Pauses between two polls that grow with the wait: who polls for long takes little of the machine, and who is polled
too.

A poll is a request by HTTP, which takes 2 ms of the processor for who asks and 4 to 7 ms for who answers.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

SHARE = 0.1
"""Share of the time waited so far that a wait may be longer than necessary."""
LONGEST = 1.0
"""Seconds that no pause exceeds because of a long wait."""


def pause_after(waited: float, shortest: float) -> float:
    """Seconds until the next poll, `waited` seconds after the first one."""
    return max(shortest, min(LONGEST, SHARE * waited))


@dataclass
class Pauses:
    """The pauses of one wait, which begins now."""

    shortest: float
    _since: float = field(default_factory=time.monotonic)

    def begin_anew(self) -> None:
        """Shorten the pauses again: what was waited for has come."""
        self._since = time.monotonic()

    def sleep(self, at_most: float = math.inf) -> None:
        time.sleep(min(at_most, pause_after(time.monotonic() - self._since, self.shortest)))
