"""The clock run ahead, where every reply is a round: who is asked and who comes does not depend on what they learn.

So that is found for many rounds at once and in plain numbers. A round at a time, between everything else that a round
does, it takes several times as long.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from fedpareto.clock.in_flight import Flight, Turn
from fedpareto.contract.messages import Tasks

MOST = 256
"""Rounds that are found at once."""


@dataclass
class Timetable:
    """The next rounds of a flight that is clockwork."""

    flight: Flight
    busy: int
    """Number of clients at work at a time."""
    choose: Callable[[int, int], int]
    """Whom to ask in a round (by its number), as a place among so many who are free."""
    _turns: deque[Turn] = field(default_factory=deque)
    _size: int = 0
    """Bytes of a task, as they were foreseen."""
    _followed: int = 0
    """Number of the turns last foreseen that were as they happened."""

    def turn(self, tasks: Sequence[Tasks]) -> Turn | None:
        """Turn of the round with these tasks; None: the round is not that simple."""
        if len(tasks) > 1 or len(tasks[0]) < len(self.flight.status) or tasks[0].step != "train":
            return None
        if not self._turns or not self._is_next(self._turns[0], tasks[0]):
            # Where something else happens every few rounds, a long look ahead would be in vain.
            self._turns = deque(self._foreseen(tasks[0], min(2 * self._followed + 1, MOST)))
            self._size, self._followed = tasks[0].size, 0
        if not self._turns:
            return None
        self._followed += 1
        return self._turns.popleft()

    def _is_next(self, turn: Turn, tasks: Tasks) -> bool:
        """Check that a turn is what happens now: with a failed reply, a round has another turn."""
        return turn.round == tasks.round and turn.left == self.flight.now and self._size == tasks.size

    def _foreseen(self, tasks: Tasks, count: int) -> list[Turn]:
        """Foresee at most so many turns, until the run ends; none unless exactly one client has to be asked now."""
        flight, turns = self.flight, list[Turn]()
        free: list[int] = flight.idle.nonzero()[0].tolist()
        if min(self.busy - flight.out, len(free)) != 1:
            return turns
        numbers, (at_work,) = flight.number.tolist(), (flight.arrives < np.inf).nonzero()
        coming: list[tuple[float, int]] = list(zip(flight.arrives[at_work].tolist(), at_work.tolist(), strict=True))
        heapify(coming)
        rows_of = np.arange(len(numbers))
        now, joules, up = flight.now, flight.joules, flight.reply_bytes["train"]
        for round_ in range(tasks.round, tasks.round + count):
            asked = free.pop(self.choose(round_, len(free)) if len(free) > 1 else 0)
            numbers[asked] += 1
            trip = flight.fleet.trip(asked, now, flight.operations.item(asked), tasks.size, up, numbers[asked])
            heappush(coming, (trip.arrived, asked))
            here, came = heappop(coming)
            if here > flight.ends:
                break
            joules = joules + trip.joules_out + trip.joules_back
            rows, others = rows_of[asked : asked + 1], rows_of[came : came + 1]
            turns.append(Turn(round_, rows, numbers[asked], now, trip.computed, trip.arrived, others, here, joules))
            insort(free, came)
            now = here
        return turns
