"""One client's row of a stack, which crosses the wire to and from a node, and the local engine of that one client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedpareto.config.errors import QuorumLost
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Message, Outcome, Parcels, Replies, Tasks
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.tensors.rows import Rows

ONE = Choices(threads=1, chunk=1)
"""Fixed, so that a node gives the same numbers after a restart, and wherever it is."""


@dataclass(frozen=True)
class Task:
    """A client's row of some tasks."""

    client: int
    round: int
    message: Message = field(repr=False)
    step: str = "train"
    lane: int = 0

    @classmethod
    def of(cls, tasks: Tasks, client: int) -> Task:
        """Take this client's task."""
        return cls(client, tasks.round, tasks[client], tasks.step, tasks.lane)

    def stacked(self) -> Tasks:
        """Make a stack of one."""
        return Tasks(np.array([self.client]), self.message, round=self.round, step=self.step, lane=self.lane)


@dataclass(frozen=True)
class Reply:
    """A client's row of some replies."""

    client: int
    round: int
    message: Message = field(repr=False)
    step: str = "train"
    lane: int = 0
    coded: int | None = None
    """Bytes, if it travelled coded."""


def single(replies: Replies) -> Iterator[Reply]:
    """The replies one by one."""
    for row, client in enumerate(replies.clients.tolist()):
        message = {name: tensor[row] for name, tensor in replies.tensors.items()}
        yield Reply(client, int(replies.rounds[row]), message, replies.step, int(replies.lanes[row]))


def stacked(replies: Sequence[Reply]) -> Replies:
    """Replies to the tasks of one step, with the same names and shapes, as a stack."""
    lanes = sorted({reply.lane for reply in replies})
    parts = []
    for lane in lanes:
        own = [reply for reply in replies if reply.lane == lane]
        messages = {reply.client: reply.message for reply in own}
        part = Replies.of(messages, own[0].step, lane, own[0].round)
        sizes = {reply.client: reply.coded for reply in own if reply.coded is not None}
        coded = np.array([sizes[client] for client in part.clients.tolist()] if sizes else [], dtype=np.int64)
        parts.append(replace(part, coded=coded))
    return Replies.cat(parts)


def only(federation: Federation, client: int) -> Federation:
    """The federation as this one client sees it: its own rows and its own preference."""
    row = federation.ids.index(client)
    splits = {name: Rows.of([rows.of_client(row)]) for name, rows in federation.splits.items()}
    return Federation(federation.seed, (client,), splits, federation.preferences[row : row + 1])


def exchanged(engine: LocalEngine, run: int, tasks: Sequence[Tasks], evaluate: Parcels | None = None) -> Outcome:
    """An exchange of one seed. If the only client fails, that is an answer here, not a lost quorum."""
    count = len(engine.federations)
    work: list[Sequence[Tasks]] = [tasks if number == run else [] for number in range(count)]
    measure = [evaluate if number == run else None for number in range(count)]
    try:
        return engine.run_all(work, measure)[run]
    except QuorumLost as lost:
        return Outcome(Replies(np.empty(0)), list(lost.failures))
