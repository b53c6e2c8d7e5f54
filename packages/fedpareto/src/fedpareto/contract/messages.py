"""Messages between server and clients: stacks of tensors by name, a row for each client.

Nothing here is done client by client: a round of a thousand clients is a few stacks. A node on Flower gets its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.moo import updates
from fedpareto.moo.graphs import Graph

Message: TypeAlias = dict[str, Tensor]
"""Tensors by name. In a client step stacked: `[n, ...]`."""

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""The names and shapes that a reply must have, no more and no less."""

Ids: TypeAlias = np.ndarray
"""Clients' ids, whole numbers `[n]`, ascending."""

T = TypeVar("T")
P = TypeVar("P", bound="Parcels")
R = TypeVar("R", bound="Replies")


@dataclass(frozen=True, eq=False)
class ByClient(Mapping[int, Tensor]):
    """A tensor with a row for each of some clients; also a mapping from a client to its row."""

    clients: Ids
    rows: Tensor = field(repr=False)
    """`[n, ...]`."""

    def __getitem__(self, client: int) -> Tensor:
        return self.rows[_place(self.clients, client)]

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients.tolist())

    def __len__(self) -> int:
        return len(self.clients)

    @classmethod
    def none(cls) -> ByClient:
        return cls(np.empty(0, dtype=np.int64), torch.empty(0))


@dataclass(frozen=True, eq=False)
class Parcels(Mapping[int, Message]):
    """Messages to some clients; also a mapping from a client to its message."""

    clients: Ids
    shared: Message = field(default_factory=dict, repr=False)
    """Tensors that all of them get alike, without a client dimension: stored, sent and counted once."""
    own: Message = field(default_factory=dict, repr=False)
    """Tensors that each of them gets for itself, `[n, ...]`."""
    STACKS: ClassVar[tuple[str, ...]] = ("own",)
    """The fields with a row for each client …"""
    NUMBERS: ClassVar[tuple[str, ...]] = ()
    """… and those with a number for each, or none at all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "clients", np.asarray(self.clients, dtype=np.int64))

    def __getitem__(self, client: int) -> Message:
        row = _place(self.clients, client)
        return {**self.shared, **{name: tensor[row] for name, tensor in self.own.items()}}

    def __iter__(self) -> Iterator[int]:
        return iter(self.clients.tolist())

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def names(self) -> frozenset[str]:
        """Names of the tensors that a client gets."""
        return frozenset((*self.shared, *self.own))

    @cached_property
    def size(self) -> int:
        """Bytes that each client gets."""
        return size_of(self.shared) + (_size_of_row(self.own) if self.own else 0)

    def stacked(self) -> Message:
        """All messages as one, `[n, ...]`; what is shared is not copied."""
        found, count = {}, len(self.clients)
        for name, tensor in self.shared.items():
            found[name] = tensor.expand(count, *tensor.shape)
        return found | self.own

    def only(self: P, rows: np.ndarray) -> P:
        """Keep some of the clients, by their rows."""
        if is_all(rows, len(self.clients)):
            return self
        stacks = {name: taken(stack, rows) for name in self.STACKS if (stack := getattr(self, name))}
        numbers = {name: values[rows] for name in self.NUMBERS if len(values := getattr(self, name))}
        return but(self, clients=self.clients[rows], **stacks, **numbers)


@dataclass(frozen=True, eq=False)
class Tasks(Parcels):
    """Work for some clients: run the algorithm's client step `step` on what they get.

    A lane separates several tasks of one client (candidates of an outer search): private state and random streams are
    kept for each lane. All tasks of one exchange name the same step.
    """

    round: int = 0
    """The round that they are part of: it names the version of the server's state from which they start."""
    step: str = "train"
    lane: int = 0
    begun: Message = field(default_factory=dict, repr=False)
    """Start of each client, `[n, ...]`, as far as the server knows, if it begins from what it kept instead of what it
    is sent. It is not sent: attacks and defences measure updates from there.
    """
    groups: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    """Group number of each client, `[n]`, shared by those that learn together: a defence compares the updates of those
    with the same number; below 0 with nobody's. Empty: all learn together. It is not sent.
    """
    STACKS: ClassVar[tuple[str, ...]] = ("own", "begun")
    NUMBERS: ClassVar[tuple[str, ...]] = ("groups",)


