"""The server of a session: it offers, asks, collects, has the rule learn, hands over to a stand-by, and does about each
fault what was agreed.

No IO, no clock and no learning in here: events go in, effects come out (see events).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedpareto_space.session import events as happened
from fedpareto_space.session.events import (
    Aggregate,
    Answer,
    Ask,
    Copy,
    Effect,
    Event,
    Exchange,
    Keep,
    Leave,
    Restore,
    Send,
    SetTimer,
    Told,
)
from fedpareto_space.session.server_state import DEADLINE, OFFER, ROUND, SILENCE, Member, ServerState, Status
from fedpareto_space.session.voice import (
    ADOPT,
    DIFFERENT,
    KINDS,
    NOTHING,
    WHOLE,
    Voice,
    bases,
    digest,
    in_order,
    must_be,
    opened,
    shapes_of,
)
from fedpareto_space.wire import messages, payload, rows
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.negotiation import Capabilities, confirm, rejection, settle
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.rows import Action, Duplicates, OverStale, Rejoin, ServerFailures
from fedpareto_space.wire.terms import Terms
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason, Role


class Trouble(NamedTuple):
    """The action that was agreed about a fault, and the update that it befell, if it was one."""

    action: Action
    why: str
    member: Member | None = None
    sequence: int = 0


@dataclass
class ServerMachine(ServerState):
    """The state machine of a server, or of a stand-by."""

    left: bool = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        self._out, self._now = [], now
        if self.left:
            return []
        match event:
            case happened.Started() if not self.standby:
                self._out.append(Aggregate())
                self._learning = True
                self._offer()
            case happened.Received(source, data):
                self._received(source, data)
            case happened.ContactBegan(peer) if peer in self.members and not self.standby:
                member = self.members[peer]  # The offer may have been lost.
                if member.status is Status.OFFERED and member.offered < now:
                    self._offer_to(member)
            case happened.Timer(name):
                self._timer(name)
            case happened.Asked(exchange):
                self._asked(exchange)
        return self._out

    def _timer(self, name: str) -> None:
        match name:
            case "offer":
                self._offer()
            case "round":
                self._waited()
            case "deadline":
                self._late = True
                self._look()
            case "silence":
                self._take_over("the server is silent")

    # -- agreeing --------------------------------------------------------------------------------------------------

    def _offer(self) -> None:
        """To all who have not answered; again after a while, because an offer may be lost."""
        waiting = [member for member in self.members.values() if member.status is Status.OFFERED]
        for member in waiting:
            self._offer_to(member)
        if waiting:
            self._out.append(SetTimer(OFFER, self._now + self.failures.timeout))

    def _offer_to(self, member: Member) -> None:
        member.voice, member.offered = Voice(self.node, self.session, sequence=member.voice.sequence), self._now
        offer = {"node": self.node, "role": Role.SERVER, "rows": self.offers, "extensions": self.extensions}
        self._out.append(Send(member.node, member.voice.say(messages.Offer, **offer), replaces="offer"))

    def _answered(self, member: Member, message: messages.Accept | messages.Counter | messages.Reject) -> None:
        if isinstance(message, messages.Counter):
            capabilities = Capabilities.everything(self.node, Role.SERVER)
            answer = settle(message, capabilities)
            self._out.append(Send(member.node, messages.encode(answer)))
            message = answer
            terms = answer.terms if isinstance(answer, messages.Accept) else None
        elif isinstance(message, messages.Accept):
            terms = self._confirmed(member, message)
            if terms is None:
                return
        else:
            terms = None
        if terms is None:
            assert isinstance(message, messages.Reject)
            self._rejected(member, message)
        elif member.status is not Status.JOINED:
            self._join(member, terms)

    def _confirmed(self, member: Member, accept: messages.Accept) -> Terms | None:
        try:
            return confirm(accept, self.offers, self.session)
        except ProtocolError as problem:
            self._out.append(Send(member.node, messages.encode(rejection(_in(problem, self.session)))))
            return None

    def _rejected(self, member: Member, message: messages.Reject) -> None:
        """The client will not; or it has forgotten an agreement, then it gets another offer."""
        row = f"table 6.{message.table}, row {message.row}" if message.table else ""
        detail = ", ".join(part for part in (f"node {member.node}", row, message.detail or "") if part)
        if message.code is Refusal.WRONG_AGREEMENT and member.terms is not None:
            member.terms, member.status = None, Status.OFFERED
            self._offer_to(member)
            return
        self._out.append(Told(KINDS.get(message.code, FaultKind.CLIENT_SILENT), "reject", detail))
        member.status = Status.REFUSED
        self._look()

    def _join(self, member: Member, terms: Terms) -> None:
        member.terms, member.status = terms, Status.JOINED
        member.voice = Voice(self.node, self.session, terms.id, member.voice.sequence)
        self._again(member)
        if self.exchange is not None and not self._learning:
            self._copy_out()

    # -- asking ----------------------------------------------------------------------------------------------------

    def _asked(self, exchange: Exchange) -> None:
        """The server half asks; what came too late for the last exchange counts in this one."""
        self.exchange, self.answers, self._learning, self._tries = exchange, {}, False, 0
        self.over, self._late = exchange.over, False
        for member in self.members.values():
            member.tries = 0
            if member.status in (Status.JOINED, Status.SILENT):  # Silent ones are told, and not waited for.
                self._again(member)
        if exchange.version % self.failures.checkpoint_every == 0:
            self._out.append(Keep())
            self._copy_out()
        self._set_round()
        deadline = self.terms.aggregation.deadline
        if deadline is not None and not self.over:
            self._out.append(SetTimer(DEADLINE, self._now + deadline))
        self._look()

    def _copy_out(self) -> None:
        """Stand-bys get what a successor needs."""
        others = tuple(node for node in self.failures.succession if node != self.node)
        if others and not self.over:
            self._out.append(Copy(others))

    def _again(self, member: Member, full: bool = False) -> None:
        if self.exchange is None or self._learning or member.terms is None:
            if member.terms is None and member.status is Status.OFFERED:
                self._offer_to(member)
            return
        for ask in lanes_of(self.exchange.asks, member.client):
            if (self.exchange.version, ask.lane) not in member.answered:
                self._send(member, ask, full)

    def _send(self, member: Member, ask: Ask, full: bool) -> None:
        assert self.exchange is not None
        tensors, version = in_order(ask.tensors), self.exchange.version
        held = None if full else member.asked.get((member.held.get(ask.lane, -1), ask.lane))
        base = {} if held is None else bases(held.tensors, shapes_of(tensors))
        codec = WHOLE if held is None else DIFFERENT
        manifest, data = payload.pack(tensors, codec, base)
        sent: dict[str, Any] = {"round": ask.round, "step": ask.step or ADOPT, "lane": ask.lane}
        sent |= {"base": 0, "base_digest": NOTHING}
        if held is not None:
            sent |= {"base": member.held[ask.lane], "base_digest": digest(held.tensors)[:8]}
        message = member.voice.say(
            messages.Global,
            model=version,
            model_digest=digest(tensors),
            content=rows.Content.WEIGHTS,
            codec=str(codec),
            manifest=manifest,
            payload_digest=payload.short(data),
            payload=data,
            key=self._key(),
            **sent,
        )
        member.note(ask, version)
        self._out.append(Send(member.node, message, replaces=f"global/{ask.lane}"))

    def _key(self) -> bytes | None:
        """The digest of this server's key, where the agreement names one."""
        keys = [one.key for one in self.terms.servers if one.node == self.node and one.key]
        return keys[0] if keys else None

    # -- messages --------------------------------------------------------------------------------------------------

    def _received(self, source: int, data: bytes) -> None:
        member = self.members.get(source)
        try:
            message = messages.decode(data)
        except ProtocolError as problem:
            self._unreadable(source, member, problem)
            return
        if message.session != self.session:
            return
        if isinstance(message, messages.Handover):
            self._copied(source, message)
        elif self.standby:
            self._called(source, message)
        elif member is None:
            return
        elif isinstance(message, messages.Accept | messages.Counter | messages.Reject):
            self._answered(member, message)
        elif member.status is Status.OFFERED:
            return  # It will get the offer.
        elif message.agreement != member.voice.agreement:
            refused = messages.Reject(session=self.session, code=Refusal.WRONG_AGREEMENT, detail="another agreement")
            self._out.append(Send(source, messages.encode(refused)))
        elif member.status in (Status.QUARANTINED, Status.LEFT):
            self._receipt(member, message.sequence, Outcome.QUARANTINED)
        else:
            self._of_member(member, message)

    def _of_member(self, member: Member, message: messages.Message) -> None:
        self._heard(member)
        match message:
            case messages.Update():
                self._update(member, message)
            case messages.Receipt():
                self._held(member, message)
            case messages.Fault():
                self._fault(member, message)
            case messages.Close():
                member.status = Status.DONE if message.reason is Reason.DONE else Status.LEFT
                self._look()

    def _unreadable(self, source: int, member: Member | None, problem: ProtocolError) -> None:
        kind = KINDS.get(problem.code)
        if kind is not None:
            self._out.append(Told(kind, "reject", f"node {source}: {problem}"))
            self._out.append(Send(source, messages.encode(rejection(_in(problem, self.session)))))
            if member is not None:
                member.status = Status.REFUSED
                self._look()
        elif member is not None and member.terms is not None:
            self._heard(member)
            self._invalid(member, problem.sequence, FaultKind.CORRUPT_PAYLOAD, str(problem))

    def _held(self, member: Member, receipt: messages.Receipt) -> None:
        """A client holds what it was sent. Where the server collects, it asks now."""
        if receipt.outcome is Outcome.TAKEN and receipt.of in member.sent:
            version, lane = member.sent[receipt.of]
            member.held[lane] = version
            if isinstance(self.terms.collection, rows.Poll | rows.Either) and member in self._missing():
                self._receipt(member, receipt.sequence, Outcome.AWAITED)

    # -- updates ---------------------------------------------------------------------------------------------------

    def _update(self, member: Member, message: messages.Update) -> None:
        if message.client != member.node:
            said = f"it says that it is node {message.client}"
            self._invalid(member, message.sequence, FaultKind.CORRUPT_PAYLOAD, said)
            return
        ask = member.asked.get((message.base, message.lane))
        asked = None if ask is None else (ask.round, ask.step, digest(ask.tensors)[:8])
        if ask is None or asked != (message.round, message.step, message.base_digest):
            self._invalid(member, message.sequence, FaultKind.UNKNOWN_BASE, f"builds on version {message.base}")
            return
        try:
            answer = self._opened(member, ask, message)
        except ProtocolError as problem:
            self._invalid(member, message.sequence, FaultKind.CORRUPT_PAYLOAD, str(problem))
            return
        if (why := self.refuse(answer)) is not None:
            self._invalid(member, message.sequence, FaultKind.NON_FINITE, why)
            return
        self._take(member, message, answer)

    def _opened(self, member: Member, ask: Ask, message: messages.Update) -> Answer:
        assert member.terms is not None
        if message.content is not member.terms.format.content or message.codec != member.terms.format.codec:
            raise ProtocolError(Refusal.INCONSISTENT, f"{message.codec} was not agreed on", (2, 6))
        manifest = message.manifest or member.manifests.get(message.manifest_digest)
        if manifest is None:
            raise ProtocolError(Refusal.MISSING, "the manifest is not known")
        must_be(manifest, self.shapes(ask.step))
        begun = bases(ask.tensors, manifest.shapes)
        if message.content is rows.Content.DIFFERENCE:
            found = opened(message, manifest, {name: array * 0 for name, array in begun.items()})
            found |= {name: begun[name] + found[name] for name in begun}
        else:
            found = opened(message, manifest, begun)
        member.manifests[message.manifest_digest] = manifest
        return Answer(ask, found)

    def _take(self, member: Member, message: messages.Update, answer: Answer) -> None:
        assert self.exchange is not None
        key, place = (message.base, message.lane), (member.client, message.lane)
        member.held.setdefault(message.lane, message.base)
        if key in member.answered:
            self._duplicate(member, message.sequence, answer)
            return
        member.answered.add(key)
        if message.base == self.exchange.version and not self._learning:
            self.answers[place] = answer
            self.latecomers.pop(place, None)
            self._receipt(member, message.sequence, Outcome.TAKEN)
            self._look()
            return
        self._stale(member, message.sequence, answer, self.exchange.round - answer.ask.round)

    def _look(self) -> None:
        """Closes the round if everybody who is there has answered, or enough have, or its time is over."""
        if self.exchange is None or self._learning or self.paused or self.left:
            return
        if self.over:
            if all(member.status is not Status.JOINED for member in self.members.values()):
                self._leave("done", Reason.DONE)
            return
        if not self._quorum():
            return
        found = self.answers | {key: one for key, one in self.latecomers.items() if key not in self.answers}
        clients = len({client for client, _ in found})
        asked = {self.of_client(ask.client) for ask in self.exchange.asks}
        least = min(self.terms.aggregation.minimum, len([one for one in asked if one.status.there]) or 1)
        enough = self.enough is not None and clients >= self.enough
        if clients >= least and (not self._missing() or enough or self._late):
            self._learning = True
            self.latecomers = {}
            self._out += [SetTimer(ROUND, None), SetTimer(DEADLINE, None)]
            self._out.append(Aggregate([found[key] for key in sorted(found)]))

    # -- stand-bys -------------------------------------------------------------------------------------------------

    def handover(self, learnt: bytes) -> bytes:
        """The message that brings a stand-by up to date with what the server half has learnt."""
        return self._handover(self._any_agreement(), Reason.DONE, self.copy_of(learnt))

    def _any_agreement(self) -> bytes:
        """Stand-bys have no agreement of their own: any of the clients' will do."""
        return next((member.terms.id for member in self.members.values() if member.terms), self.terms.id)

    def _handover(self, agreement: bytes, reason: Reason, state: bytes | None = None) -> bytes:
        identity = next((one for one in self.terms.servers if one.node == self.node), rows.Identity(self.node))
        fields: dict[str, Any] = {"successor": identity, "reason": reason, "state": state}
        fields |= {"model": self.exchange.version if self.exchange else 0, "model_digest": digest({})}
        return Voice(self.node, self.session, agreement).say(messages.Handover, **fields)

    def _copied(self, source: int, message: messages.Handover) -> None:
        """The server's state, for the case that it falls silent; or a successor that took over before this one."""
        if not self.standby:
            return
        if message.state is not None:
            self._copy = message.state
        if self.failures.handover_after is not None and self.node in self.failures.succession:
            place = self.failures.succession.index(self.node) + 1
            self._out.append(SetTimer(SILENCE, self._now + place * self.failures.handover_after))

    def _called(self, source: int, message: messages.Message) -> None:
        """A stand-by hears of a session from others than its server."""
        if isinstance(message, messages.Close) and source not in self.members:
            self.left = True
            self._out += [SetTimer(SILENCE, None), Leave("the server closed the session")]
        elif isinstance(message, messages.Fault) and message.fault is FaultKind.SERVER_SILENT and self._copy:
            self._take_over(f"node {source} says that the server is silent")

    def _take_over(self, why: str) -> None:
        if not self.standby or not self._copy:
            return
        self.standby = False
        learnt = self.take(self._copy)
        self._out.append(Told(FaultKind.SERVER_CHANGE, "hand-over", f"node {self.node} takes over: {why}"))
        self._out.append(SetTimer(SILENCE, None))
        told = [(node, self._any_agreement()) for node in self.failures.succession if node != self.node]
        for member in self.members.values():
            if member.terms is not None and member.status in (Status.JOINED, Status.SILENT):
                told.append((member.node, member.terms.id))
        self._out += [Send(node, self._handover(id_, Reason.SILENT), priority=2) for node, id_ in told]
        self._learning = True
        self._out.append(Restore(learnt))

    @property
    def failures(self) -> ServerFailures:
        return self.terms.server_failures

    # -- clients that do not answer --------------------------------------------------------------------------------

    def _missing(self) -> list[Member]:
        if self.exchange is None:
            return []
        wanted = {ask.client for ask in self.exchange.asks if (ask.client, ask.lane) not in self.answers}
        return [self.of_client(client) for client in sorted(wanted) if self.of_client(client).status.there]

    def _waited(self) -> None:
        if self.paused or self._learning or self.exchange is None:
            return
        if self.over:
            self._leave("done; some clients did not say that they have the result", Reason.DONE)
            return
        for member in self._missing():
            self._silent(member)
        self._handler(FaultKind.CLIENT_SILENT)(self, Trouble(self.failures.on_timeout, "a client is silent"))

    def _silent(self, member: Member) -> None:
        action = self.failures.on_timeout
        self._out.append(Told(FaultKind.CLIENT_SILENT, spelled(action), f"node {member.node}"))
        terms = member.terms or self.terms
        if action is Action.RETRY and member.tries < terms.client_failures.retries:
            member.tries += 1
            self._again(member, full=member.tries > 1)  # Perhaps it lacks what a difference builds on.
        elif action in (Action.DROP, Action.RETRY):
            member.status = Status.SILENT

    def _set_round(self) -> None:
        self._out.append(SetTimer(ROUND, self._now + self.failures.timeout))

    def _quorum(self) -> bool:
        """Tell whether the round can be closed: with enough clients, or as agreed with too few of them."""
        if len(self.there) >= self.failures.quorum:
            return True
        action = self.failures.on_quorum_lost
        why = f"{len(self.there)} of {len(self.members)} clients are left, {self.failures.quorum} are needed"
        self._out.append(Told(FaultKind.QUORUM_LOST, spelled(action), why))
        self._handler(FaultKind.QUORUM_LOST, Action.LEAVE)(self, Trouble(action, "the quorum is lost"))
        return action in (Action.CONTINUE, Action.IGNORE) and bool(self.there)

    def _heard(self, member: Member) -> None:
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
        action, who = getattr(self.failures, FAULTS[kind][0]), f"node {member.node}"
        self._out.append(Told(kind, spelled(action), f"{who}: {why}"))
        member.invalid += kind is not FaultKind.UNKNOWN_BASE
        limit = self.failures.quarantine_after
        if limit and member.invalid >= limit:
            member.status = Status.QUARANTINED
            self._out.append(Told(kind, "quarantine", who))
            self._receipt(member, sequence, Outcome.QUARANTINED)
            self._look()
            return
        self._handler(kind)(self, Trouble(action, f"{who}: {why}", member, sequence))

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

    # -- what is done about a fault: see FAULTS -----------------------------------------------------------------------

    def _handler(self, kind: FaultKind, usual: Action = Action.IGNORE) -> Handler:
        field, handlers = FAULTS[kind]
        return handlers.get(getattr(self.failures, field), handlers[usual])

    def _ignore(self, fault: Trouble) -> None:
        """Go on as if nothing had been."""

    def _wait_on(self, fault: Trouble) -> None:
        self._set_round()
        self._look()

    def _pause(self, fault: Trouble) -> None:
        self.paused = True

    def _go_back(self, fault: Trouble) -> None:
        self._out.append(Restore())

    def _halt(self, fault: Trouble) -> None:
        if fault.action is Action.REVERT:
            self._out.append(Restore())
        self.paused = True
        self._out += [SetTimer(ROUND, None), SetTimer(DEADLINE, None)]

    def _call_again(self, fault: Trouble) -> None:
        if self._tries >= self.terms.client_failures.retries:
            self._leave(fault.why, Reason.QUORUM_LOST)
            return
        self._tries += 1
        for member in self.members.values():
            if member.status is Status.SILENT:
                member.status = Status.JOINED if member.terms else Status.OFFERED
                self._again(member)
        self._set_round()

    def _ask_again(self, fault: Trouble) -> None:
        assert fault.member is not None
        self._again(fault.member, full=fault.action is Action.REQUEST_FULL)

    def _drop(self, fault: Trouble) -> None:
        assert fault.member is not None
        self._receipt(fault.member, fault.sequence, Outcome.INVALID)
        fault.member.status = Status.SILENT
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


