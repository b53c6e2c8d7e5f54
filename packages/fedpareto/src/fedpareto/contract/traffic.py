"""Bytes of the tensors that go to clients and come from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedpareto.contract.messages import Replies, Tasks, found_among, places
from fedpareto.moo.graphs import Graph


@dataclass(frozen=True)
class Traffic:
    """By client, `[n]`; one may be there twice."""

    clients: np.ndarray
    both_ways: np.ndarray
    """Bytes down and up, `[2, n]`."""

    @property
    def down(self) -> np.ndarray:
        """To each client, `[n]`."""
        return np.asarray(self.both_ways[0])

    @property
    def up(self) -> np.ndarray:
        """From each client, `[n]`."""
        return np.asarray(self.both_ways[1])


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
    """What one exchange costs each client, on any engine: the tensors of tasks and replies, without headers.

    What is sent only for evaluation is not part of the algorithm and not counted. With a `graph` of `everyone` there is
    no server: a reply goes to each neighbour of its sender, and a task is what its client holds.
    """
    if graph is not None and everyone is not None:
        up, down = np.zeros((2, len(graph)), dtype=np.int64)
        np.add.at(up, places(everyone, replies.clients), replies.sizes)
        np.add.at(down, graph.rows, up[graph.others])
        return Traffic(everyone, np.stack([down, graph.degrees * up]))
    clients = [*(some.clients for some in tasks), replies.clients]
    down = np.repeat([*(some.size if len(some) else 0 for some in tasks), 0], [len(one) for one in clients])
    up = np.zeros_like(down)
    up[len(up) - len(replies) :] = replies.sizes
    return Traffic(np.concatenate(clients), np.stack([down, up]))


def bytes_down(tasks: Sequence[Tasks], clients: np.ndarray) -> np.ndarray | int:
    """What each of these clients, who are in any order and all have tasks, gets: `[n]`, or one number for all."""
    if len(tasks) == 1:
        return tasks[0].size
    found = np.zeros(len(clients), dtype=np.int64)
    for some in tasks:
        _, is_there = found_among(some.clients, clients)
        found += some.size * is_there
    return found


def tasks_for(tasks: Sequence[Tasks], clients: np.ndarray) -> np.ndarray | int:
    """How many of these tasks, in different lanes, each of these clients has: `[n]`, or one number for all."""
    if len(tasks) == 1:
        return 1
    found: np.ndarray = np.sum([found_among(some.clients, clients)[1] for some in tasks], axis=0)
    return found
