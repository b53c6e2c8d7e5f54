"""Tasks under way to real nodes, by the wall clock: nobody waits for a node that is slow or away.

A task stays with its client until an answer comes, whenever that is. What counts as a failure is an answer that is an
error or is refused; silence never does. The same envelope is sent again when a node was away or another has taken its
place, and now and then to one that is silent, since a connection may break just as Flower hands a message over. A node
that has done it gives the same answer.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

from fedpareto.clock.activity import HERE, OUT, Roster
from fedpareto.contract.messages import ByClient, Failure, Outcome, Parcels, Replies, Tasks, beginnings_of, places
from fedpareto.engines.reply_checks import far
from fedpareto.engines.single import Reply, Task, stacked
from fedpareto.moo import robust
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.answer_checks import Judge
from fedpareto_flower.engine.members import Members
from fedpareto_flower.engine.options import FlowerOptions
from fedpareto_flower.engine.pauses import Pauses
from fedpareto_flower.engine.post import EXCHANGE, Away, Post

LIFETIME = 86_400.0
"""Seconds that Flower keeps a task for a node, and accepts the answer: a day. After that it is sent again."""
LOOK = 10
"""Pauses between polls (see FlowerOptions) until the next look at who is connected, and until a task is sent again that
Flower could not hand over; the next time twice as many.
"""

log = logging.getLogger("fedpareto.flower")


@dataclass
class _Letter:
    """A client's task as its node gets it."""

    envelope: wire.Envelope
    content: RecordDict
    messages: list[str] = field(default_factory=list)
    """Flower's, whose replies are awaited."""
    node: int = 0
    sent: int = 0
    """Number of times that it was sent."""
    since: float = math.inf
    """Time when it was sent first, in seconds of the run."""
    again: float = 0.0
    """Time when it is sent again if the node is connected, by the clock."""


