"""A node: a machine, what it learns with, and what carries its messages. The clock is somebody else's."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from itertools import count
from math import inf

import numpy as np

from fedpareto_space.links.transports import Transport
from fedpareto_space.session import events as happened
from fedpareto_space.session.client import ClientMachine
from fedpareto_space.session.events import Arrays, Ask, Effect, Event, Exchange, Send
from fedpareto_space.session.learning import ClientHalf, ServerHalf
from fedpareto_space.session.mishaps import Mishap, altered, flipped, poisoned
from fedpareto_space.session.peer import PeerMachine
from fedpareto_space.session.server import ServerMachine
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.terms import Terms
from fedpareto_space.wire.vocabulary import FaultKind

MACHINE, LEARNT = "machine", "learnt"
"""Keys of what is kept for a reset."""


@dataclass(frozen=True)
class Note:
    """A line of a node's log."""

    at: float
    node: int
    what: str
    """A fault's name, or an event's."""
    action: str = ""
    detail: str = ""


@dataclass
class Host(ABC):
    """Timers, messages and a log, which clients and servers have in common."""

    transport: Transport
    store: MutableMapping[str, bytes] = field(default_factory=dict)
    mishaps: list[Mishap] = field(default_factory=list)
    log: list[Note] = field(default_factory=list)
    tell: Callable[[Note], None] = lambda note: None
    on_send: Callable[[int, Send, float], None] = lambda node, effect, now: None
    """Told of everything that is sent."""
    reason: str = ""
    """Why it has left, if it has."""
    dead: bool = False
    machine: ClientMachine | ServerMachine | PeerMachine = field(init=False)

    def __post_init__(self) -> None:
        self._timers: dict[str, float] = {}
        self._due: list[tuple[float, int, Event]] = []
        self._order = count()

    @property
    def node(self) -> int:
        return self.transport.node

    @property
    def active(self) -> bool:
        return not self.reason and not self.dead

    @abstractmethod
    def learn(self, effect: Effect, now: float) -> None:
        """Carry out effects of only clients or only servers."""

    # -- time ------------------------------------------------------------------------------------------------------

    def next(self) -> float:
        if not self.active:
            return inf
        return min([*self._timers.values(), *(due[0] for due in self._due[:1])], default=inf)

    def later(self, event: Event, at: float) -> None:
        heapq.heappush(self._due, (at, next(self._order), event))

    def tick(self, now: float) -> bool:
        """Everything that has happened up to now; whether there was anything."""
        found = [happened.Received(one.source, one.data) for one in self.transport.poll(now)]
        if not self.active:
            return bool(found)
        for event in found:
            self.happen(event, now)
        busy = bool(found)
        while self.active and self.next() <= now:
            busy = True
            if self._due and self._due[0][0] <= now:
                self.happen(heapq.heappop(self._due)[2], now)
                continue
            name = min(self._timers, key=lambda one: self._timers[one])
            del self._timers[name]
            self.happen(happened.Timer(name), now)
        return busy

    def happen(self, event: Event, now: float) -> None:
        """Hands an event to the machine, and does what it wants."""
        if not self.active:
            return
        for effect in self.machine.handle(event, now):
            self._do(effect, now)
            if not self.active:
                return

    def _do(self, effect: Effect, now: float) -> None:
        match effect:
            case happened.Send():
                self._send(effect, now)
            case happened.SetTimer(name, at):
                self._timers.pop(name, None)
                if at is not None:
                    self._timers[name] = at
            case happened.Told(fault, action, detail):
                self.note(now, spelled(fault), action, detail)
            case happened.Leave(reason):
                self.note(now, "left", "", reason)
                self.reason = reason
            case _:
                self.learn(effect, now)

    def _send(self, effect: Send, now: float) -> None:
        self.on_send(self.node, effect, now)
        found = list(altered(effect.data, self.mishaps))
        key = effect.replaces if len(found) == 1 else ""  # A second copy does not replace the first.
        for data in found:
            self.transport.send(effect.to, data, now, priority=effect.priority, replaces=key)

    def note(self, now: float, what: str, action: str = "", detail: str = "") -> None:
        entry = Note(now, self.node, what, action, detail)
        self.log.append(entry)
        self.tell(entry)

    def strike(self, *kinds: FaultKind, round_: int) -> Mishap | None:
        """The mishap of one of these kinds that is due in this round; it happens once."""
        found = next((one for one in self.mishaps if one.fault in kinds and one.round == round_), None)
        if found is not None:
            self.mishaps.remove(found)
        return found