Handler = Callable[[ServerMachine, Trouble], None]
_INVALID: Mapping[Action, Handler] = {
    Action.IGNORE: ServerMachine._ignore,
    Action.RETRY: ServerMachine._ask_again,
    Action.DROP: ServerMachine._drop,
    Action.REQUEST_FULL: ServerMachine._ask_again,
    Action.LEAVE: lambda machine, fault: machine._leave(fault.why, Reason.FAILED),
}
_SILENCE: Mapping[Action, Handler] = {
    **dict.fromkeys((Action.IGNORE, Action.RETRY, Action.CONTINUE), ServerMachine._wait_on),
    Action.PAUSE: ServerMachine._pause,
    Action.REVERT: ServerMachine._go_back,
    Action.DROP: ServerMachine._wait_on,
    Action.LEAVE: lambda machine, fault: machine._leave(fault.why, Reason.SILENT),
}
_QUORUM: Mapping[Action, Handler] = {
    Action.IGNORE: ServerMachine._ignore,
    Action.RETRY: ServerMachine._call_again,
    Action.CONTINUE: ServerMachine._ignore,
    Action.PAUSE: ServerMachine._halt,
    Action.REVERT: ServerMachine._halt,
    Action.LEAVE: lambda machine, fault: machine._leave(fault.why, Reason.QUORUM_LOST),
}
FAULTS: Mapping[FaultKind, tuple[str, Mapping[Action, Handler]]] = {
    FaultKind.CLIENT_SILENT: ("on_timeout", _SILENCE),
    FaultKind.QUORUM_LOST: ("on_quorum_lost", _QUORUM),
    FaultKind.NON_FINITE: ("on_invalid", _INVALID),
    FaultKind.CORRUPT_PAYLOAD: ("on_invalid", _INVALID),
    FaultKind.UNKNOWN_BASE: ("on_unknown_base", _INVALID),
}
"""Row 4 of table 6.3: for each fault the field with what was agreed about it, and what this package does then."""


def _in(problem: ProtocolError, session: bytes) -> ProtocolError:
    problem.session = problem.session or session
    return problem


def _sum(first: Answer, second: Answer) -> Answer:
    begun = bases(first.ask.tensors, shapes_of(first.tensors))
    added: dict[str, np.ndarray] = {
        name: first.tensors[name] + (second.tensors[name] - base) for name, base in begun.items()
    }
    return replace(first, tensors={**first.tensors, **added})


def lanes_of(asks: tuple[Ask, ...], client: int) -> list[Ask]:
    return [ask for ask in asks if ask.client == client]
