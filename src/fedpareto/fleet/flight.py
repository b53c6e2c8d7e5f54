"""Work under way on a simulated clock: who is at work since when, when it will be back, and what came of it.

A result depends on what it started from, never on when it is computed. So when replies arrive is known at once, from
devices and links; what they hold is computed later, for all clients at work in one stack, when the first of them is
needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedpareto.core.messages import Tasks, bytes_down
from fedpareto.fleet.roster import HERE, IDLE, UNKNOWN, Roster
from fedpareto.fleet.trips import Fleet, Trips


@dataclass
class Flight(Roster):
    """The work of one federation whose clients are simulated."""

    fleet: Fleet
    operations: np.ndarray
    """Of one training, `[n]`."""
    reply_bytes: Mapping[str, int]
    """Of the reply to each step."""
    shares: np.ndarray | None = None
    """What each client has of the operations and of the bytes, `[n, 2]`; None: all of them."""
    now: float = 0.0
    """Seconds since the run began."""
    joules: float = 0.0
    """That all clients have spent so far, and will on what they are at."""
    arrives: np.ndarray = field(init=False)
    """When each reply will be here; infinity for clients that are not at work, or never done."""
    number: np.ndarray = field(init=False)
    """How many tasks each client has had."""
    ARRAYS: ClassVar[tuple[str, ...]] = (*Roster.ARRAYS, "arrives", "number")
    VALUES: ClassVar[tuple[str, ...]] = ("now", "joules")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arrives = np.full(len(self.setting.clients), np.inf)
        self.number = np.zeros(len(self.setting.clients), dtype=np.int64)

    # -- the clock -------------------------------------------------------------------------------------------------

    @property
    def present(self) -> np.ndarray:
        """Which clients' devices are there now, `[n]`."""
        return self.fleet.presence.present(np.arange(len(self.status)), self.now)

    def send(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> None:
        """Asks clients, who are among those of the tasks."""
        if not len(rows):
            return
        trips = self._trips(rows, tasks)
        self.joules += float(trips.joules.sum())
        self.asked(rows, tasks)
        self.arrives[rows] = trips.arrived

    def noted(self) -> dict[str, float]:
        """What a row of the record says of the clock: seconds, and joules of all clients, so far."""
        return {"clock": self.now, "joules": self.joules}

    def _trips(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> Trips:
        step, down = tasks[0].step, bytes_down(tasks, self.setting.clients[rows])
        work = self.operations[rows] if step == "train" else 0.0
        number = self.number[rows] = self.number[rows] + 1
        return self.fleet.trips(rows, self.now, *self._sizes(rows, work, down, self.reply_bytes[step]), number)

    def _sizes(
        self, rows: np.ndarray, operations: np.ndarray | float, down: np.ndarray | float, up: np.ndarray | float
    ) -> tuple[np.ndarray | float, np.ndarray | float, np.ndarray | float]:
        """Operations and bytes both ways of these clients, if those of a whole training are these."""
        if self.shares is None:
            return operations, down, up
        of_operations, of_bytes = self.shares[rows].T
        return operations * of_operations, down * of_bytes, up * of_bytes

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and joules of one training for every client, with a model to it and a reply back, `[n]`."""
        model = float(self.setting.initial.numel() * self.setting.initial.element_size())
        everyone = np.arange(len(self.status))
        operations, down, up = self._sizes(
            everyone, self.operations, model, float(self.reply_bytes.get("train", model))
        )
        return self.fleet.expected(operations, down, up)

    def wait(self, count: int, until: float = np.inf) -> np.ndarray:
        """Those who arrive next, in this order: at most `count` of them, and nobody after the time `until`."""
        # Who is not at work arrives never, as those who are never done.
        order = self.arrives.argsort(kind="stable") if count > 1 else self.arrives.argmin(axis=0, keepdims=True)
        times = self.arrives[order[:count]]
        came = order[: np.count_nonzero((times < np.inf) & (times <= until))]
        if until < np.inf and len(came) < min(count, self.out):
            self.now = until
        elif len(came):
            self.now = float(times[len(came) - 1])
        self.status[came], self.arrives[came] = HERE, np.inf
        return came

    # -- what came of it -------------------------------------------------------------------------------------------

    def due(self, rows: np.ndarray) -> list[Tasks]:
        """What has to be computed before the replies of these clients can be had: nothing, or all that is not yet."""
        if (self.stack[rows] != UNKNOWN).all():
            return []
        return self.tasks_of(self.setting.clients[(self.status != IDLE) & (self.stack == UNKNOWN)])

    def free(self, rows: np.ndarray) -> None:
        """See Roster."""
        self.arrives[rows] = np.inf
        super().free(rows)
