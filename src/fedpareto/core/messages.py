"""What travels between server and clients: tensors by name, addressed to one client of one round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

Message: TypeAlias = dict[str, Tensor]
"""Tensors by name. On the server's side without a client dimension, in a client step stacked: `[n, ...]`."""

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The names and shapes that a reply must have, no more and no less."""


@dataclass(frozen=True)
class Task:
    """Work for one client: run the algorithm's client step `step` on `message`.

    A lane separates several tasks of one client (candidates of an outer search): private state and random
    streams are kept for each lane.
    """

    client: int
    round: int
    message: Message = field(repr=False)
    step: str = "train"
    lane: int = 0
    begun: Message = field(default_factory=dict, repr=False)
    """Where the client begins, as far as the server knows, if it begins from what it kept instead of what it is sent.
    It is not sent: attacks and defences measure updates from there.
    """


@dataclass(frozen=True)
class Reply:
    """A client's valid reply to a task."""

    client: int
    round: int
    message: Message = field(repr=False)
    step: str = "train"
    lane: int = 0


@dataclass(frozen=True)
class Failure:
    """A task without a valid reply, and why."""

    client: int
    round: int
    reason: str
    step: str = "train"
    lane: int = 0

    def __str__(self) -> str:
        return f"round {self.round}, client {self.client}: {self.reason}"


@dataclass(frozen=True)
class Evaluations:
    """Objective values by client, `{client: [splits, m]}`, of the two models of a round."""

    sent: dict[int, Tensor] = field(default_factory=dict)
    """The model that the server sends (or would send), before any local step."""
    trained: dict[int, Tensor] = field(default_factory=dict)
    """The same model after the client's local steps."""


@dataclass(frozen=True)
class Outcome:
    """What an engine returns from one exchange. Replies are sorted by lane and client."""

    replies: list[Reply]
    failures: list[Failure] = field(default_factory=list)
    evaluations: Evaluations = field(default_factory=Evaluations)


@dataclass(frozen=True)
class Traffic:
    """Bytes of the tensors that go to a client and come from it."""

    down: int = 0
    up: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.down + other.down, self.up + other.up)


def size_of(message: Message) -> int:
    """Bytes of a message's tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in message.values())


def traffic(tasks: Sequence[Task], replies: Sequence[Reply]) -> dict[int, Traffic]:
    """What one exchange costs each client, on any engine: the tensors of tasks and replies, without headers.

    What is sent only for evaluation is not part of the algorithm and not counted.
    """
    found: dict[int, Traffic] = {}
    for task in tasks:
        found[task.client] = found.get(task.client, Traffic()) + Traffic(down=size_of(task.message))
    for reply in replies:
        found[reply.client] = found.get(reply.client, Traffic()) + Traffic(up=size_of(reply.message))
    return found


def beginnings(task: Task, reply: Message) -> Message:
    """Where the trained models in a reply, or differences of models, started from.

    That is what the task says it kept, or what it was sent, under the same name; one of several models, if it replies
    with its `choice` of them; or 0 for `updates`.
    """
    sent = {**task.message, **task.begun}
    found = {name: sent[name] for name, tensor in reply.items() if name in sent and tensor.shape == sent[name].shape}
    if "model" in reply and "choice" in reply and "models" in sent:
        found["model"] = sent["models"][int(reply["choice"])]
    if "updates" in reply:
        found["updates"] = torch.zeros_like(reply["updates"])
    return found


def stack(replies: Sequence[Reply], name: str) -> Tensor:
    """One tensor of all replies, `[len(replies), ...]`, in their order."""
    return torch.stack([reply.message[name] for reply in replies])