@dataclass(frozen=True, eq=False)
class Replies:
    """Valid replies to the tasks of one step: row i is from client `clients[i]`. Sorted by lane and client.

    `replies[name]` is all rows of a tensor. `sum`, `mean`, `gram` and the like read less: an engine whose clients are
    elsewhere adds up there, and need not bring all rows here.

    On an engine that does not wait for everybody a reply may answer tasks of an earlier round: `rounds` says which.
    """

    clients: np.ndarray
    tensors: Message = field(default_factory=dict, repr=False)
    """`[n, ...]`."""
    step: str = "train"
    lanes: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    """Lane of each reply; empty: all in lane 0."""
    rounds: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    """The round of the tasks that they answer."""
    coded: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False, kw_only=True)
    """Bytes of each reply, if they travelled coded; empty: as many as its tensors have."""
    asked: np.ndarray | None = field(default=None, repr=False, kw_only=True)
    """Clients that were asked since the replies before, if these are not all who have a task."""

    def __post_init__(self) -> None:
        clients = np.asarray(self.clients, dtype=np.int64)
        object.__setattr__(self, "clients", clients)
        # A row of its own for each client, even if all sent back what they share: torch 2.13 takes a wrong median over
        # rows that are the same memory.
        for name, tensor in self.tensors.items():
            if not tensor.is_contiguous():
                object.__setattr__(self, "tensors", {**self.tensors, name: tensor.contiguous()})
        for name in ("lanes", "rounds"):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.zeros(len(clients), dtype=np.int64))

    @classmethod
    def of(cls, messages: Mapping[int, Message], step: str = "train", lane: int = 0, round: int = 0) -> Replies:
        """Stack single clients' messages."""
        clients = np.array(sorted(messages), dtype=np.int64)
        rows = [messages[client] for client in clients.tolist()]
        tensors = {name: torch.stack([row[name] for row in rows]) for name in (rows[0] if rows else ())}
        return cls(clients, tensors, step, np.full(len(rows), lane), np.full(len(rows), round))

    @classmethod
    def cat(cls, parts: Sequence[Replies]) -> Replies:
        """One after the other; of one step."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else cls(np.empty(0, dtype=np.int64))
        tensors = {name: torch.cat([part.tensors[name] for part in parts]) for name in parts[0].tensors}
        clients, lanes, rounds, coded = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("clients", "lanes", "rounds", "coded")
        )
        return cls(clients, tensors, parts[0].step, lanes, rounds, coded=coded)

    def __len__(self) -> int:
        return len(self.clients)

    def __getitem__(self, name: str) -> Tensor:
        """One tensor of all replies, `[n, ...]`."""
        return self.tensors[name]

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    @property
    def size(self) -> int:
        """Bytes of the tensors of each reply."""
        return size_of(self.tensors) // len(self.clients) if len(self.clients) else 0

    @property
    def sizes(self) -> np.ndarray:
        """Bytes of each reply as it travelled, `[n]`."""
        return self.coded if len(self.coded) else np.full(len(self), self.size)

    def by_client(self, name: str) -> ByClient:
        """All rows of a tensor as a mapping from a client to its row; of one lane."""
        return ByClient(self.clients, self[name])

    def only(self: R, rows: np.ndarray) -> R:
        """Some of them, by their rows."""
        if is_all(rows, len(self)):
            return self
        return but(
            self,
            clients=self.clients[rows],
            tensors=taken(self.tensors, rows),
            lanes=self.lanes[rows],
            rounds=self.rounds[rows],
            coded=self.coded[rows] if len(self.coded) else self.coded,
        )

    def singly(self: R) -> list[R]:
        """Each by itself, which takes far less time for all of them than one after the other."""
        rows, tensors = range(len(self)), {name: tensor.unsqueeze(1).unbind() for name, tensor in self.tensors.items()}
        numbers = {name: getattr(self, name) for name in ("clients", "lanes", "rounds", "coded")}
        each = [{name: array[row : row + 1] for name, array in numbers.items()} for row in rows]
        return [but(self, **each[row], tensors={name: some[row] for name, some in tensors.items()}) for row in rows]

    def in_lane(self: R, lane: int) -> R:
        """Keep the replies of one lane."""
        return self.only(np.flatnonzero(self.lanes == lane))

    def whole(self) -> Replies:
        """Give all rows of everything in this process, for what works on `tensors`."""
        return self

    # -- less than all rows ----------------------------------------------------------------------------------------

    def sum(self, name: str, weights: Tensor, origin: Tensor | None = None) -> Tensor:
        """Σ_i w_i x_i for weights `[n]`; for `[k, n]` one such sum for each row of weights.

        With an `origin` `[d]` and weights `[n]` of the updates x_i − origin, in double precision.
        """
        rows = self.tensors[name]
        return updates.weighted_sum(weights, rows) if origin is None else updates.sum_of_updates(weights, rows, origin)

    def weighted_mean(self, name: str, weights: Tensor) -> Tensor:
        """Σ_i w_i x_i / Σ_i w_i for weights `[n]`."""
        if len(self) == 1 and name in self.tensors:
            return self.tensors[name].squeeze(0).clone()  # Where every reply is a round, this is a good part of it.
        return self.sum(name, weights / weights.sum())

    def sum_each(self, name: str, weights: Tensor, origins: Tensor) -> Tensor:
        """Σ_i w_ik (x_ik − origin_k) `[K, d]` of tensors `[n, K, d]`, for weights `[n, K]`; in double precision."""
        return updates.sums_of_updates(weights, self.tensors[name], origins)

    def mean(self, name: str) -> Tensor:
        """Mean of all rows."""
        return self.tensors[name].mean(dim=0)

    def sum_of_products(self, left: str, right: str) -> Tensor:
        """Σ_i L_i R_i `[r, c]` of two tensors, `[n, r, k]` and `[n, k, c]`."""
        return updates.sum_of_products(self.tensors[left], self.tensors[right])

    def gram(self, name: str, origin: Tensor) -> Tensor:
        """The inner products `[n, n]` of the updates x_i − origin, in double precision."""
        return updates.gram_of_updates(self.tensors[name], origin)

    def squared_norms(self, name: str, origin: Tensor) -> Tensor:
        """‖x_i − origin‖² `[n]`, in double precision."""
        return updates.squared_lengths(self.tensors[name], origin)

    def moved(self: R, name: str, by: Tensor) -> R:
        """Add the same to each row of a tensor."""
        return replace(self, tensors={**self.tensors, name: self.tensors[name] + by})


LARGEST = 1e15
"""The largest number that another machine may send: the squares of a hundred million such numbers still add up in
float32.
"""
FARTHEST = 1000.0
"""Longest update from another machine, as a multiple of the round's median. Honest ones differ with the number of steps
and the data; this is no defence, only the end of what can be an accident.
"""


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
    """Objective values `[splits, m]` of each client, for the two models of a round."""

    sent: ByClient = field(default_factory=ByClient.none)
    """The model that the server sends (or would send), before any local step."""
    trained: ByClient = field(default_factory=ByClient.none)
    """The model after the client's local steps."""


