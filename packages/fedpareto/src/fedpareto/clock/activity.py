"""State of each client of a federation: idle, at work or lost, since which round, and with which reply."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from fedpareto.contract.algorithm import Setting
from fedpareto.contract.messages import Failure, Outcome, Replies, Tasks, only_of, places

IDLE, OUT, HERE = 0, 1, 2
"""A client has nothing to do; is at work, or its reply under way; its reply is here, and no round had it yet."""
UNKNOWN, FAILED = -1, -2
"""Marks in place of the number of a stack of replies: not computed yet; there is none."""


class TimeIsUp(Exception):
    """The simulated hours of a run are over before a round was complete."""


@dataclass
class Roster(ABC):
    """The work of one federation that is under way, and what came of it.

    Row i of everything belongs to the client `setting.clients[i]`, which has at most one task at a time.
    """

    setting: Setting
    status: np.ndarray = field(init=False)
    """IDLE, OUT or HERE of each client."""
    version: np.ndarray = field(init=False)
    """The round of the task that each client has …"""
    tasks: dict[int, list[Tasks]] = field(init=False, repr=False)
    """… and the tasks of each such round."""
    stack: np.ndarray = field(init=False)
    """Number of the stack of replies that has each client's …"""
    row: np.ndarray = field(init=False)
    """… and in which row of it."""
    replies: dict[int, Replies] = field(init=False, repr=False)
    failures: dict[int, Failure] = field(init=False, repr=False)
    """Reasons why there is no reply, by the client's row."""
    ARRAYS: ClassVar[tuple[str, ...]] = ("status", "version", "stack", "row")
    """Arrays that a checkpoint saves beside tasks and replies …"""
    VALUES: ClassVar[tuple[str, ...]] = ("now",)
    """… and of numbers."""

    def __post_init__(self) -> None:
        clients = len(self.setting.clients)
        self.status = np.full(clients, IDLE, dtype=np.int8)
        self.version = np.zeros(clients, dtype=np.int64)
        self.stack = np.full(clients, UNKNOWN, dtype=np.int64)
        self.row = np.zeros(clients, dtype=np.int64)
        self.tasks: dict[int, list[Tasks]] = {}
        self.replies: dict[int, Replies] = {}
        self.failures: dict[int, Failure] = {}
        self._users: dict[int, int] = {}
        self._readers: dict[int, int] = {}
        self._singly: WeakKeyDictionary[Replies, list[Replies]] = WeakKeyDictionary()

    def count_users(self) -> None:
        """Count the clients that need each round's tasks and each stack of replies, from what is there."""
        busy = self.status != IDLE
        for users, numbers in (
            (self._users, self.version[busy]),
            (self._readers, self.stack[busy & (self.stack >= 0)]),
        ):
            users |= dict(zip(*(some.tolist() for some in np.unique(numbers, return_counts=True)), strict=True))

    # -- the clock -------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def now(self) -> float:
        """Seconds since the run began."""

    @abstractmethod
    def noted(self) -> dict[str, float]:
        """Return what a row of the record says of the clock."""

    @property
    @abstractmethod
    def present(self) -> np.ndarray:
        """Mask of the clients that are there now, `[n]`."""

    @abstractmethod
    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and joules of one training for every client, with a model to it and a reply back, `[n]`."""

    @abstractmethod
    def send(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> None:
        """Asks clients, who are among those of the tasks."""

    @abstractmethod
    def wait(self, count: int, until: float = math.inf) -> np.ndarray:
        """Wait for the next arrivals, in their order: at most `count` clients, and nobody after the time `until`."""

    @property
    def audible(self) -> np.ndarray:
        """Mask of clients that may be asked before they are heard again, `[n]`: all, unless a clock knows better."""
        return self._everyone

    @cached_property
    def _everyone(self) -> np.ndarray:
        everyone = np.ones(len(self.status), dtype=bool)
        everyone.setflags(write=False)
        return everyone

    def askable(self, tasks: Sequence[Tasks]) -> np.ndarray:
        """Mask of the clients for which there is work and which may be asked, `[n]`."""
        clients = self.setting.clients
        if len(tasks) == 1 and len(tasks[0]) == len(clients):
            return self.audible
        found: np.ndarray = np.isin(clients, np.concatenate([some.clients for some in tasks])) & self.audible
        return found

    @property
    def idle(self) -> np.ndarray:
        """Mask of the clients that could be asked, `[n]`."""
        found: np.ndarray = self.status == IDLE
        return found

    @property
    def out(self) -> int:
        """Number of clients at work."""
        return int(np.count_nonzero(self.status == OUT))

    def asked(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> None:
        """Note that these clients are at work from now on; they are among those of the tasks."""
        round_ = tasks[0].round
        _leave(self._users, self.tasks, self.version[rows][self.status[rows] != IDLE])
        self.tasks.setdefault(round_, list(tasks))
        self._users[round_] = self._users.get(round_, 0) + len(rows)
        self.status[rows], self.version[rows], self.stack[rows] = OUT, round_, UNKNOWN

    # -- what came of it -------------------------------------------------------------------------------------------

    @abstractmethod
    def due(self, rows: np.ndarray) -> list[Tasks]:
        """Tasks that have to be computed before the replies of these clients can be had."""

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
        if len(rows) == 1 and (stack := int(self.stack[rows[0]])) >= 0:
            return self._each_of(self.replies[stack])[self.row[rows[0]]], []
        rows = np.sort(rows)
        stacks = self.stack[rows]
        numbers = sorted(set(stacks.tolist()))
        if len(numbers) == 1 and numbers[0] >= 0:
            return self.replies[numbers[0]].only(self.row[rows]), []
        parts = [self.replies[one].only(self.row[rows[stacks == one]]) for one in numbers if one >= 0]
        replies = Replies.cat(parts)
        if len(parts) > 1:
            replies = replies.only(np.argsort(replies.clients, kind="stable"))
        return replies, [self.failures[row] for row in rows[stacks == FAILED].tolist()]

    def _each_of(self, stack: Replies) -> list[Replies]:
        """The replies of a stack one by one, for as long as it is there."""
        found = self._singly.get(stack)
        if found is None:
            found = self._singly[stack] = stack.singly()
        return found

    def forget_reply(self, row: int) -> None:
        _leave(self._readers, self.replies, self.stack[row : row + 1])
        self.stack[row] = UNKNOWN

    def without_lost(self, outcome: Outcome) -> Outcome:
        """Return the outcome without the replies that got lost on their way, each of which is a failure; of a client
        that had none to send its own is the only one.
        """
        if not self.failures:
            return outcome
        lost, failed = self.setting.clients[sorted(self.failures)], {one.client for one in outcome.failures}
        kept = outcome.replies.only(np.flatnonzero(~np.isin(outcome.replies.clients, lost)))
        missing = [one for one in self.failures.values() if one.client not in failed]
        return replace(outcome, replies=kept, failures=[*outcome.failures, *missing])

    def tasks_of(self, clients: np.ndarray) -> list[Tasks]:
        """Tasks of these clients, ascending; each client is in one of them."""
        rows = places(self.setting.clients, clients)
        versions = self.version[rows]
        rows = rows[versions.argsort(kind="stable")]
        rounds, counts = np.unique(versions, return_counts=True)
        ends = zip(rounds.tolist(), counts.cumsum().tolist(), counts.tolist(), strict=True)
        return [some for round_, end, count in ends for some in self._tasks_of_round(round_, rows[end - count : end])]

    def _tasks_of_round(self, round_: int, rows: np.ndarray) -> list[Tasks]:
        tasks = self.tasks[round_]
        if len(tasks) == 1 and len(tasks[0]) == len(self.setting.clients):
            return [tasks[0].only(rows)]
        return only_of(tasks, self.setting.clients[rows])

    def tasks_of_replies(self, replies: Replies) -> list[Tasks]:
        """Tasks that these replies answer, perhaps with other clients in them."""
        rounds = set(replies.rounds.tolist())
        return self.tasks[rounds.pop()] if len(rounds) == 1 else self.tasks_of(replies.clients)

    def free(self, rows: np.ndarray) -> None:
        """Note that these clients have nothing to do any more; what nobody needs is forgotten."""
        for row in rows.tolist() if self.failures else ():
            self.failures.pop(row, None)
        _leave(self._users, self.tasks, self.version[rows])
        _leave(self._readers, self.replies, self.stack[rows])
        self.status[rows], self.stack[rows] = IDLE, UNKNOWN


def _leave(users: dict[int, int], things: dict[int, Any], numbers: np.ndarray) -> None:
    """Note that these users of things, by number, are gone; unused things are forgotten. Below 0 is no thing."""
    for number in numbers.tolist():
        if number >= 0:
            users[number] -= 1
            if not users[number]:
                del users[number], things[number]
