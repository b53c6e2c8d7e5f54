"""Work under way on a simulated clock: who is at work since when, when it will be back, and what came of it.

A result depends on what it started from, never on when it is computed. So when replies arrive is known at once, from
devices and links; what they hold is computed later, for all clients at work in one stack, when the first of them is
needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.core.algorithm import Setting
from fedpareto.core.messages import Failure, Outcome, Replies, Tasks, bytes_down, only_of, places
from fedpareto.fleet.gathering import HERE, IDLE, OUT
from fedpareto.fleet.trips import Fleet, Trips

UNKNOWN, FAILED = -1, -2
"""In place of the number of a stack of replies: not computed yet; there is none."""


@dataclass
class Flight:
    """The work of one federation. Row i of everything belongs to the client `setting.clients[i]`, which has at most one
    task at a time.
    """

    fleet: Fleet
    setting: Setting
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
    status: np.ndarray = field(init=False)
    arrives: np.ndarray = field(init=False)
    """When each reply will be here; infinity for clients that are not at work, or never done."""
    number: np.ndarray = field(init=False)
    """How many tasks each client has had."""
    version: np.ndarray = field(init=False)
    """The round of the task that each client has …"""
    tasks: dict[int, list[Tasks]] = field(init=False, repr=False)
    """… and the tasks of each such round."""
    stack: np.ndarray = field(init=False)
    """In which of the stacks of replies that of each client is …"""
    row: np.ndarray = field(init=False)
    """… and in which row of it."""
    replies: dict[int, Replies] = field(init=False, repr=False)
    failures: dict[int, Failure] = field(init=False, repr=False)
    """Of clients by row, why there is no reply."""

    def __post_init__(self) -> None:
        clients = len(self.setting.clients)
        self.status = np.full(clients, IDLE, dtype=np.int8)
        self.arrives = np.full(clients, np.inf)
        self.number = np.zeros(clients, dtype=np.int64)
        self.version = np.zeros(clients, dtype=np.int64)
        self.stack = np.full(clients, UNKNOWN, dtype=np.int64)
        self.row = np.zeros(clients, dtype=np.int64)
        self.tasks: dict[int, list[Tasks]] = {}
        self.replies: dict[int, Replies] = {}
        self.failures: dict[int, Failure] = {}
        self._users: dict[int, int] = {}
        self._readers: dict[int, int] = {}

    def count_users(self) -> None:
        """How many clients need each round's tasks and each stack of replies, from what is there."""
        busy = self.status != IDLE
        for users, numbers in (
            (self._users, self.version[busy]),
            (self._readers, self.stack[busy & (self.stack >= 0)]),
        ):
            users |= dict(zip(*(some.tolist() for some in np.unique(numbers, return_counts=True)), strict=True))

    # -- the clock -------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> np.ndarray:
        """Whether each client could be asked, `[n]`."""
        found: np.ndarray = self.status == IDLE
        return found

    @property
    def out(self) -> int:
        """How many are at work."""
        return int(np.count_nonzero(self.status == OUT))

    @property
    def present(self) -> np.ndarray:
        """Which clients' devices are there now, `[n]`."""
        return self.fleet.presence.present(np.arange(len(self.status)), self.now)

    def send(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> None:
        """Asks clients, who are among those of the tasks."""
        if not len(rows):
            return
        round_ = tasks[0].round
        self.tasks.setdefault(round_, list(tasks))
        self._users[round_] = self._users.get(round_, 0) + len(rows)
        trips = self._trips(rows, tasks)
        self.joules += float(trips.joules.sum())
        self.status[rows], self.version[rows], self.arrives[rows] = OUT, round_, trips.arrived
        self.stack[rows] = UNKNOWN

    def _trips(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> Trips:
        down = bytes_down(tasks, self.setting.clients[rows])
        step = tasks[0].step
        work = self.operations[rows] if step == "train" else np.zeros(len(rows))
        work, down, up = self._sizes(rows, work, down, float(self.reply_bytes[step]))
        self.number[rows] += 1
        return self.fleet.trips(rows, self.now, work, down, up, self.number[rows])

    def _sizes(self, rows: np.ndarray, *sizes: np.ndarray | float) -> list[np.ndarray]:
        """Operations and bytes both ways of these clients, if those of a whole training are these."""
        shares = np.ones((len(rows), 2)) if self.shares is None else self.shares[rows]
        return [size * shares[:, place] for size, place in zip(sizes, (0, 1, 1), strict=True)]

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
        if count == 1:  # As below, faster.
            first = int(self.arrives.argmin())
            order = np.array([first] if self.status[first] == OUT else [], dtype=np.int64)
        else:
            out = np.flatnonzero(self.status == OUT)
            order = out[np.argsort(self.arrives[out], kind="stable")]
        times = self.arrives[order]
        came = order[: min(count, int(np.count_nonzero(np.isfinite(times) & (times <= until))))]
        self.status[came] = HERE
        if np.isfinite(until) and len(came) < min(count, len(order)):
            self.now = until
        elif len(came):
            self.now = float(times[len(came) - 1])
        self.arrives[came] = np.inf
        return came

    # -- what came of it -------------------------------------------------------------------------------------------

    def due(self, rows: np.ndarray) -> list[Tasks]:
        """What has to be computed before the replies of these clients can be had: nothing, or all that is not yet."""
        if (self.stack[rows] != UNKNOWN).all():
            return []
        return self.tasks_of(self.setting.clients[(self.status != IDLE) & (self.stack == UNKNOWN)])

    def computed(self, outcome: Outcome) -> None:
        """Notes the results of what was due."""
        rows = places(self.setting.clients, outcome.replies.clients)
        number = max(self.replies, default=0) + 1
        self.stack[rows], self.row[rows] = number, np.arange(len(rows))
        self.replies[number] = outcome.replies
        if len(rows):
            self._readers[number] = len(rows)
        else:
            del self.replies[number]
        for failure in outcome.failures:
            (row,) = places(self.setting.clients, np.array([failure.client])).tolist()
            self.stack[row], self.failures[row] = FAILED, failure

    def taken(self, rows: np.ndarray) -> tuple[Replies, list[Failure]]:
        """The replies of clients who are here, sorted by client, and of the others why there is none."""
        rows = np.sort(rows)
        stacks, parts = self.stack[rows], []
        for number in sorted(set(stacks[stacks >= 0].tolist())):
            parts.append(self.replies[number].only(self.row[rows[stacks == number]]))
        replies = Replies.cat(parts)
        if len(parts) > 1:
            replies = replies.only(np.argsort(replies.clients, kind="stable"))
        return replies, [self.failures[row] for row in rows[stacks == FAILED].tolist()]

    def tasks_of(self, clients: np.ndarray) -> list[Tasks]:
        """What these clients, ascending, were asked; each is in one of them."""
        versions = self.version[places(self.setting.clients, clients)]
        if len(versions) == 1:
            return only_of(self.tasks[int(versions[0])], clients)
        found = []
        for round_ in np.unique(versions).tolist():
            found += only_of(self.tasks[round_], clients[versions == round_])
        return found

    def free(self, rows: np.ndarray) -> None:
        """These clients have nothing to do any more; what nobody needs is forgotten."""
        self.status[rows], self.arrives[rows] = IDLE, np.inf
        stacks = self.stack[rows]
        for row in rows[stacks == FAILED].tolist():
            del self.failures[row]
        self.stack[rows] = UNKNOWN
        _leave(self._users, self.tasks, self.version[rows])
        _leave(self._readers, self.replies, stacks[stacks >= 0])


def _leave(users: dict[int, int], things: dict[int, Any], numbers: np.ndarray) -> None:
    """Some users of things, by their numbers, are gone; what nobody uses is forgotten."""
    for number in numbers.tolist():
        users[number] -= 1
        if not users[number]:
            del users[number], things[number]