@dataclass(frozen=True)
class Traffic:
    """Bytes exchanged with each of `clients`, `[n]`; one may be there twice."""

    clients: np.ndarray
    both_ways: np.ndarray
    """Bytes down and up, `[2, n]`."""

    @property
    def down(self) -> np.ndarray:
        """Bytes to each client, `[n]`."""
        return np.asarray(self.both_ways[0])

    @property
    def up(self) -> np.ndarray:
        """Bytes from each client, `[n]`."""
        return np.asarray(self.both_ways[1])


@dataclass(frozen=True)
class Outcome:
    """Result of one exchange: from an engine, and with what it cost to whoever hands it to the algorithm."""

    replies: Replies
    failures: list[Failure] = field(default_factory=list)
    evaluations: Evaluations = field(default_factory=Evaluations)
    tasks: Sequence[Tasks] = ()
    """Tasks that those who replied would get now: late replies are measured from there, too."""
    cost: Traffic | None = None
    staleness: np.ndarray | None = None
    """Rounds since each reply began, where that may differ."""


def size_of(message: Message) -> int:
    """Bytes of a message's tensors."""
    total = 0
    for tensor in message.values():
        total += tensor.nbytes
    return total


def _size_of_row(stack: Message) -> int:
    """Bytes that one client has of tensors `[n, ...]`."""
    return sum(tensor.shape[1:].numel() * tensor.element_size() for tensor in stack.values())