@dataclass
class Airmail(Roster):
    """The work of one federation whose clients are nodes."""

    run: int
    post: Post
    members: Members
    judge: Judge
    options: FlowerOptions
    count: Callable[..., None]
    """Function that is told of bytes to and from each client."""
    solutions: Parcels | None = None
    """Solutions that clients measure beside their next task; None: nothing."""
    clock: Callable[[], float] = time.monotonic
    """Seconds, from any time on."""
    seconds: np.ndarray = field(init=False)
    """Seconds that each client took for its last task, from the time that it was sent; NaN: unknown."""
    reported: np.ndarray = field(init=False)
    """The objectives that each client reported last, `[n, parts, m]`; NaN: none yet."""
    since: np.ndarray = field(init=False)
    """The round of each client's last reply that counted: its private state goes on from there. 0: none yet."""
    ARRAYS: ClassVar[tuple[str, ...]] = (*Roster.ARRAYS, "seconds", "reported", "since")

    def __post_init__(self) -> None:
        super().__post_init__()
        clients = len(self.setting.clients)
        self.now = 0.0
        self.seconds = np.full(clients, np.nan)
        self.since = np.zeros(clients, dtype=np.int64)
        self.reported = np.full((clients, 0, len(self.setting.objectives)), np.nan)
        self._letters: dict[int, _Letter] = {}
        self._false: dict[int, list[Failure]] = {}
        self._lengths: dict[str, Tensor] = {}
        """Lengths of the last update of each client, `[n, ...]`; NaN: none yet."""
        self._next_look = 0.0

    # -- the clock -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the run began, without those in which no server was there."""
        return self.clock() - self._begun

    @now.setter
    def now(self, seconds: float) -> None:
        self._begun = self.clock() - seconds

    def noted(self) -> dict[str, float]:
        return {"clock": self.now}

    @property
    def present(self) -> np.ndarray:
        """Mask of the clients whose nodes are connected, `[n]`."""
        return np.isin(self.setting.clients, list(self.members.nodes))

    def expected(self) -> tuple[np.ndarray, np.ndarray]:
        """Seconds of each client for a task, at least: what it took last, and has taken so far; joules are unknown."""
        found = self.seconds.copy()
        for row, letter in self._letters.items():
            found[row] = np.fmax(found[row], self.now - letter.since) if letter.sent else found[row]
        return found, np.full(len(found), np.nan)

    def at_work(self) -> dict[int, tuple[int, float]]:
        """Clients that have a task: its round, and for how many seconds."""
        now, clients = self.now, self.setting.clients
        return {
            int(clients[row]): (int(self.version[row]), max(0.0, now - letter.since))
            for row, letter in list(self._letters.items())
        }

    # -- out and back ----------------------------------------------------------------------------------------------

    def send(self, rows: np.ndarray, tasks: Sequence[Tasks]) -> None:
        """Asks clients, who are among those of the tasks. Who has not been reached so far gets these instead."""
        unsent = [row for row, letter in self._letters.items() if not letter.sent]
        known = np.isin(self.setting.clients, np.concatenate([some.clients for some in tasks]))
        rows = np.union1d(rows, [row for row in unsent if known[row]]).astype(np.int64)
        for row in rows.tolist():
            self._letters.pop(row, None)
        if len(rows):
            self.asked(rows, tasks)
            self._keep_in_touch()

    def wait(self, count: int, until: float = math.inf) -> np.ndarray:
        """Wait for the clients whose answers come next: at most `count` of them, and nobody after the time `until`."""
        came: list[int] = []
        count = min(count, self.out)
        pauses = Pauses(self.options.poll)
        while len(came) < count:
            self._keep_in_touch()
            oldest = sorted(self._letters, key=lambda row: self._letters[row].since)
            for row in oldest:
                if len(came) < count and self._arrived(row):
                    came.append(row)
            left = until - self.now
            if len(came) == count or left <= 0:
                break
            pauses.sleep(left)
        return np.array(came, dtype=np.int64)

    def _keep_in_touch(self) -> None:
        """Sends what has not been sent, and what may have been lost, to those who are connected."""
        now = self.clock()
        if now >= self._next_look:
            self.members.meet()
            self._next_look = now + LOOK * self.options.poll
        for row in np.flatnonzero(self.status == OUT).tolist():
            letter = self._letters.get(row)
            if letter is None:
                letter = self._letters[row] = self._written(row)
            node = self.members.nodes.get(letter.envelope.client)
            if node is None:
                letter.again = now  # As soon as it is back.
            elif now >= letter.again or node != letter.node:
                self._push(letter, node)
        self.post.expect(max((self.judge.limits(one.envelope).bytes for one in self._letters.values()), default=0))

    def _written(self, row: int) -> _Letter:
        """The envelope for a client's task; after a resume the same task, which its node may have done already."""
        client = int(self.setting.clients[row])
        asked = self.tasks_of(self.setting.clients[[row]])
        steps = list(self.judge.algorithm.reply_shapes(self.setting))
        solution = None if self.solutions is None else self.solutions.get(client)
        tasks = tuple(Task.of(some, client) for some in asked)
        exchange, since = steps.index(asked[0].step), int(self.since[row])
        job = wire.Job(self.run, int(self.version[row]), exchange, tasks, solution, since=since)
        envelope = wire.Envelope(self.judge.federation, client, secrets.token_hex(16), (job,))
        return _Letter(envelope, wire.encode_envelope(envelope))

    def _push(self, letter: _Letter, node: int) -> None:
        client = letter.envelope.client
        if letter.sent:
            log.info(
                "client %d: no answer so far; sending its task of round %d again", client, letter.envelope.jobs[0].round
            )
        if node != letter.node:
            self._forget(letter)
        letter.messages.append(self.post.push(node, EXCHANGE, letter.content, LIFETIME))
        self.count(client, down=wire.size(letter.content))
        letter.node, letter.since = node, min(letter.since, self.now)
        letter.again = self.clock() + self.options.timeout * 2**letter.sent
        letter.sent += 1

    def _forget(self, letter: _Letter) -> None:
        self.post.forget(letter.messages)
        letter.messages = []

    def _arrived(self, row: int) -> bool:
        """Check whether a client's answer is here, good or bad; what was lost is sent again later."""
        letter = self._letters[row]
        for message in list(letter.messages):
            answer = self.post.pull(message, letter.node)
            if answer is None:
                continue
            letter.messages.remove(message)
            if isinstance(answer, Away):
                log.info("client %d: %s", letter.envelope.client, answer)
                letter.again = min(letter.again, self.clock() + LOOK * self.options.poll * 2 ** (letter.sent - 1))
                continue
            self._note(row, letter, answer)
            self._forget(letter)
            del self._letters[row]
            return True
        return False

    def _note(self, row: int, letter: _Letter, answer: RecordDict | str) -> None:
        """Judges an answer, and keeps what came of it."""
        (job,) = letter.envelope.jobs
        client = letter.envelope.client
        opened = answer if isinstance(answer, str) else self._opened(letter, answer)
        result, why = (None, opened) if isinstance(opened, str) else (opened.results[0], None)
        judged = [self.judge.reply(self.run, task, result, why) for task in job.tasks]
        replies = stacked([one for one in judged if isinstance(one, Reply)])
        failures = [one for one in judged if isinstance(one, Failure)]
        if result is not None:
            values, self._false[row] = self.judge.measured(self.run, job.round, {client: result.sent})
            self._report(values)
        for failure in [*failures, *self._false.get(row, [])]:
            log.warning("%s", failure)
        self.computed(Outcome(replies, failures))
        self.status[row], self.seconds[row] = HERE, self.now - letter.since

    def _opened(self, letter: _Letter, content: RecordDict) -> wire.Answer | str:
        self.count(letter.envelope.client, up=wire.size(content))
        return self.judge.opened(content, letter.envelope)

    def _report(self, values: ByClient) -> None:
        if not len(values):
            return
        found = values.rows.double().numpy()
        if self.reported.shape[1:] != found.shape[1:]:
            self.reported = np.full((len(self.status), *found.shape[1:]), np.nan)
        self.reported[places(self.setting.clients, values.clients)] = found

    def reports(self) -> ByClient:
        """The objectives that clients reported last; of who is at work, those of the solution that it began with."""
        known = np.flatnonzero(np.isfinite(self.reported).reshape(len(self.status), -1).any(axis=1))
        if not self.reported.size or not len(known):
            return ByClient.none()
        return ByClient(self.setting.clients[known], torch.as_tensor(self.reported[known]))

    # -- what came of it -------------------------------------------------------------------------------------------

    def due(self, rows: np.ndarray) -> list[Tasks]:
        """No tasks: nodes have computed them."""
        return []

    def taken(self, rows: np.ndarray) -> tuple[Replies, list[Failure]]:
        """Take replies. Updates far longer than what clients send are refused, as in a round that waits for all."""
        replies, failures = super().taken(rows)
        for row in rows.tolist():
            failures += self._false.pop(row, [])
        refused = self._too_far(replies) if len(replies) else {}
        for row, why in refused.items():
            failure = Failure(int(replies.clients[row]), int(replies.rounds[row]), f"refused: {why}", replies.step)
            log.warning("%s", failure)
            failures.append(failure)
        replies = replies.only(np.setdiff1d(np.arange(len(replies)), list(refused)))
        self.landed(replies)
        return replies, failures

    def landed(self, replies: Replies) -> None:
        """Note that these replies count."""
        self.since[places(self.setting.clients, replies.clients)] = replies.rounds

    def _too_far(self, replies: Replies) -> dict[int, str]:
        """Find too long updates: each is measured from its own task, and compared with the last one of every client."""
        begun = beginnings_of(self.tasks_of(replies.clients), replies.clients, replies.tensors)
        rows = torch.as_tensor(places(self.setting.clients, replies.clients))
        refused: dict[int, str] = {}
        for name, origins in begun.items():
            lengths = robust.lengths(replies[name], origins)
            empty = lengths.new_full((len(self.status), *lengths.shape[1:]), torch.nan)
            before = self._lengths.get(name, empty)
            known = before.index_copy(0, rows, lengths)
            found = far(name, lengths, known, origins)
            refused |= found
            bad = rows[sorted(found)]
            self._lengths[name] = known.index_copy(0, bad, before[bad])
        return refused

    def free(self, rows: np.ndarray) -> None:
        """Free clients; nobody waits for answers that are still to come."""
        for row in rows.tolist():
            self._false.pop(row, None)
            letter = self._letters.pop(row, None)
            if letter is not None:
                self._forget(letter)
        super().free(rows)
