"""Events that happen to a machine, effects that it wants, and the work that both carry.

Machines have no clock, no socket and no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from fedpareto_space.wire.vocabulary import FaultKind

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Tensors by name, of one client."""


# -- work ----------------------------------------------------------------------------------------------------------


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


# -- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The machine is switched on, for the first time or after a reset."""


@dataclass(frozen=True)
class Received:
    """Bytes came from a node, whole."""

    source: int
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class ContactBegan:
    """A node can be reached."""

    peer: int


@dataclass(frozen=True)
class Timer:
    """A time that the machine asked for has come."""

    name: str


@dataclass(frozen=True)
class Trained:
    """A client's local step is done."""

    answer: Answer


@dataclass(frozen=True)
class Asked:
    """The server half has learnt, and asks."""

    exchange: Exchange


@dataclass(frozen=True)
class LocalFault:
    """Something is wrong with this node: storage is full, or power is low."""

    fault: FaultKind


@dataclass(frozen=True)
class LocalFaultOver:
    """It is right again."""

    fault: FaultKind


Event: TypeAlias = Started | Received | ContactBegan | Timer | Trained | Asked | LocalFault | LocalFaultOver

# -- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Send:
    """Bytes for a node."""

    to: int
    data: bytes = field(repr=False)
    priority: int = 0
    replaces: str = ""


@dataclass(frozen=True)
class SetTimer:
    """Wants `Timer(name)` at that time, instead of any that it wanted before under this name; None: never."""

    name: str
    at: float | None


@dataclass(frozen=True)
class Train:
    """One local step from `start`; the answer is `Trained`."""

    ask: Ask
    start: Arrays = field(repr=False)
    further: int = 0
    """Local steps before it in this round."""


@dataclass(frozen=True)
class Aggregate:
    """The server half learns from these updates; the answer is `Asked`. At the very first there are none."""

    answers: Sequence[Answer] = field(default=(), repr=False)


@dataclass(frozen=True)
class Adopt:
    """Learning is over: this is what the client uses."""

    solution: Arrays = field(repr=False)


@dataclass(frozen=True)
class Keep:
    """The machine's and the learner's state is to be kept where it survives a reset."""


@dataclass(frozen=True)
class Restore:
    """The learner goes back to what was kept last, or to this."""

    saved: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Copy:
    """The server half's state goes to a stand-by, as a message that `ServerMachine.copied` makes of it."""

    to: tuple[int, ...]


@dataclass(frozen=True)
class Leave:
    """The machine is done, and why."""

    reason: str


@dataclass(frozen=True)
class Told:
    """For the log: a fault, what was done about it, and in a few words what happened."""

    fault: FaultKind
    action: str
    detail: str = ""


Effect: TypeAlias = Send | SetTimer | Train | Aggregate | Adopt | Keep | Restore | Copy | Leave | Told
