"""What a server does about each fault, as row 4 of table 6.3 says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedpareto_space.session.events import Leave, Restore, Send, SetTimer, Told
from fedpareto_space.session.server_state import DEADLINE, OFFER, ROUND, Member, ServerState, Status
from fedpareto_space.session.voice import bases, digest
from fedpareto_space.session.work import Answer, Ask
from fedpareto_space.wire import messages
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.rows import Action, Duplicates, OverStale, Rejoin, ServerFailures
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason

ROW = (3, 4)


@dataclass
class ServerFaults(ServerState, ABC):
    """See the module."""

    @property
    def failures(self) -> ServerFailures:
        """What was agreed."""
        return self.terms.server_failures

    # -- clients that do not answer --------------------------------------------------------------------------------

    def _missing(self) -> list[Member]:
        """Those from whom an update of this exchange is still to come."""
        if self.exchange is None:
            return []
        wanted = {ask.client for ask in self.exchange.asks if (ask.client, ask.lane) not in self.answers}
        return [self.of_client(client) for client in sorted(wanted) if self.of_client(client).status.there]

    def _waited(self) -> None:
        """Some clients have not answered in time."""
        if self.paused or self._learning or self.exchange is None:
            return
        if self.over:
            self._leave("done; some clients did not say that they have the result", Reason.DONE)
            return
        action = self.failures.on_timeout
        for member in self._missing():
            self._silent(member, action)
        if action is Action.PAUSE:
            self.paused = True
        elif action is Action.LEAVE:
            self._leave("a client is silent", Reason.SILENT)
        elif action is Action.REVERT:
            self._out.append(Restore())
        else:
            self._set_round()
            self._look()

    def _silent(self, member: Member, action: Action) -> None:
        self._out.append(Told(FaultKind.CLIENT_SILENT, spelled(action), f"node {member.node}"))
        terms = member.terms or self.terms
        if action is Action.RETRY and member.tries < terms.client_failures.retries:
            member.tries += 1
            self._again(member, full=member.tries > 1)  # Perhaps it lacks what a difference builds on.
        elif action in (Action.DROP, Action.RETRY):
            member.status = Status.SILENT

    @abstractmethod
    def _again(self, member: Member, full: bool = False) -> None:
        """Asks a client once more."""

    @abstractmethod
    def _look(self) -> None:
        """Closes the round if it can be closed."""

    def _set_round(self) -> None:
        self._out.append(SetTimer(ROUND, self._now + self.failures.timeout))

    def _quorum(self) -> bool:
        """Whether enough clients are left; if not, what was agreed is done."""
        if len(self.there) >= self.failures.quorum:
            return True
        action = self.failures.on_quorum_lost
        why = f"{len(self.there)} of {len(self.members)} clients are left, {self.failures.quorum} are needed"
        self._out.append(Told(FaultKind.QUORUM_LOST, spelled(action), why))
        if action in (Action.CONTINUE, Action.IGNORE):
            return bool(self.there)
        if action is Action.RETRY and self._tries < self.terms.client_failures.retries:
            self._tries += 1
            for member in self.members.values():
                if member.status is Status.SILENT:
                    member.status = Status.JOINED if member.terms else Status.OFFERED
                    self._again(member)
            self._set_round()
        elif action in (Action.PAUSE, Action.REVERT):
            if action is Action.REVERT:
                self._out.append(Restore())
            self.paused = True
            self._out += [SetTimer(ROUND, None), SetTimer(DEADLINE, None)]
        else:
            self._leave("the quorum is lost", Reason.QUORUM_LOST)
        return False

    def _heard(self, member: Member) -> None:
        """A client that was silent is back."""
        member.tries = 0
        if member.status is not Status.SILENT:
            return
        member.status = Status.JOINED if member.terms else Status.OFFERED
        if self.paused and len(self.there) >= self.failures.quorum:
            self.paused = False
            for one in self._missing():
                self._again(one)
            self._set_round()

    def _fault(self, member: Member, message: messages.Fault) -> None:
        """A client says what went wrong, and what it does about it."""
        kind, action = message.fault, message.action
        self._out.append(Told(kind, spelled(action), f"node {member.node}: {message.detail or ''}".strip(": ")))
        if kind in (FaultKind.UNKNOWN_BASE, FaultKind.CORRUPT_PAYLOAD, FaultKind.CORRUPT_STATE):
            member.held = {}  # Whatever it held, the next model is complete.
        if kind is FaultKind.CLIENT_RESET:
            self._rejoin(member, message.model)
        elif kind is FaultKind.SERVER_SILENT and action is not Action.REQUEST_FULL:
            self._receipt(member, message.sequence, Outcome.TAKEN)
            if member in self._missing():
                self._again(member)
        elif action in (Action.REQUEST_FULL, Action.RETRY, Action.REVERT):
            member.held = {}
            self._again(member, full=action is not Action.RETRY)
        elif kind is FaultKind.STORAGE_FULL:
            member.held = {}
        elif action is Action.DROP or (action is Action.PAUSE and self.failures.on_timeout is Action.DROP):
            member.status = Status.SILENT  # Nothing will come of it in this round, or not in time.
            self._look()

    def _rejoin(self, member: Member, model: int) -> None:
        """A client is back after a reset, and holds this version."""
        rejoin = self.failures.rejoin
        self._out.append(Told(FaultKind.CLIENT_RESET, spelled(rejoin), f"node {member.node} holds version {model}"))
        if rejoin is Rejoin.REFUSE:
            self._close(member, Reason.REPLACED)
            member.status = Status.LEFT
            self._look()
            return
        known = {lane: version for version, lane in member.asked if version == model}
        member.held = known if rejoin is Rejoin.DIFFERENCE else {}
        self._again(member, full=rejoin is Rejoin.FULL)

    # -- updates that are not as they should be ---------------------------------------------------------------------

    def _invalid(self, member: Member, sequence: int, kind: FaultKind, why: str) -> None:
        action = self.failures.on_unknown_base if kind is FaultKind.UNKNOWN_BASE else self.failures.on_invalid
        self._out.append(Told(kind, spelled(action), f"node {member.node}: {why}"))
        member.invalid += kind is not FaultKind.UNKNOWN_BASE
        limit = self.failures.quarantine_after
        if limit and member.invalid >= limit:
            member.status = Status.QUARANTINED
            self._out.append(Told(kind, "quarantine", f"node {member.node}"))
            self._receipt(member, sequence, Outcome.QUARANTINED)
            self._look()
        elif action in (Action.RETRY, Action.REQUEST_FULL):
            self._again(member, full=action is Action.REQUEST_FULL)
        elif action is Action.DROP:
            self._receipt(member, sequence, Outcome.INVALID)
            member.status = Status.SILENT
            self._look()
        elif action is Action.LEAVE:
            self._leave(f"node {member.node}: {why}", Reason.FAILED)

    def _duplicate(self, member: Member, sequence: int, answer: Answer) -> None:
        """A second update for what has been answered."""
        policy, key = self.failures.duplicates, (answer.ask.client, answer.ask.lane)
        self._out.append(Told(FaultKind.DUPLICATE, spelled(policy), f"node {member.node}"))
        self._receipt(member, sequence, Outcome.DUPLICATE)
        open_, known = self.answers.get(key), self.exchange
        if known is None or open_ is None or open_.ask is not answer.ask:
            return  # The round that it belongs to is over.
        if policy is Duplicates.REPLACE:
            self.answers[key] = answer
        elif policy is Duplicates.SUM:
            self.answers[key] = _sum(open_, answer)

    def _stale(self, member: Member, sequence: int, answer: Answer, staleness: int) -> None:
        """An update of an earlier round. Up to what was agreed it counts by its staleness."""
        most, key = self.terms.aggregation.most_stale, (answer.ask.client, answer.ask.lane)
        if self.late and (most is None or staleness <= most):
            self.latecomers[key] = answer
            self._look()
            return
        policy = self.failures.over_stale
        over = staleness - (most or 0)
        self._out.append(Told(FaultKind.OVER_STALE, spelled(policy), f"node {member.node}: {staleness} rounds late"))
        if policy is OverStale.RETURN:
            self._receipt(member, sequence, Outcome.RETURNED)
            self._again(member, full=True)
        elif policy is OverStale.DROP or not self.late:
            self._receipt(member, sequence, Outcome.STALE)
        else:
            weight = 1.0 / (1.0 + over) if policy is OverStale.DOWN_WEIGHT else 1.0
            self.latecomers[key] = replace(answer, weight=weight)
            self._look()

    # -- saying so -------------------------------------------------------------------------------------------------

    def _receipt(self, member: Member, of: int, outcome: Outcome) -> None:
        version, tensors = self.exchange.version if self.exchange else 0, bytes(8)
        fields: dict[str, Any] = {"node": self.node, "of": of, "outcome": outcome}
        data = member.voice.say(messages.Receipt, **fields, model=version, model_digest=tensors)
        self._out.append(Send(member.node, data, priority=1))

    def _close(self, member: Member, reason: Reason) -> None:
        if member.terms is None:
            return
        version = self.exchange.version if self.exchange else 0
        fields: dict[str, Any] = {"node": self.node, "reason": reason, "model": version, "model_digest": digest({})}
        self._out.append(Send(member.node, member.voice.say(messages.Close, **fields), priority=-1))

    def _leave(self, reason: str, why: Reason) -> None:
        for member in self.members.values():
            if member.status in (Status.OFFERED, Status.JOINED, Status.SILENT):
                self._close(member, why)
        self.over = self.left = True
        self._out += [SetTimer(name, None) for name in (ROUND, DEADLINE, OFFER)]
        self._out.append(Leave(reason))


def _sum(first: Answer, second: Answer) -> Answer:
    """Both updates, one on top of the other."""
    begun = bases(first.ask.tensors, {name: array.shape for name, array in first.tensors.items()})
    added: dict[str, np.ndarray] = {
        name: first.tensors[name] + (second.tensors[name] - base) for name, base in begun.items()
    }
    return replace(first, tensors={**first.tensors, **added})


def lanes_of(asks: tuple[Ask, ...], client: int) -> list[Ask]:
    """What one client is asked."""
    return [ask for ask in asks if ask.client == client]
