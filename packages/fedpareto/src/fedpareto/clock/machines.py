"""What a machine is, in numbers, and three kinds of them by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fedpareto.config.errors import UserError


@dataclass(frozen=True)
class Machine:
    """The numbers of one client's machine."""

    speed: float
    """Operations a second that training reaches; a multiplication and an addition are two."""
    down: float
    """Bytes a second that it receives …"""
    up: float
    """… and that it sends."""
    latency: float
    """Seconds that a message takes on top, in each direction."""
    loss: float
    """Share of packets that are lost and sent again."""
    memory: float
    """Bytes for training."""
    compute_watts: float
    """Power while it computes, beyond what it takes in any case …"""
    radio_watts: float
    """… and while it receives or sends."""
    width: float = 1.0
    """Share of the widest network that it can train."""


COLUMNS = tuple(field.name for field in fields(Machine))
"""The numbers by name."""
VARIED = ("speed", "down", "up")
"""Those that differ between machines of one kind."""

IDEAL = Machine(math.inf, math.inf, math.inf, 0.0, 0.0, math.inf, 0.0, 0.0)
"""What takes neither time nor energy."""

TIERS = {
    "phones": Machine(5e9, 2.5e6, 1e6, 0.05, 0.01, 2e9, 3.0, 1.0),
    "laptops": Machine(5e10, 1.25e7, 2.5e6, 0.02, 0.001, 8e9, 25.0, 1.0),
    "servers": Machine(2e12, 1.25e8, 1.25e8, 0.005, 0.0, 6.4e10, 300.0, 5.0),
}
"""Orders of magnitude, chosen by us and not measured: replace them by your own where they matter.

Training on small minibatches reaches a few per cent of what a processor can do at best: some 10¹¹ single-precision
operations a second on a phone, 10¹² on a laptop, 10¹³ and more on a server with a GPU. Links are a mobile network of
20 Mbit/s down and 8 up, a home line of 100 and 20, and a gigabit network. Memory is what an app, a user and a service
can spare. Power is that of a phone's and a laptop's processor and of a GPU under load, and of their radios or network
cards.
"""


@dataclass(frozen=True)
class Range:
    """From 0 to the most that a number may be."""

    unit: str = ""
    zero: bool = True
    """Whether it may be 0."""
    endless: bool = False
    """Whether it may be infinite."""

    def holds(self, value: float) -> bool:
        """Whether a number may be so; not-a-number never."""
        return (value >= 0 if self.zero else value > 0) and (value < math.inf or (self.endless and value == math.inf))

    @property
    def words(self) -> str:
        """What it is."""
        return f"a number {'from 0 on' if self.zero else 'above 0'}{self.unit and f', in {self.unit}'}"


@dataclass(frozen=True)
class Share(Range):
    """A part of 1."""

    one: bool = True
    """Whether it may be 1."""

    def holds(self, value: float) -> bool:
        """See Range."""
        return super().holds(value) and (value <= 1 if self.one else value < 1)

    @property
    def words(self) -> str:
        """What it is."""
        return f"a share {'from' if self.zero else 'above'} 0 {'to 1' if self.one else 'to below 1'}"


RANGES = {
    "speed": Range("operations a second", zero=False, endless=True),
    "factor": Range(zero=False),
    "down": Range("bytes a second", zero=False, endless=True),
    "up": Range("bytes a second", zero=False, endless=True),
    "latency": Range("seconds"),
    "loss": Share(one=False),
    "memory": Range("bytes", zero=False, endless=True),
    "compute_watts": Range("watts"),
    "radio_watts": Range("watts"),
    "width": Share(zero=False),
    "spread": Range(),
    "shares": Share(),
    "period": Range("seconds", zero=False),
    "present": Share(zero=False),
    "phase": Range("seconds"),
}
"""What each number may be."""


def check(name: str, value: float, place: str) -> None:
    """Raises UserError, which begins with `place`, if a number cannot be."""
    if not RANGES[name].holds(value):
        raise UserError(f"{place}: {name} is {value:g}; it is {RANGES[name].words}")
