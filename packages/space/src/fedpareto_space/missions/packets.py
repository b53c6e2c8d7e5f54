"""Messages packet by packet: each is a file that CFDP sends in space packets in USLP frames, which may get lost."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from fedpareto.clock.presence import Presence
from fedpareto.tensors import rng
from fedpareto_space.links.cfdp_network import CfdpNetwork
from fedpareto_space.links.transports import Contact
from fedpareto_space.missions.transfers import HEADER, Moved, Radio, without_loss

SOURCE, DESTINATION = 1, 2
"""Nodes of one transfer."""


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
        """See Transfers: if no frame is lost."""
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
        """When a message is there, and how many bytes its source has sent until then; what it holds plays no part."""
        drawn = rng.generator(rng.Address(self.seed, row, number, way), "frames").integers(2**63)
        there, back = self.radio.channels[way], self.radio.channels[1 - way]
        channels = {(SOURCE, DESTINATION): there, (DESTINATION, SOURCE): back}
        network = CfdpNetwork(channels, self._contacts(row, start), int(drawn), self.radio.managed)
        source = network.transport(SOURCE)
        source.send(DESTINATION, bytes(size + HEADER), start)
        return network.advance(inf), source.traffic.bytes_sent

    def _contacts(self, row: int, start: float) -> list[Contact]:
        """What is left of a satellite's contacts at a time."""
        low, high = self.links.bounds[row], self.links.bounds[row + 1]
        first = low + np.searchsorted(self.links.ends[low:high], start, side="right")
        windows = zip(self.links.starts[first:high].tolist(), self.links.ends[first:high].tolist(), strict=True)
        return [(max(begin, start), end, SOURCE, DESTINATION) for begin, end in windows]
