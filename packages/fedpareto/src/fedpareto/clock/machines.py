"""Machines of clients in numbers, and three kinds of them by name."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fedpareto.config.bounds import Endless, NotNegative, PositiveShare, ShareBelowOne


@dataclass(frozen=True)
class Machine:
    """The numbers of one client's machine."""

    speed: Endless
    """Operations a second that training reaches; a multiplication and an addition are two."""
    down: Endless
    """Bytes a second that it receives …"""
    up: Endless
    """… and that it sends."""
    latency: NotNegative
    """Seconds that a message takes on top, in each direction."""
    loss: ShareBelowOne
    """Share of packets that are lost and sent again."""
    memory: Endless
    """Bytes for training."""
    compute_watts: NotNegative
    """Power while it computes, beyond what it takes in any case …"""
    radio_watts: NotNegative
    """… and while it receives or sends."""
    width: PositiveShare = 1.0
    """Share of the widest network that it can train."""


COLUMNS = tuple(field.name for field in fields(Machine))
"""The numbers by name."""
VARIED = ("speed", "down", "up")
"""Numbers that differ between machines of one kind."""

IDEAL = Machine(math.inf, math.inf, math.inf, 0.0, 0.0, math.inf, 0.0, 0.0)
"""Machine that takes neither time nor energy."""

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
