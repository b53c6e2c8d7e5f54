"""The policies: whom to ask now, and when a round has enough. The same on a simulated clock and on a real one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from fedpareto.clock.activity import HERE, OUT, Roster
from fedpareto.clock.in_flight import Flight
from fedpareto.clock.planning import is_time
from fedpareto.clock.policy import Policy
from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Tasks

SOON = 1e-6
"""Seconds that are no time."""
Choose = Callable[[np.ndarray, int], np.ndarray]
"""Function that chooses so many of the free clients, given by their rows, to be asked; returns rows, ascending."""


@dataclass
class Gathering:
    """One federation's way to fill a round."""

    policy: Policy
    air: Roster
    count: int
    """Number of clients that take part in a round."""
    tiers: Callable[[], np.ndarray]
    """The tier of each client, `[n]`: 0, 1, …; it may be another once more is known."""
    done: list[int] = field(default_factory=list)
    """Rounds of each tier."""

    def __post_init__(self) -> None:
        self.done = self.done or [0] * (int(self.tiers().max()) + 1)

    def gathered(self, tasks: Sequence[Tasks], askable: np.ndarray, choose: Choose, everyone: bool) -> np.ndarray:
        """Asks some of those who are `askable` (`[n]`), and waits as the policy says; the rows of those who are here.

        `everyone`: this round needs all of them, whatever the policy is.
        """
        if everyone:
            self.air.wait(self.air.out)  # Their replies are of no use any more.
            self.air.free(np.flatnonzero(~self.air.idle))
            return self.all_of(tasks, np.flatnonzero(askable))
        kind = self.policy.kind
        if kind == "sync":
            return self.all_of(tasks, choose(np.flatnonzero(askable & self.air.idle), self.count))
        if kind == "deadline":
            return self._in_time(tasks, askable, choose)
        if kind == "tiers":
            return self._a_tier(tasks, askable, choose)
        if kind == "planned":
            return self._as_planned(tasks, askable, choose)
        return self._any(tasks, askable, choose, self.policy.replies(self.count))

    def all_of(self, tasks: Sequence[Tasks], rows: np.ndarray) -> np.ndarray:
        """Asks these, and waits for all of them."""
        self.air.send(rows, tasks)
        return self.all_back(rows)

    def all_back(self, rows: np.ndarray) -> np.ndarray:
        """Waits for all of these, who were asked."""
        came = self.air.wait(len(rows))
        if len(came) < len(rows):
            raise UserError(
                f"policy: sync waits for ever for {_some(len(rows) - len(came))} that will never be present again; "
                "deadline and buffered do not"
            )
        return came

    def _in_time(self, tasks: Sequence[Tasks], askable: np.ndarray, choose: Choose) -> np.ndarray:
        air = self.air
        air.send(choose(np.flatnonzero(askable & air.idle), self.count), tasks)
        came = air.wait(air.out, air.now + self.policy.deadline)
        if not len(came):
            came = self._first(1)
        if self.policy.late == "dropped":
            air.free(np.flatnonzero(~air.idle & ~np.isin(np.arange(len(air.status)), came)))
        return came

    def _any(self, tasks: Sequence[Tasks], askable: np.ndarray, choose: Choose, wanted: int) -> np.ndarray:
        """FedBuff's rule: whoever replies makes room for another, who starts from what the server has then."""
        air, busy = self.air, self.policy.at_work(self.count)
        came = np.empty(0, dtype=np.int64)
        while len(came) < wanted:
            free, out = (askable & air.idle).nonzero()[0], air.out
            chosen = choose(free, busy - out) if len(free) and out < busy else free[:0]
            air.send(chosen, tasks)
            if not out and not len(chosen) and len(came):
                break  # Fewer clients than the buffer has room for.
            # If nobody is left to be asked when the next reply is here, several can be waited for at once.
            others = len(free) - len(chosen)
            came = np.concatenate([came, self._first(1 if others else wanted - len(came))])
        return came

    def _as_planned(self, tasks: Sequence[Tasks], askable: np.ndarray, choose: Choose) -> np.ndarray:
        """Clients are asked once they can be reached, for what the server has then; the round closes when it is time.

        While others take the place of those who replied nobody idles, and the round has as many replies as can be.
        """
        air, busy = cast(Flight, self.air), self.policy.at_work(self.count)
        least = self.policy.at_least(self.count)
        most = max(self.policy.replies(self.count), least)
        came = np.empty(0, dtype=np.int64)
        while True:
            idle = np.flatnonzero(askable & air.idle)
            coming = air.fleet.coming(idle, np.full(len(idle), air.now))
            free, room = idle[coming <= air.now + SOON], busy - air.out
            if len(free) and room > 0:
                air.send(choose(free, room), tasks)
            is_full = len(free) > room
            if len(came) >= most:
                return came
            if len(came) >= least and not is_full and is_time(self.policy, air, tasks[0].round, came, most):
                return came
            later = coming[coming > air.now + SOON].min(initial=math.inf) if not is_full else math.inf
            if not air.out and math.isinf(later) and len(came):
                return came
            came = np.concatenate([came, air.wait(1, later) if later < math.inf else self._first(1)])

    def _a_tier(self, tasks: Sequence[Tasks], askable: np.ndarray, choose: Choose) -> np.ndarray:
        """Each tier for itself waits for all its clients; the first that is complete closes the round."""
        air, tier = self.air, self.tiers()
        for number, rounds in enumerate(self.done):
            own = tier == number
            is_ahead = rounds - min(self.done) >= self.policy.lead
            if not is_ahead and (air.idle | ~own).all() and (askable & own).any():
                share = math.ceil(self.count * np.count_nonzero(own) / len(own))
                air.send(choose(np.flatnonzero(askable & own), share), tasks)
        while True:
            here = self._complete()
            if len(here):
                return here
            self._first(1)

    def _complete(self) -> np.ndarray:
        """The rows of a tier whose replies are all here, or of nobody."""
        tier, status = self.tiers(), self.air.status
        for number in np.unique(tier[status == HERE]).tolist():
            own = tier == number
            if not (own & (status == OUT)).any():
                self.done[number] += 1
                return np.flatnonzero(own & (status == HERE))
        return np.empty(0, dtype=np.int64)

    def _first(self, count: int) -> np.ndarray:
        came = self.air.wait(count)
        if not len(came):
            raise UserError(f"policy: {_some(self.air.out)} at work will never be present again, and nobody else is")
        return came


def _some(count: int) -> str:
    return "a client" if count == 1 else f"{count} clients"