def beginnings(tasks: Tasks, reply: Message) -> Message:
    """Starts of the trained models in a stack of replies `[n, ...]`, or of differences of models: `[n, ...]`.

    `tasks` are those that they answer, row by row. That is what a task says its client kept, or what it was sent, under
    the same name; one of several models, if it replies with its `choice` of them; or 0 for `updates`.
    """
    return origins({**tasks.stacked(), **tasks.begun}, reply)


def origins(sent: Message, reply: Message) -> Message:
    """Starts of the replies to what was `sent`, `[n, ...]`: what both ends know."""
    found = {name: sent[name] for name, tensor in reply.items() if name in sent and tensor.shape == sent[name].shape}
    if "model" in reply and "choice" in reply and "models" in sent:
        choice = reply["choice"].long()
        found["model"] = sent["models"][torch.arange(len(choice), device=choice.device), choice]
    if "updates" in reply:
        found["updates"] = torch.zeros_like(reply["updates"])
    return found


def beginnings_of(tasks: Sequence[Tasks], clients: Ids, reply: Message) -> Message:
    """Starts of the replies `[k, ...]` of these clients, ascending, of whom each has one of these tasks."""
    if len(tasks) == 1 and not tasks[0].own and not tasks[0].begun:
        shared = tasks[0].shared.items()
        return origins({name: tensor.expand(len(clients), *tensor.shape) for name, tensor in shared}, reply)
    tasks = only_of(tasks, clients)
    if len(tasks) == 1:
        return beginnings(tasks[0], reply)
    rows = [places(clients, some.clients) for some in tasks]
    parts = [beginnings(some, taken(reply, own)) for some, own in zip(tasks, rows, strict=True)]
    back = np.argsort(np.concatenate(rows), kind="stable")
    return {name: take_rows(torch.cat([part[name] for part in parts]), back) for name in parts[0]}


# -- bytes ---------------------------------------------------------------------------------------------------------


