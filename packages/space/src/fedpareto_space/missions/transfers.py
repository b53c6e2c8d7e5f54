"""Transfers over links that are open at times only: times of messages, and the bytes on the air for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from fedpareto.clock.presence import Presence
from fedpareto.clock.trips import DOWN, UP
from fedpareto.tensors import rng
from fedpareto_space.links.cfdp_network import CfdpNetwork, timed_for
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.fluid import LAST, cost, seconds
from fedpareto_space.links.frames import OVERHEAD
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.transports import Contact

HEADER = 124
"""Bytes of the protocol's own header in each message: the largest of any algorithm, with its manifest."""
SOURCE, DESTINATION = 1, 2


class Moved(NamedTuple):
    """Fate of k messages."""

    ended: np.ndarray
    """Time at which each is there; infinite: never."""
    radio: np.ndarray
    """Seconds for which the satellite's radio was on for it."""
    air: np.ndarray
    """Bytes that were sent for it, with headers, frames and what was sent again."""


@dataclass(frozen=True)
class Radio:
    """The channels of one link: to a satellite and from it."""

    up: float
    """Bits a second to a satellite …"""
    down: float
    """… and from it."""
    loss: float
    delay: float = 0.01
    """Seconds: 3,000 km of light."""

    @property
    def channels(self) -> dict[int, Channel]:
        return {
            DOWN: Channel(self.up, self.loss, delay=self.delay),
            UP: Channel(self.down, self.loss, delay=self.delay),
        }

    @cached_property
    def managed(self) -> Managed:
        slowest = min(self.up, self.down)
        return timed_for(Managed(), Channel(slowest, self.loss, delay=self.delay))


class Transfers(Protocol):
    """Messages between satellites and whoever they talk to."""

    @property
    def links(self) -> Presence:
        """Times at which each satellite talks to anybody."""

    def finish(
        self, rows: np.ndarray, start: np.ndarray | float, sizes: np.ndarray, number: np.ndarray, way: int
    ) -> Moved:
        """Send messages of so many bytes that are ready at `start`, `[k]` each; `number` is that of the task, for what
        is left to chance. Messages of a satellite follow each other; they are never in each other's way.

        Who sends nothing needs no luck: no message of that satellite, however short, would be there earlier.
        """

    def earliest(self, rows: np.ndarray, start: np.ndarray | float, sizes: np.ndarray, way: int) -> np.ndarray:
        """Before when no such message is there, whatever luck it has, `[k]`."""


@dataclass(frozen=True)
class Fluid:
    """As much as CFDP takes on average. A transfer goes on in the next contact where it stopped."""

    links: Presence
    radio: Radio

    def finish(
        self, rows: np.ndarray, start: np.ndarray | float, sizes: np.ndarray, number: np.ndarray, way: int
    ) -> Moved:
        sending, asking, air = fluid_costs(self.radio, sizes, way)
        last = self.radio.channels[way].seconds(LAST)
        ended = self._usable[way].finish(rows, start, sending + asking - last) + last + self.radio.delay
        return Moved(ended, sending, air)

    @cached_property
    def _usable(self) -> dict[int, Presence]:
        frame = self.radio.managed.largest_pdu + OVERHEAD
        return {
            way: replace(self.links, ends=np.maximum(self.links.ends - channel.seconds(frame), self.links.starts))
            for way, channel in self.radio.channels.items()
        }

    def earliest(self, rows: np.ndarray, start: np.ndarray | float, sizes: np.ndarray, way: int) -> np.ndarray:
        return self.finish(rows, start, sizes, np.zeros(len(rows)), way).ended


def without_loss(
    links: Presence, radio: Radio, rows: np.ndarray, start: np.ndarray | float, sizes: np.ndarray, way: int
) -> np.ndarray:
    """Return the times at which messages would be there if nothing of them were lost, `[k]`."""
    kinds, which = np.unique(np.rint(sizes).astype(np.int64), return_inverse=True)
    clean = replace(radio, loss=0.0)
    sending = np.array([_cost(clean, size, way)[0] for size in kinds.tolist()])[which]
    return links.finish(rows, start, sending + radio.delay)


def fluid_costs(radio: Radio, sizes: np.ndarray, way: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Seconds of sending and of asking again, and bytes on the air, `[k]` each."""
    kinds, which = np.unique(np.rint(sizes).astype(np.int64), return_inverse=True)
    found = np.array([_cost(radio, size, way) for size in kinds.tolist()]).reshape(-1, 3)
    sending, asking, air = found[which].T
    return sending, asking, air


@lru_cache(maxsize=4096)
def _cost(radio: Radio, size: int, way: int) -> tuple[float, float, float]:
    there, back = radio.channels[way], radio.channels[1 - way]
    found = cost(size + HEADER, there, radio.managed.segment)
    return *seconds(found, there, back, radio.managed), found.bytes


@dataclass(frozen=True)
class Packets:
    """Each message is a CFDP transaction of class 2 for itself, in the contacts of its satellite; between these it is
    suspended with its timers, and goes on where it stopped.

    Which frames are lost is drawn from (seed, satellite, task, direction), so that a transfer is a function of what is
    asked: nothing is kept from one to the next.
    """

    links: Presence
    radio: Radio
    seed: int

    def earliest(self, rows: np.ndarray, start: np.ndarray | float, sizes: np.ndarray, way: int) -> np.ndarray:
        return without_loss(self.links, self.radio, rows, start, sizes, way)

    def finish(
        self, rows: np.ndarray, start: np.ndarray | float, sizes: np.ndarray, number: np.ndarray, way: int
    ) -> Moved:
        begun = np.broadcast_to(np.asarray(start, dtype=np.float64), rows.shape)
        ended, air = self.earliest(rows, begun, sizes, way), np.zeros(len(rows))
        for place in np.flatnonzero((np.asarray(sizes) > 0) & np.isfinite(begun)).tolist():
            about = int(rows[place]), float(begun[place]), round(float(sizes[place])), int(number[place])
            ended[place], air[place] = self._transaction(*about, way)
        return Moved(ended, 8 * air / self.radio.channels[way].rate, air)

    def _transaction(self, row: int, start: float, size: int, number: int, way: int) -> tuple[float, int]:
        drawn = rng.generator(rng.Address(self.seed, row, number, way), "frames").integers(2**63)
        there, back = self.radio.channels[way], self.radio.channels[1 - way]
        channels = {(SOURCE, DESTINATION): there, (DESTINATION, SOURCE): back}
        network = CfdpNetwork(channels, self._contacts(row, start), int(drawn), self.radio.managed)
        source = network.transport(SOURCE)
        source.send(DESTINATION, bytes(size + HEADER), start)
        return network.advance(inf), source.traffic.bytes_sent

    def _contacts(self, row: int, start: float) -> list[Contact]:
        low, high = self.links.bounds[row], self.links.bounds[row + 1]
        first = low + np.searchsorted(self.links.ends[low:high], start, side="right")
        windows = zip(self.links.starts[first:high].tolist(), self.links.ends[first:high].tolist(), strict=True)
        return [(max(begin, start), end, SOURCE, DESTINATION) for begin, end in windows]
