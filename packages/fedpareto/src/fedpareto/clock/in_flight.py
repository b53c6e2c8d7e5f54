"""Work under way on a simulated clock: who is at work since when, when it will be back, and what came of it.

A result depends on what it started from, never on when it is computed. So when replies arrive is known at once, from
devices and links; what they hold is computed later, for all clients at work in one stack, when the first of them is
needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedpareto.clock.activity import HERE, IDLE, UNKNOWN, Roster, TimeIsUp
from fedpareto.clock.trips import Fleet, Homeward, Outward
from fedpareto.contract.messages import Outcome, Tasks, bytes_down, places, tasks_for


class Turn(NamedTuple):
    """A round in which one client is asked and one comes."""

    round: int
    asked: np.ndarray
    """The row of that client, `[1]`."""
    number: int
    """Number of the task, among all that the client has had."""
    left: float
    """Time when the server had it ready …"""
    ready: float
    """… when the client has done its work …"""
    arrives: float
    """… and when its reply will be here."""
    came: np.ndarray
    """The row of who comes …"""
    now: float
    """… when that is …"""
    joules: float
    """… and what all clients have spent by then, and will on what they are at."""


@dataclass
class Flight(Roster):
    """The work of one federation whose clients are simulated."""

    fleet: Fleet
    operations: np.ndarray
    """Operations of one training, `[n]`."""
    reply_bytes: Mapping[str, int]
    """Bytes of the reply to each step, unless replies are coded: then nobody knows before."""
    shares: np.ndarray | None = None
    """Shares of the operations and of the bytes that each client has, `[n, 2]`; None: all of them."""
    ends: float = np.inf
    """Seconds after which nobody waits any more."""
    now: float = 0.0
    """Seconds since the run began."""
    joules: float = 0.0
    """Joules that all clients have spent so far, and will spend on what they are at."""
    weigh: Callable[[], None] | None = None
    """Computes what is under way, where nobody knows before how long a coded reply is; None: everybody does."""
    post: Callable[[Sequence[Tasks], np.ndarray], np.ndarray | int] = bytes_down
    """Sends some clients their tasks: bytes for each of them."""
    without_work: Callable[[int], np.ndarray] | None = None
    """Function from a round to the clients that reply without having done their work, `[n]`; None: nobody."""
    left: np.ndarray = field(init=False)
    """Time when the server had each client's task ready …"""
    ready: np.ndarray = field(init=False)
    """… and when the client has done its work."""
    arrives: np.ndarray = field(init=False)
    """Time when each reply will be here, at the earliest; infinity for clients that are not at work, or never done."""
    landed: np.ndarray = field(init=False)
    """Time when each reply that is here arrived."""
    weighed: np.ndarray = field(init=False)
    """Mask of the replies whose `arrives` is when they will be here, and not only a bound."""
    number: np.ndarray = field(init=False)
    """Number of tasks that each client has had."""
    sending: np.ndarray = field(init=False)
    """The number of the sending in which each client got its task, where nobody knows before when it arrives: those of
    one travel home together, too.
    """
    ARRAYS: ClassVar[tuple[str, ...]] = (
        *Roster.ARRAYS,
        *("left", "ready", "arrives", "landed", "weighed", "number", "sending"),
    )
    VALUES: ClassVar[tuple[str, ...]] = ("now", "joules")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.left, self.ready, self.arrives, self.landed = np.full((4, len(self.setting.clients)), np.inf)
        self.weighed = np.ones(len(self.setting.clients), dtype=bool)
        self.number, self.sending = np.zeros((2, len(self.setting.clients)), dtype=np.int64)

    # -- the clock -------------------------------------------------------------------------------------------------

    @property
    def present(self) -> np.ndarray:
        return self.fleet.presence.present(np.arange(len(self.status)), self.now)

    def send(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> None:
        """Asks clients, who are among those of the tasks."""
        if not len(rows):
            return
        step, down = tasks[0].step, self.post(tasks, self.setting.clients[rows])
        work = self.operations[rows] if step == "train" else 0.0
        if self.without_work is not None:
            work = np.where(self.without_work(tasks[0].round)[rows], 0.0, work)
        number = self.number[rows] = self.number[rows] + 1
        operations, sent = self._sizes(rows, work, down)
        out = self.fleet.outward(rows, self.now, operations, sent, number)
        self.asked(rows, tasks)
        self.joules += float(out.joules.sum())
        self.left[rows], self.ready[rows] = self.now, out.computed
        self._leave_for(rows, out, operations)
        if self.weigh is None:
            replies = tasks_for(tasks, self.setting.clients[rows])
            self._come_back(rows, self._sizes(rows, self.reply_bytes[step] * replies)[0])
        else:
            self.sending[rows] = self.sending.max() + 1
            self.arrives[rows], self.weighed[rows] = self._earliest(rows), False

    @property
    def is_clockwork(self) -> bool:
        """True if only devices and links decide when replies are here."""
        untouched = self.weigh is None and self.post is bytes_down and self.without_work is None
        return untouched and self.shares is None and self.fleet.presence.is_always

    def follow(self, turn: Turn, tasks: Sequence[Tasks]) -> None:
        """`send` and `wait` of a turn that was foreseen."""
        self.asked(turn.asked, tasks)
        row, came = turn.asked.item(), turn.came.item()
        self.number[row], self.left[row] = turn.number, turn.left
        self.ready[row], self.arrives[row] = turn.ready, turn.arrives
        self.now, self.joules, self.landed[came] = turn.now, turn.joules, turn.now
        self.status[came], self.arrives[came] = HERE, np.inf

    def _leave_for(self, rows: np.ndarray, out: Outward, operations: np.ndarray | float) -> None:
        """Note that these clients got their tasks, which take them so many operations."""

    def _earliest(self, rows: np.ndarray) -> np.ndarray:
        """A time before which nothing is heard of these clients, however short their replies are."""
        return self.fleet.homeward(rows, self.ready[rows], 0.0, self.number[rows]).arrived

    def _come_back(self, rows: np.ndarray, sizes: np.ndarray | float) -> Homeward:
        """The replies of these clients have so many bytes."""
        back = self.fleet.homeward(rows, self.ready[rows], sizes, self.number[rows])
        self.joules += float(back.joules.sum())
        self.arrives[rows], self.weighed[rows] = back.arrived, True
        return back

    def came_of_it(self, outcome: Outcome) -> None:
        """Note how long replies are, if that was not known; who failed says so in no bytes."""
        clients = self.setting.clients
        replied, sizes = places(clients, outcome.replies.clients), np.zeros(len(clients))
        np.add.at(sizes, replied, outcome.replies.sizes)  # A client may have a reply in each of several lanes.
        failed = places(clients, np.unique([one.client for one in outcome.failures]).astype(np.int64))
        rows = np.union1d(replied, failed)
        rows = rows[~self.weighed[rows]]
        for number in np.unique(self.sending[rows]).tolist():
            some = rows[self.sending[rows] == number]
            self._come_back(some, sizes[some])

    def about(self) -> dict[str, Any] | None:
        """Facts about the clients' surroundings, told once; None: nothing."""
        return None

    def happened(self) -> list[dict[str, Any]]:
        """Events on the way since the last call, as far as somebody keeps a log."""
        return []

    def noted(self) -> dict[str, float]:
        """Columns of the record about the clock: seconds, and joules of all clients, so far."""
        return {"clock": self.now, "joules": self.joules}

    def _sizes(self, rows: np.ndarray, *of_all: np.ndarray | float) -> list[np.ndarray | float]:
        """Scale these sizes of a whole training to these clients' shares: bytes, or operations and bytes."""
        if self.shares is None:
            return list(of_all)
        of_operations, of_bytes = self.shares[rows].T
        return [one * share for one, share in zip(of_all, (of_operations, of_bytes)[-len(of_all) :], strict=True)]

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and joules of one training for every client, with a model to it and a reply back, `[n]`."""
        model = float(self.setting.initial.numel() * self.setting.initial.element_size())
        everyone = np.arange(len(self.status))
        operations, down = self._sizes(everyone, self.operations, model)
        (up,) = self._sizes(everyone, float(self.reply_bytes.get("train", model)))
        return self.fleet.expected(operations, down, up)

    def soonest(self) -> np.ndarray:
        """Seconds of one training for every client at least, `[n]`: a coded message may have next to no bytes."""
        if self.weigh is None and self.post is bytes_down:
            return self.expected()[0]
        everyone = np.arange(len(self.status))
        return self.fleet.expected(self._sizes(everyone, self.operations, 0.0)[0], 0.0, 0.0)[0]

    def wait(self, count: int, until: float = np.inf) -> np.ndarray:
        """Wait for the next arrivals, in their order: at most `count` clients, and nobody after the time `until`.

        Raises TimeIsUp if the run ends before.
        """
        came, times = self._next(count, min(until, self.ends))
        while self.know_arrivals(came):
            came, times = self._next(count, min(until, self.ends))
        if len(came) < count and self.ends < np.inf and self.ends <= until:
            self.now = self.ends
            raise TimeIsUp
        if until < np.inf and len(came) < count:
            self.now = until
        elif len(came):
            self.now = float(times[len(came) - 1])
        self.landed[came] = times[: len(came)]
        self.status[came], self.arrives[came] = HERE, np.inf
        return came

    def know_arrivals(self, rows: np.ndarray) -> bool:
        """Make known when the replies of these clients arrive; return whether that was news."""
        if np.count_nonzero(self.weighed[rows]) == len(rows):
            return False
        assert self.weigh is not None, "without it all arrivals are known"
        self.weigh()
        return True

    def _next(self, count: int, last: float) -> tuple[np.ndarray, np.ndarray]:
        """Find the next arrivals, at most `count` and none after `last`; and when at most so many would arrive."""
        # Clients that are not at work never arrive, like those that are never done.
        order = self.arrives.argsort(kind="stable") if count > 1 else self.arrives.argmin(axis=0, keepdims=True)
        times = self.arrives[order[:count]]
        return order[: np.count_nonzero((times < np.inf) & (times <= last))], times

    # -- what came of it -------------------------------------------------------------------------------------------

    def due(self, rows: np.ndarray) -> list[Tasks]:
        """Tasks to be computed before the replies of these clients can be had: none, or all not computed yet."""
        if UNKNOWN not in self.stack[rows].tolist():
            return []
        return self.unknown()

    def unknown(self) -> list[Tasks]:
        """Tasks under way and not computed yet."""
        return self.tasks_of(self.setting.clients[(self.status != IDLE) & (self.stack == UNKNOWN)])

    def computed(self, outcome: Outcome) -> None:
        super().computed(outcome)
        self.came_of_it(outcome)

    def free(self, rows: np.ndarray) -> None:
        self.arrives[rows], self.weighed[rows] = np.inf, True
        super().free(rows)
