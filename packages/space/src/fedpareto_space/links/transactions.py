"""What the two ends of a CFDP transaction have in common: timers, indications, suspension and the end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Protocol

from fedpareto_space.links.managed import Handler, Managed
from fedpareto_space.links.pdus import Condition, Header, Pdu
from fedpareto_space.links.stores import Sink

Id = tuple[int, int]
"""A transaction: who began it, and its number there."""


@dataclass(frozen=True)
class Delivered:
    """An indication: the destination has the whole file, and its checksum is right."""

    transaction: Id
    peer: int
    name: str
    """The destination's name of the file."""
    sink: Sink
    """Where the file is."""


@dataclass(frozen=True)
class Ended:
    """An indication: a transaction is over at this end."""

    transaction: Id
    peer: int
    sending: bool
    condition: Condition
    complete: bool
    """Whether the destination has the whole file."""


@dataclass(frozen=True)
class Faulted:
    """An indication: a fault, and what it leads to."""

    transaction: Id
    peer: int
    condition: Condition
    handler: Handler


Indication = Delivered | Ended | Faulted


@dataclass(frozen=True)
class Outgoing:
    """A PDU that may be sent now."""

    header: Header
    pdu: Pdu
    again: bool = False
    """Whether it was sent before."""


class Peers(Protocol):
    """What a transaction can learn of the other end."""

    def heard(self, peer: int) -> float:
        """When anything came from it last."""


class Timer:
    """A deadline that can be frozen, and how often it has passed in vain."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.deadline, self.count = seconds, inf, 0
        self._left: float | None = None

    def start(self, now: float, seconds: float | None = None) -> None:
        """Begin to wait; while it is frozen, for when it thaws."""
        wait = self.seconds if seconds is None else seconds
        if self._left is None:
            self.deadline = now + wait
        else:
            self._left = wait

    def stop(self) -> None:
        """Wait no longer, and begin to count anew."""
        self.deadline, self.count = inf, 0
        if self._left is not None:
            self._left = inf

    @property
    def running(self) -> bool:
        """Whether it waits."""
        return (self.deadline if self._left is None else self._left) < inf

    def passed(self, now: float) -> bool:
        """Whether the deadline has come; if so, it waits no longer and counts one more."""
        if now < self.deadline:
            return False
        self.deadline = inf
        self.count += 1
        return True

    def freeze(self, now: float) -> None:
        """Time that passes now does not count."""
        if self._left is None:
            self._left, self.deadline = self.deadline - now, inf

    def thaw(self, now: float) -> None:
        """Time counts again."""
        if self._left is not None:
            self.deadline, self._left = now + max(self._left, 0.0), None


class Transaction(ABC):
    """One end of a transaction."""

    sending: bool

    def __init__(self, header: Header, peer: int, managed: Managed, peers: Peers) -> None:
        self.header, self.peer, self.managed, self.peers = header, peer, managed, peers
        self.acks = Timer(managed.ack_timeout)
        self.inactivity = Timer(managed.inactivity)
        self.indications: list[Indication] = []
        self.condition = Condition.NO_ERROR
        self.over = False
        self.link_down = self.suspended = False

    @property
    def timers(self) -> tuple[Timer, ...]:
        """All timers of this end."""
        return self.acks, self.inactivity

    @property
    def frozen(self) -> bool:
        """Whether time does not count and nothing may be sent."""
        return self.link_down or self.suspended

    def next_time(self) -> float:
        """When a timer runs out."""
        return inf if self.frozen else min(timer.deadline for timer in self.timers)

    def freeze(self, now: float, *, link: bool) -> None:
        """The contact has ended, or the user has suspended the transaction."""
        self.link_down, self.suspended = self.link_down or link, self.suspended or not link
        for timer in self.timers:
            timer.freeze(now)

    def thaw(self, now: float, *, link: bool) -> None:
        """The contact has begun, or the user has resumed the transaction."""
        if link:
            self.link_down = False
        else:
            self.suspended = False
        if not self.frozen:
            for timer in self.timers:
                timer.thaw(now)
            self.resumed(now)

    def fault(self, condition: Condition, now: float) -> bool:
        """Something is wrong: act as the handler says; whether the transaction goes on as if nothing had been."""
        handler = self.managed.handler(condition)
        self.indications.append(Faulted(self.header.transaction, self.peer, condition, handler))
        if handler is Handler.IGNORE:
            return True
        if handler is Handler.SUSPEND:
            self.freeze(now, link=False)
        elif handler is Handler.ABANDON:
            self.end(condition, complete=False)
        else:
            self.cancel(condition, now)
        return False

    def tick(self, now: float) -> None:
        """Act on timers that have run out."""
        if not self.frozen and not self.over:
            self.timed_out(now)

    def pull(self, now: float) -> Outgoing | None:
        """The next PDU that may be sent, if there is one."""
        return None if self.frozen or self.over else self.next_pdu(now)

    @abstractmethod
    def end(self, condition: Condition, complete: bool) -> None:
        """This end is closed."""

    @abstractmethod
    def cancel(self, condition: Condition, now: float) -> None:
        """Tell the other end that nothing will come of it."""

    @abstractmethod
    def resumed(self, now: float) -> None:
        """What to do first when the other end can be reached again."""

    @abstractmethod
    def timed_out(self, now: float) -> None:
        """What to do about timers that have run out."""

    @abstractmethod
    def next_pdu(self, now: float) -> Outgoing | None:
        """What to send next."""

    @abstractmethod
    def receive(self, pdu: Pdu, now: float) -> None:
        """Take a PDU of the other end."""
