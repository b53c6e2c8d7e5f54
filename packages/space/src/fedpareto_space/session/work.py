"""Work that is asked for and answered: between the machines of a session and whoever does the learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Tensors by name, of one client."""


@dataclass(frozen=True, eq=False)
class Ask:
    """One task of a client."""

    client: int
    round: int
    step: str
    """The algorithm's client step; empty: nothing is to be done, this is what the client uses."""
    lane: int
    tensors: Arrays = field(repr=False)
    begun: Arrays = field(default_factory=dict, repr=False)
    """Tensors from which the client begins instead, as far as the server knows; they are not sent."""

    @property
    def key(self) -> tuple[int, str, int]:
        return self.round, self.step, self.lane


@dataclass(frozen=True, eq=False)
class Answer:
    """Result of a task."""

    ask: Ask
    tensors: Arrays = field(repr=False)
    loss: float | None = None
    """The training loss afterwards, where it was measured."""
    failure: str = ""
    """Why there is nothing."""
    weight: float = 1.0
    """Factor of its weight beside its staleness."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """All that a server asks at once."""

    version: int
    """Version of the server's state: the number of exchanges that are over."""
    round: int
    asks: tuple[Ask, ...] = field(repr=False)
    over: bool = False
    """Learning is over, and this is the result."""