def added_up(groups: Sequence[Sequence[Traffic]]) -> list[Traffic]:
    """The sum of each of these groups, with each client once, ascending.

    All at once: of many that are small, as of rounds with one reply each, one after the other takes several times as
    long.
    """
    parts = [one for some in groups for one in some]
    if not parts:
        return [traffic([], Replies(np.empty(0)))] * len(groups)
    numbers = [number for number, some in enumerate(groups) for _ in some]
    group = np.repeat(numbers, [len(one.clients) for one in parts])
    clients = np.concatenate([one.clients for one in parts])
    order = np.lexsort((clients, group))
    clients, group = clients[order], group[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (clients[1:] != clients[:-1]) | (group[1:] != group[:-1])
    (firsts,) = is_first.nonzero()
    both_ways = np.concatenate([one.both_ways for one in parts], axis=1).take(order, axis=1)
    clients, sums = clients[firsts], np.add.reduceat(both_ways, firsts, axis=1)
    ends = group[firsts].searchsorted(np.arange(len(groups) + 1)).tolist()
    return [Traffic(clients[i:j], sums[:, i:j]) for i, j in pairwise(ends)]


def traffic(
    tasks: Sequence[Tasks], replies: Replies, graph: Graph | None = None, everyone: np.ndarray | None = None
) -> Traffic:
    """Cost of one exchange to each client, on any engine: the tensors of tasks and replies, without headers.

    What is sent only for evaluation is not part of the algorithm and not counted. With a `graph` of `everyone` there is
    no server: a reply goes to each neighbour of its sender, and a task is what its client holds.
    """
    if graph is not None and everyone is not None:
        up, down = np.zeros((2, len(graph)), dtype=np.int64)
        np.add.at(up, places(everyone, replies.clients), replies.sizes)
        np.add.at(down, graph.rows, up[graph.others])
        return Traffic(everyone, np.stack([down, graph.degrees * up]))
    if len(tasks) == 1:
        asked, back = len(tasks[0].clients), len(replies.clients)
        both_ways = np.zeros((2, asked + back), dtype=np.int64)
        both_ways[0, :asked] = tasks[0].size
        both_ways[1, asked:] = replies.coded if len(replies.coded) else replies.size
        return Traffic(np.concatenate([tasks[0].clients, replies.clients]), both_ways)
    clients = [*(some.clients for some in tasks), replies.clients]
    down = np.repeat([*(some.size if len(some) else 0 for some in tasks), 0], [len(one) for one in clients])
    up = np.zeros_like(down)
    up[len(up) - len(replies) :] = replies.sizes
    return Traffic(np.concatenate(clients), np.stack([down, up]))


def bytes_down(tasks: Sequence[Tasks], clients: np.ndarray) -> np.ndarray | int:
    """Bytes that each of these clients, who are in any order and all have tasks, gets: `[n]`, or one number for all."""
    if len(tasks) == 1:
        return tasks[0].size
    found = np.zeros(len(clients), dtype=np.int64)
    for some in tasks:
        _, is_there = found_among(some.clients, clients)
        found += some.size * is_there
    return found


def tasks_for(tasks: Sequence[Tasks], clients: np.ndarray) -> np.ndarray | int:
    """Number of these tasks, in different lanes, that each of these clients has: `[n]`, or one number for all."""
    if len(tasks) == 1:
        return 1
    found: np.ndarray = np.sum([found_among(some.clients, clients)[1] for some in tasks], axis=0)
    return found


# -- rows ----------------------------------------------------------------------------------------------------------


def but(whole: T, **changes: Any) -> T:
    """A copy with some rows, or other numbers, in place of its own: what is made sure of at first is so already."""
    copy = object.__new__(type(whole))
    vars(copy).update(vars(whole), **changes)
    return copy


def only_of(tasks: Sequence[Tasks], clients: Ids) -> list[Tasks]:
    """The tasks of some clients, who are ascending."""
    found = []
    for some in tasks:
        rows, is_there = found_among(some.clients, clients)
        own = rows if np.count_nonzero(is_there) == len(rows) else rows[is_there]
        if len(own):
            found.append(some.only(own))
    return found


def taken(message: Message, rows: np.ndarray) -> Message:
    """Some rows of every tensor."""
    return {name: take_rows(tensor, rows) for name, tensor in message.items()}


def take_rows(tensor: Tensor, rows: np.ndarray) -> Tensor:
    """Some rows of a tensor `[n, ...]`; all of them, or a range, without a copy."""
    if is_all(rows, tensor.shape[0]):
        return tensor
    if len(rows) and _is_range(rows):
        return tensor[rows[0] : rows[0] + len(rows)]
    return tensor[torch.as_tensor(rows, device=tensor.device)]


def is_all(rows: np.ndarray, count: int) -> bool:
    """True if `rows` are 0 … count − 1."""
    if len(rows) != count or not count:
        return not count and not len(rows)
    return bool(rows[0] == 0 and rows[-1] == count - 1) and (count < 3 or bool((rows[1:] > rows[:-1]).all()))


def _is_range(rows: np.ndarray) -> bool:
    """True if each of these rows, at least one, follows the one before it."""
    return len(rows) == 1 or bool(rows[-1] - rows[0] == len(rows) - 1 and (rows[1:] > rows[:-1]).all())


def places(clients: Ids, wanted: np.ndarray) -> np.ndarray:
    """The rows in which `wanted` clients are among `clients`, ascending; KeyError if one is not there."""
    if len(wanted) == len(clients) and np.array_equal(wanted, clients):
        return np.arange(len(clients))
    rows, is_there = found_among(clients, wanted)
    if np.count_nonzero(is_there) < len(rows):
        raise KeyError(f"no row for {sorted(set(wanted.tolist()) - set(clients.tolist()))}")
    return rows


def found_among(clients: Ids, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of the wanted among `clients`, ascending, and a mask of those that are there at all."""
    rows = clients.searchsorted(wanted)
    if not len(clients):
        return rows, np.zeros(len(wanted), dtype=bool)
    return rows, clients.take(rows, mode="clip") == wanted


def _place(clients: Ids, client: Any) -> int:
    if not isinstance(client, int | np.integer):
        raise KeyError(client)
    row = int(np.searchsorted(clients, client))
    if row == len(clients) or clients[row] != client:
        raise KeyError(client)
    return row
