"""Bytes of the tensors that go to clients and come from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedpareto.core.messages import Replies, Tasks, found_among


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

    @classmethod
    def cat(cls, parts: Sequence[Traffic]) -> Traffic:
        """One after the other."""
        if len(parts) == 1:
            return parts[0]
        clients, both_ways = [part.clients for part in parts], [part.both_ways for part in parts]
        return cls(np.concatenate(clients), np.concatenate(both_ways, axis=1))

    def by_client(self) -> Traffic:
        """With each client once, ascending."""
        order = self.clients.argsort(kind="stable")
        clients, both_ways = self.clients[order], self.both_ways.take(order, axis=1)
        (new,) = (clients[1:] != clients[:-1]).nonzero()
        if len(new) + 1 >= len(clients):
            return Traffic(clients, both_ways)  # Nobody is there twice.
        firsts = np.concatenate([[0], new + 1])
        return Traffic(clients[firsts], np.add.reduceat(both_ways, firsts, axis=1))


def traffic(tasks: Sequence[Tasks], replies: Replies) -> Traffic:
    """What one exchange costs each client, on any engine: the tensors of tasks and replies, without headers.

    What is sent only for evaluation is not part of the algorithm and not counted.
    """
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
