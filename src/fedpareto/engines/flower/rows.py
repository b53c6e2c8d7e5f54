"""One client's row of a stack: what crosses the wire to and from a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedpareto.core.messages import Message, Replies, Tasks


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
        """This client's."""
        return cls(client, tasks.round, tasks[client], tasks.step, tasks.lane)

    def stacked(self) -> Tasks:
        """As a stack of one."""
        return Tasks(np.array([self.client]), self.message, round=self.round, step=self.step, lane=self.lane)


@dataclass(frozen=True)
class Reply:
    """A client's row of some replies."""

    client: int
    round: int
    message: Message = field(repr=False)
    step: str = "train"
    lane: int = 0


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
        parts.append(Replies.of(messages, own[0].step, lane, own[0].round))
    return Replies.cat(parts)
