"""Simulated time and energy: a task travels to a client, is worked on there, and the reply travels back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedpareto.clock.presence import Presence
from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Ids
from fedpareto.tensors import rng

DOWN, UP = 0, 1
"""Directions: to a client, and from it."""
AHEAD, KEPT = 8, 16
"""Tasks of each client for which is drawn at once, and how many such blocks stay in memory."""
OTHERS = 256
"""Clients whose next messages are found along with those of somebody who needs them now."""
PACKET = 1400
"""Bytes of a message in one packet: an Ethernet frame of 1500 without the headers of IP, TCP and TLS."""


class Outward(NamedTuple):
    """Way of k tasks to the clients and the work there, `[k]` each; times in simulated seconds, infinite for what never
    happens.
    """

    received: np.ndarray
    """Time when each client has the task …"""
    computed: np.ndarray
    """… and has done the work."""
    joules: np.ndarray
    """Joules that the client spends on that."""
    air: np.ndarray
    """Bytes that were sent, with those that were lost and sent again."""


class Homeward(NamedTuple):
    """Way back of k replies, `[k]` each."""

    arrived: np.ndarray
    """Time when each is at the server."""
    joules: np.ndarray
    air: np.ndarray


class Trip(NamedTuple):
    """Both of one client, in plain numbers."""

    computed: float
    arrived: float
    joules_out: float
    joules_back: float


class _Ahead:
    """Cost of sending messages of one size, for some tasks of each client."""

    def __init__(self, size: float, clients: int) -> None:
        self.size = size
        self.transfers = np.empty((clients, AHEAD, 3))
        """Transfers as in Fleet; for each client, those of its tasks from this number on …"""
        self.first = np.full(clients, 1 - AHEAD)
        self.last = np.zeros(clients, dtype=np.int64)
        """… and the number of the last one that somebody asked for."""


@dataclass(frozen=True, eq=False)
class Fleet:
    """The machines of n clients, `[n]` each; row i belongs to `clients[i]`. See Machine for the numbers."""

    clients: Ids
    seed: int
    speed: np.ndarray
    down: np.ndarray
    up: np.ndarray
    latency: np.ndarray
    loss: np.ndarray
    memory: np.ndarray
    compute_watts: np.ndarray
    radio_watts: np.ndarray
    width: np.ndarray
    tier: np.ndarray
    """The number of each client's tier in `tiers`."""
    tiers: tuple[str, ...]
    """Names of kinds of machines; a single one where none are distinguished."""
    presence: Presence

    def __len__(self) -> int:
        return len(self.clients)

    def must_hold(self, needed: np.ndarray | float) -> None:
        """Raises UserError if training needs more bytes, one number or `[n]`, than a client has memory."""
        needed = np.broadcast_to(needed, self.memory.shape)
        short = np.flatnonzero(self.memory < needed)
        if len(short):
            first, more = short[0], f" (and {len(short) - 1} more)" if len(short) > 1 else ""
            raise UserError(
                f"devices: client {self.clients[first]}{more} has {self.memory[first]:g} bytes of memory; "
                f"training takes at least {needed[first]:g}: give it more, or take a smaller network"
            )

    def outward(
        self,
        rows: np.ndarray,
        started: np.ndarray | float,
        operations: np.ndarray | float,
        bytes_down: np.ndarray | float,
        number: np.ndarray | int = 0,
    ) -> Outward:
        """Simulate the tasks that the server has for these rows at the time `started`; one number or `[k]` each.

        A client that is present over a link that loses nothing has its reply at the server at `started` + latency +
        bytes_down / down + operations / speed, and after that in `homeward` + latency + bytes_up / up. It receives,
        works and sends only while it is present, and goes on where it stopped.

        Lost packets are sent again until all have arrived. How many that takes is drawn from (seed, client, `number`):
        that of the task among all that the client has had. It does not depend on the other rows.
        """
        air, receiving, radio = self._transfer(rows, bytes_down, number, DOWN)
        computing = operations / self.speed[rows]
        received = self.presence.finish(rows, started, receiving)
        computed = self.presence.finish(rows, received, computing)
        work = self._paid(computed, computing * self.compute_watts[rows])
        return Outward(received, computed, self._paid(received, radio) + work, air)

    def homeward(
        self, rows: np.ndarray, computed: np.ndarray, bytes_up: np.ndarray | float, number: np.ndarray | int = 0
    ) -> Homeward:
        """Simulate the replies that are ready at `computed`. With no bytes: no reply can be there earlier."""
        air, sending, radio = self._transfer(rows, bytes_up, number, UP)
        arrived = self.presence.finish(rows, computed, sending)
        return Homeward(arrived, self._paid(arrived, radio), air)

    def trip(self, row: int, started: float, operations: float, down: float, up: float, number: int) -> Trip:
        """`outward` and `homeward` of one client, to the bit, where everybody is always present."""
        _, receiving, radio_down = self._alike(row, down, number, DOWN)
        _, sending, radio_up = self._alike(row, up, number, UP)
        computing = operations / self.speed.item(row)
        computed = started + receiving + computing
        work = computing * self.compute_watts.item(row)
        return Trip(computed, computed + sending, radio_down + work, radio_up)

    def _paid(self, ended: np.ndarray, joules: np.ndarray) -> np.ndarray:
        """Leave out the joules of what never ends: nobody knows where it stopped."""
        return joules if self.presence.is_always else np.where(np.isfinite(ended), joules, 0.0)

    def _transfer(self, rows: np.ndarray, sizes: np.ndarray | float, number: np.ndarray | int, way: int) -> np.ndarray:
        """Bytes that are sent for messages, seconds that these take and joules of their clients, `[3, k]`.

        Where messages are alike, those of each client's next tasks are found as well: one by one takes far longer.
        """
        if not isinstance(number, np.ndarray) or isinstance(sizes, np.ndarray):
            return self._drawn_transfer(rows, sizes, np.broadcast_to(number, rows.shape), way)
        known = self._of_size(sizes, way)
        place = number - known.first[rows]
        (missing,) = (place // AHEAD).nonzero()
        if len(missing):
            self._look_ahead(known, rows[missing], number[missing], way)
            place = number - known.first[rows]
        known.last[rows] = number
        found: np.ndarray = known.transfers[rows, place].T
        return found

    def _alike(self, row: int, size: float, number: int, way: int) -> list[float]:
        known = self._of_size(size, way)
        place = number - known.first.item(row)
        if not 0 <= place < AHEAD:
            self._look_ahead(known, np.array([row]), np.array([number]), way)
            place = 0
        known.last[row] = number
        found: list[float] = known.transfers[row, place].tolist()
        return found

    def _of_size(self, size: float, way: int) -> _Ahead:
        """Transfers of messages of a size; only the last size is kept."""
        if self._ahead[way].size != size:
            self._ahead[way] = _Ahead(float(size), len(self))
        return self._ahead[way]

    def _look_ahead(self, known: _Ahead, rows: np.ndarray, number: np.ndarray, way: int) -> None:
        """Finds the messages of these rows from a number on, and of others who have less than half of theirs left."""
        known.first[rows] = known.last[rows] = number
        (others,) = (known.last - known.first >= AHEAD // 2).nonzero()
        others = others[:OTHERS]
        known.first[others] = known.last[others] + 1
        rows = np.concatenate([rows, others])
        coming = np.add.outer(known.first[rows], np.arange(AHEAD)).ravel()
        drawn = self._drawn_transfer(np.repeat(rows, AHEAD), known.size, coming, way)
        known.transfers[rows] = drawn.T.reshape(-1, AHEAD, 3)

    @cached_property
    def _ahead(self) -> list[_Ahead]:
        return [_Ahead(math.nan, 0)] * 2

    def _drawn_transfer(self, rows: np.ndarray, sizes: np.ndarray | float, number: np.ndarray, way: int) -> np.ndarray:
        """Transfers of these messages only."""
        air = sizes * self._tries(rows, sizes, number, way)
        seconds = air / self._links[way, rows]
        return np.stack([air, self.latency[rows] + seconds, seconds * self.radio_watts[rows]])

    def coming(self, rows: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The first time from `time` on at which each can be reached, `[k]`; infinite: never again."""
        return self.presence.following(rows, time)

    def expected(
        self, operations: np.ndarray | float, bytes_down: np.ndarray | float, bytes_up: np.ndarray | float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and joules of one task for every client, `[n]`, on average over losses and while it is present."""
        tries = 1 / (1 - self.loss)
        transfer = tries * (bytes_down / self.down + bytes_up / self.up)
        computing = operations / self.speed
        seconds: np.ndarray = 2 * self.latency + transfer + computing
        joules: np.ndarray = self.radio_watts * transfer + self.compute_watts * computing
        return seconds, joules

    def _tries(self, rows: np.ndarray, sizes: np.ndarray | float, number: np.ndarray, way: int) -> np.ndarray:
        """Average number of times each packet is sent, `[k]`, for messages of these sizes: 1 where nothing is lost.

        N packets, each of which is lost with probability p, are lost a number of times that has the negative binomial
        distribution; it is drawn by its quantile function.
        """
        (lossy,) = self.loss[rows].nonzero()
        if len(lossy) == len(rows):
            return self._lossy_tries(rows, sizes, number, way)
        tries = np.ones(len(rows))
        if len(lossy):
            some = sizes[lossy] if isinstance(sizes, np.ndarray) else sizes
            tries[lossy] = self._lossy_tries(rows[lossy], some, number[lossy], way)
        return tries

    def _lossy_tries(self, rows: np.ndarray, sizes: np.ndarray | float, number: np.ndarray, way: int) -> np.ndarray:
        """Tries of clients whose links lose something."""
        from scipy.special import nbdtrik  # Most channels lose nothing, and need not wait for it.

        packets = np.maximum(np.ceil(sizes / PACKET), 1)
        lost = np.ceil(nbdtrik(self._levels(rows, number, way), packets, 1 - self.loss[rows]))
        tries: np.ndarray = 1 + np.maximum(lost, 0) / packets
        return tries

    def _levels(self, rows: np.ndarray, number: np.ndarray, way: int) -> np.ndarray:
        """Numbers between 0 and 1 for these tasks, `[k]`. They are drawn for all clients and some tasks at once:
        one by one it would take longer than the training of a small model.
        """
        block, place = number // AHEAD, number % AHEAD
        blocks = set(block.tolist())
        found: np.ndarray
        if len(blocks) == 1:
            found = self._drawn_of(blocks.pop())[way, rows, place]
            return found
        found = np.empty(len(rows))
        for one in blocks:
            here = block == one
            found[here] = self._drawn_of(one)[way, rows[here], place[here]]
        return found

    def _drawn_of(self, block: int) -> np.ndarray:
        """The numbers of one block of tasks, `[2, n, AHEAD]`; the last blocks stay in memory."""
        if block in self._drawn:
            return self._drawn[block]
        clients, numbers = np.repeat(self.clients, AHEAD), np.tile(block * AHEAD + np.arange(AHEAD), len(self))
        drawn = np.stack(rng.pairs(self.seed, clients, numbers, 0, "loss"))
        # At 0 the quantile function has no value.
        found: np.ndarray = np.maximum(drawn, 2.0**-54).reshape(2, len(self), AHEAD)
        self._drawn[block] = found
        for old in [one for one in self._drawn if one < max(self._drawn) - KEPT]:
            del self._drawn[old]
        return found

    @cached_property
    def _drawn(self) -> dict[int, np.ndarray]:
        return {}

    @cached_property
    def _links(self) -> np.ndarray:
        """Down and up, `[2, n]`."""
        return np.stack([self.down, self.up])