@dataclass
class ClientHost(Host):
    """A client's node."""

    make_machine: Callable[[], ClientMachine] = field(kw_only=True)
    """A new machine that knows nothing: after a reset there is another one."""
    make_pupil: Callable[[Terms], ClientHalf] = field(kw_only=True)
    """Makes what learns as agreed."""
    machine: ClientMachine = field(init=False)
    seconds: Callable[[Ask], float] = lambda ask: 0.0
    """Seconds of a local step, where that is simulated."""
    model: np.ndarray | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.machine = self.make_machine()
        self._pupil: ClientHalf | None = None

    @property
    def pupil(self) -> ClientHalf:
        """Made once there is an agreement."""
        if self._pupil is None:
            self._pupil = self.make_pupil(self.machine.agreed)
        return self._pupil

    def restart(self, now: float) -> None:
        """Switches the node on, with what was kept: for the first time, or after a reset."""
        self._timers, self._due = {}, []
        self.machine, self._pupil = self.make_machine(), None
        if MACHINE in self.store:
            self.machine.restore(self.store[MACHINE], now)
            self.pupil.restore(self.store.get(LEARNT, b""))
        self.happen(happened.Started(), now)

    def learn(self, effect: Effect, now: float) -> None:
        match effect:
            case happened.Train(ask, start, further):
                self._train(ask, start, further, now)
            case happened.Adopt(solution):
                self.model = self.pupil.model(solution)
                self.note(now, "adopted")
            case happened.Keep():
                self.store[MACHINE], self.store[LEARNT] = self.machine.saved(), self.pupil.saved()
            case happened.Restore():
                self.pupil.restore(self.store.get(LEARNT, b""))

    def _train(self, ask: Ask, start: Arrays, further: int, now: float) -> None:
        if self.strike(FaultKind.CLIENT_RESET, round_=ask.round):
            self.note(now, "reset")
            self.restart(now)
            return
        if self.strike(FaultKind.QUORUM_LOST, FaultKind.CLIENT_SILENT, round_=ask.round):
            self.dead = True
            self.note(now, "dead")
            return
        self.steps += 1
        self.note(now, "trains", f"round {ask.round}", f"step {further + 1}")
        answer = self.pupil.train(ask, start, further)
        if self.strike(FaultKind.NON_FINITE, round_=ask.round):
            answer = poisoned(answer)
        slow = self.strike(FaultKind.OVER_STALE, round_=ask.round)
        self.later(happened.Trained(answer), now + (slow.seconds if slow else self.seconds(ask)))
        if self.strike(FaultKind.CORRUPT_STATE, round_=ask.round):
            flipped(self.machine.lanes[ask.lane].ask.tensors)
        if self.strike(FaultKind.UNKNOWN_BASE, round_=ask.round):
            self.machine.held.clear()
        ill = self.strike(FaultKind.LOW_POWER, FaultKind.STORAGE_FULL, round_=ask.round)
        if ill is not None:
            self.later(happened.LocalFault(ill.fault), now)
            self.later(happened.LocalFaultOver(ill.fault), now + ill.seconds)


@dataclass
class ServerHost(Host):
    """A server's node, or a stand-by's."""

    machine: ServerMachine = field(kw_only=True)
    teacher: ServerHalf = field(kw_only=True)
    on_exchange: Callable[[Exchange, float], None] = lambda exchange, now: None

    def learn(self, effect: Effect, now: float) -> None:
        match effect:
            case happened.Aggregate(answers):
                asked = self.teacher.tell(answers) if answers else self.teacher.ask()
                self._asked(asked, now)
            case happened.Restore(saved):
                kept = self.store.get(LEARNT, b"") if saved is None else saved
                self._asked(self.teacher.restore(kept) if kept else self.teacher.ask(), now)
            case happened.Keep():
                self.store[LEARNT] = self.teacher.saved()
            case happened.Copy(to):
                message = self.machine.handover(self.teacher.saved())
                for node in to:
                    self._send(Send(node, message, replaces="handover"), now)

    def _asked(self, exchange: Exchange, now: float) -> None:
        if self.strike(FaultKind.SERVER_SILENT, FaultKind.SERVER_CHANGE, round_=exchange.round):
            self.dead = True
            self.note(now, "dead")
            return
        self.note(now, "asks", f"round {exchange.round}", "the result" if exchange.over else exchange.asks[0].step)
        self.on_exchange(exchange, now)
        self.later(happened.Asked(exchange), now)


@dataclass
class PeerHost(Host):
    """A node of a session without a server: it learns as both."""

    machine: PeerMachine = field(kw_only=True)
    pupil: ClientHalf = field(kw_only=True)
    teacher: ServerHalf = field(kw_only=True)
    seconds: Callable[[Ask], float] = lambda ask: 0.0
    on_exchange: Callable[[Exchange, float], None] = lambda exchange, now: None
    model: np.ndarray | None = None

    def learn(self, effect: Effect, now: float) -> None:
        match effect:
            case happened.Train(ask, start, further):
                self.note(now, "trains", f"round {ask.round}", f"step {further + 1}")
                self.later(happened.Trained(self.pupil.train(ask, start, further)), now + self.seconds(ask))
            case happened.Aggregate(answers):
                exchange = self.teacher.tell(answers) if answers else self.teacher.ask()
                self.note(now, "asks", f"round {exchange.round}", "the result" if exchange.over else "")
                self.on_exchange(exchange, now)
                self.later(happened.Asked(exchange), now)
            case happened.Adopt(solution):
                self.model = self.pupil.model(solution)
                self.note(now, "adopted")
