"""A client of a session: it agrees, trains, submits, integrates, and does about each fault what was agreed.

No IO, no clock and no learning in here: events go in, effects come out (see events).
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from fedpareto.codecs import Codec
from fedpareto_space.session import events as happened
from fedpareto_space.session import triggers
from fedpareto_space.session.client_faults import ROW, ClientFaults
from fedpareto_space.session.client_state import TRIGGER, WAIT, Lane, Mode
from fedpareto_space.session.events import Adopt, Effect, Event, Leave, Send, SetTimer, Told, Train
from fedpareto_space.session.integration import integrated
from fedpareto_space.session.voice import ADOPT, NOTHING, Coder, Voice, bases, digest, in_order, opened
from fedpareto_space.session.work import Answer, Arrays, Ask
from fedpareto_space.wire import messages, payload, rows
from fedpareto_space.wire.negotiation import confirm, negotiate
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.rows import Action
from fedpareto_space.wire.terms import Terms
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason

VERSIONS_HELD = 4
"""Global messages of a lane on which the next may build."""
ANSWERS_KEPT = 4
"""Submissions that can be sent again if a server asks for them a second time."""


@dataclass
class ClientMachine(ClientFaults):
    """See the module."""

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
        """What is to be done about something that has happened."""
        self._out, self._now = [], now
        if self.mode in (Mode.LEFT, Mode.DONE):
            return []
        match event:
            case happened.Started():
                self._started()
            case happened.Received(source, data):
                self._received(source, data)
            case happened.ContactBegan(peer) if peer == self.server:
                for lane in self.lanes.values():
                    lane.progress.contact = True
                self._look()
            case happened.Timer(name):
                if name == WAIT:
                    self._waited()
                self._look()
            case happened.Trained(answer):
                self._trained(answer)
            case happened.LocalFault(fault):
                self._ill(fault)
            case happened.LocalFaultOver(fault):
                self.faults.discard(fault)
                self._work()
        return self._out

    def _started(self) -> None:
        """After a reset the server hears of it: what the client held last may be old."""
        if self.voice is None or self.terms is None:
            return
        self._out.append(Told(FaultKind.CLIENT_RESET, "revert", f"back at version {self.newest()[0]}"))
        self._say_fault(self.server, FaultKind.CLIENT_RESET, Action.REVERT, ROW, "back after a reset")
        self._wait()

    # -- messages --------------------------------------------------------------------------------------------------

    def _received(self, source: int, data: bytes) -> None:
        try:
            message = messages.decode(data)
        except ProtocolError as problem:
            self._refused(source, problem)
            return
        if isinstance(message, messages.Offer):
            self._offered(source, message)
        elif isinstance(message, messages.Accept):
            self._accepted(source, message)
        elif self.voice is None or self.terms is None or message.session != self.speaker.session:
            return  # Of a session that this client is not part of.
        elif isinstance(message, messages.Reject):
            return  # There is no answer to that, or two nodes would refuse each other for ever.
        elif message.agreement != self.speaker.agreement:
            self._reject(source, Refusal.WRONG_AGREEMENT, "another agreement")
        elif isinstance(message, messages.Handover):
            self._handed_over(source, message, data)
        elif (why := self._foreign(source, message)) is not None:
            self._say_fault(source, FaultKind.SERVER_CHANGE, Action.IGNORE, (2, 2), why)
            self._out.append(Told(FaultKind.SERVER_CHANGE, "refuse", why))
        elif isinstance(message, messages.Global):
            self._global(message)
        elif isinstance(message, messages.Receipt):
            self._told(message.outcome)
        elif isinstance(message, messages.Close):
            self._leave(f"the server closed the session: {message.reason.name.lower()}", tell=False)

    def _foreign(self, source: int, message: messages.Message) -> str | None:
        """Why a message is not the server's own; or None."""
        if source != self.server:
            return f"node {source} is not the server"
        keys = [one.key for one in self.agreed.servers if one.node == source]
        if isinstance(message, messages.Global) and any(keys) and message.key not in keys:
            return f"node {source} has another key than was agreed on"
        return None

    def _told(self, outcome: Outcome) -> None:
        """The server asks for a submission, or says what became of one."""
        self._tries = 0
        if outcome is Outcome.AWAITED:
            for lane in self.lanes.values():
                lane.progress.polled = True
            self._look()
            return
        for lane in self.lanes.values():
            lane.received = lane.received or lane.submitted
            if outcome is Outcome.TAKEN and lane.submitted and lane.ask.key in self._answers:
                self._manifests.add(self._answers[lane.ask.key].manifest_digest)
        self._wait()

    def _refused(self, source: int, problem: ProtocolError) -> None:
        """A message that cannot be read."""
        kinds = {
            Refusal.VERSION: FaultKind.VERSION_MISMATCH,
            Refusal.CRITICAL_EXTENSION: FaultKind.UNKNOWN_EXTENSION,
        }
        kind = kinds.get(problem.code)
        if kind is not None:
            self._reject(source, problem.code, problem.what, problem.place, problem.session)
            self._out.append(Told(kind, "reject", str(problem)))
        elif self.terms is not None and source == self.server:
            self._act(FaultKind.CORRUPT_PAYLOAD, self.agreed.client_failures.on_undecodable, str(problem))

    def _offered(self, source: int, offer: messages.Offer) -> None:
        """Another offer of the session that it is in gets the same answer: the first was lost on the way."""
        if self.voice is not None and offer.session != self.speaker.session:
            self._reject(source, Refusal.NOT_SUPPORTED, "in another session already", session=offer.session)
            return
        if self.terms is not None and source != self.server and self._change is not rows.ServerChange.RENEGOTIATE:
            self._out.append(Told(FaultKind.SERVER_CHANGE, "refuse", f"an offer of node {source}"))
            return
        answer = negotiate(offer, self.capabilities, self.rule)
        self._out.append(Send(source, messages.encode(answer)))
        if isinstance(answer, messages.Accept):
            self._agree(answer.terms, offer.session, source)
        elif isinstance(answer, messages.Counter):
            self._countered = answer, source
        else:
            row = f"table 6.{answer.table}, row {answer.row}" if answer.table else answer.code.name.lower()
            self._out.append(Leave(f"no agreement: {row}"))

    def _accepted(self, source: int, accept: messages.Accept) -> None:
        """The server took this client's counter."""
        if self._countered is None or self._countered[1] != source:
            return
        counter, self._countered = self._countered[0], None
        try:
            terms = confirm(accept, counter.rows, counter.session)
        except ProtocolError as problem:
            self._reject(source, problem.code, problem.what, problem.place, counter.session)
            return
        self._agree(terms, counter.session, source)

    def _agree(self, terms: Terms, session: bytes, server: int) -> None:
        if self.voice is None or self.voice.agreement != terms.id:
            self.voice = Voice(self.node, session, terms.id)
            self.coder = Coder(Codec.parse(terms.format.codec), terms.format.error_feedback)
        if self.server != server:
            self._manifests = set()
        self.terms, self.server, self.mode = terms, server, Mode.AGREED
        self._wait()

    # -- a global model --------------------------------------------------------------------------------------------

    def _global(self, message: messages.Global) -> None:
        if self._busy is not None:
            self._later = [one for one in self._later if one.lane != message.lane] + [message]
            return
        lane = self.lanes.get(message.lane)
        key = message.round, message.step, message.lane
        if lane is not None and lane.version == message.model and lane.ask.key == key:
            self._asked_again(lane)
            return
        if lane is not None and message.model < lane.version:
            return  # Overtaken by a newer one.
        failures = self.agreed.client_failures
        base = self._base(message)
        if base is None:
            self._act(FaultKind.UNKNOWN_BASE, failures.on_unknown_base, f"builds on version {message.base}")
            return
        try:
            tensors = opened(message, message.manifest, base)
            if digest(tensors) != message.model_digest:
                raise ProtocolError(Refusal.WRONG_DIGEST, "the model does not have its digest")
        except ProtocolError as problem:
            self._act(FaultKind.CORRUPT_PAYLOAD, failures.on_undecodable, str(problem))
            return
        self._integrate(message, tensors)

    def _base(self, message: messages.Global) -> Arrays | None:
        """What it builds on; None if that is not here, or is no longer what it was."""
        if message.base_digest == NOTHING:
            return {}
        base = self.held.get((message.base, message.lane))
        return base if base is not None and digest(base)[:8] == message.base_digest else None

    def _integrate(self, message: messages.Global, tensors: dict[str, np.ndarray]) -> None:
        self._tries, self._standbys, self._alone = 0, 0, False
        self._hold(message, tensors)
        if message.step == ADOPT:
            self._adopt(message, tensors)
            return
        before = self.lanes.get(message.lane)
        ask = Ask(self.client, message.round, message.step, message.lane, tensors)
        local = in_order(tensors)
        if before is not None:
            local = integrated(self.agreed.integration, tensors, before.local, before.ask.tensors, self.slices)
        progress = triggers.Progress(self._now)
        self.lanes[message.lane] = Lane(ask, message.model, digest(tensors), local, digest(local), progress)
        if self.mode is Mode.PAUSED:
            self.mode = Mode.AGREED
        self._globals += 1
        if self._globals % self.agreed.client_failures.checkpoint_every == 0:
            self._keep()
        self._receive(message, Outcome.TAKEN)
        if (at := triggers.due(self.agreed.trigger, progress)) is not None:
            self._out.append(SetTimer(TRIGGER, at))
        self._wait()
        self._work()

    def _hold(self, message: messages.Global, tensors: dict[str, np.ndarray]) -> None:
        """Keeps what the next global message may build on: this one, and those from its own base on.

        The server may not know yet that this one arrived.
        """
        own = sorted(version for version, lane in self.held if lane == message.lane)
        complete = message.base_digest == NOTHING
        old = [version for version in own if complete or version < message.base] + own[: 1 - VERSIONS_HELD]
        self.held = {key: one for key, one in self.held.items() if key[1] != message.lane or key[0] not in old}
        if FaultKind.STORAGE_FULL not in self.faults:
            self.held[message.model, message.lane] = tensors

    def _adopt(self, message: messages.Global, tensors: Arrays) -> None:
        self.solution, self.mode = tensors, Mode.DONE
        close = {"node": self.node, "reason": Reason.DONE, "model": message.model, "model_digest": digest(tensors)}
        self._out += [Adopt(tensors), Send(self.server, self.speaker.say(messages.Close, **close))]
        self._out += [SetTimer(WAIT, None), SetTimer(TRIGGER, None), Leave("done")]

    def _asked_again(self, lane: Lane) -> None:
        """The server has not heard from this client, or waits for it: what is ready is sent again."""
        if not lane.submitted:
            lane.progress.polled = True
            self._look()
        elif lane.ask.key in self._answers:
            self._manifests.discard(self._answers[lane.ask.key].manifest_digest)  # Perhaps that was what it lacked.
            self._send(self._answers[lane.ask.key])

    # -- training --------------------------------------------------------------------------------------------------

    @property
    def _may_train(self) -> bool:
        resting = {FaultKind.LOW_POWER: self.agreed.client_failures.on_low_power}
        resting[FaultKind.STORAGE_FULL] = self.agreed.client_failures.on_storage_full
        ill = any(resting.get(fault) is Action.PAUSE for fault in self.faults)
        return self.mode is Mode.AGREED and self._busy is None and not ill

    def _work(self) -> None:
        """The next local step, if there is one to do."""
        if self.terms is None or not self._may_train:
            return
        for lane in list(self.lanes.values()):
            if self._has_work(lane):
                self._step(lane)
                return

    def _has_work(self, lane: Lane) -> bool:
        if self._alone:
            return True
        if not lane.submitted:
            return lane.progress.steps == 0 or triggers.goes_on(self.agreed.trigger, lane.progress, self._now)
        match self.agreed.waiting:
            case rows.Continue():
                return True
            case rows.ContinueFor(steps):
                return lane.after < steps
        return False

    def _step(self, lane: Lane) -> None:
        if self._is_sound(lane):
            self._busy = lane
            self._out.append(Train(lane.ask, lane.local, lane.steps))

    def _is_sound(self, lane: Lane) -> bool:
        """Whether what is stored is still what it was; if not, what was agreed is done."""
        if digest(lane.local) == lane.local_digest and digest(lane.ask.tensors) == lane.digest:
            return True
        action = self.agreed.client_failures.on_corrupt_state
        self._act(FaultKind.CORRUPT_STATE, action, "stored weights do not have their digest", lane)
        return False

    def _trained(self, answer: Answer) -> None:
        lane, self._busy = self._busy, None
        if lane is None or lane.ask.key != answer.ask.key or self.terms is None:
            return
        if answer.failure or not _finite(answer.tensors):
            why = answer.failure or "a trained tensor is not finite"
            self._act(FaultKind.NON_FINITE, self.agreed.client_failures.on_non_finite, why, lane)
        else:
            self._learnt(lane, answer)
        self._submit_due()
        later, self._later = self._later, []
        for message in later:
            self._global(message)
        self._work()

    def _learnt(self, lane: Lane, answer: Answer) -> None:
        lane.steps += 1
        lane.after += lane.submitted
        begun, asked = bases(lane.ask.tensors, _shapes(answer.tensors)), lane.ask.tensors
        lane.local = {
            **lane.local,
            **{name: one for name, one in answer.tensors.items() if name in asked and one.shape == asked[name].shape},
        }
        lane.local_digest = digest(lane.local)
        progress = lane.progress
        progress.steps += 1
        progress.loss = answer.loss
        progress.norm = float(
            np.sqrt(sum(np.sum(np.square(np.float64(answer.tensors[name]) - begun[name])) for name in begun))
        )
        if not lane.submitted:
            lane.answer = answer

    def _look(self) -> None:
        """Submits what is due, then goes on."""
        if self.terms is not None and self._busy is None:
            self._submit_due()
            self._work()

    def _submit_due(self) -> None:
        if self.mode not in (Mode.AGREED, Mode.PAUSED):
            return
        for lane in list(self.lanes.values()):
            if lane.answer is not None and not lane.submitted and self._is_due(lane) and self._is_sound(lane):
                self._submit(lane)

    def _is_due(self, lane: Lane) -> bool:
        """Whether the trigger fires; where the server collects, it must have asked as well."""
        asked = lane.progress.polled or not isinstance(self.agreed.collection, rows.Poll)
        met = lane.progress.contact or not isinstance(self.agreed.collection, rows.Contacts)
        return asked and met and triggers.fires(self.agreed.trigger, lane.progress, self._now)

    # -- submitting ------------------------------------------------------------------------------------------------

    def _submit(self, lane: Lane) -> None:
        assert lane.answer is not None
        agreed, tensors = self.agreed.format, dict(lane.answer.tensors)
        begun = bases(lane.ask.tensors, _shapes(tensors))
        tensors = {name: self._wanted(array, begun.get(name)) for name, array in tensors.items()}
        if agreed.content is rows.Content.DIFFERENCE:
            tensors = {name: array - begun[name] if name in begun else array for name, array in tensors.items()}
            begun = {name: np.zeros_like(array) for name, array in begun.items()}
        manifest, data = self.coder.packed(lane.ask.lane, tensors, begun)
        size = lane.answer.tensors.get("size")
        update = messages.Update(
            session=self.speaker.session,
            agreement=self.speaker.agreement,
            client=self.node,
            base=lane.version,
            base_digest=lane.digest[:8],
            round=lane.ask.round,
            step=lane.ask.step,
            lane=lane.ask.lane,
            steps=lane.steps,
            content=agreed.content,
            codec=agreed.codec,
            manifest_digest=manifest.digest,
            payload_digest=payload.short(data),
            payload=data,
            rows=int(size) if agreed.rows and size is not None else None,
            manifest=manifest,
        )
        lane.submitted, lane.progress.polled = True, False
        self._answers[lane.ask.key] = update
        self._answers = dict(list(self._answers.items())[-ANSWERS_KEPT:])
        self._send(update)
        self._wait()

    def _wanted(self, array: np.ndarray, base: np.ndarray | None) -> np.ndarray:
        """Without those tensors of a model that are not submitted: there the base stays."""
        patterns = self.agreed.format.tensors
        size = max((place.stop for place in self.slices.values()), default=0)
        if base is None or patterns == ("*",) or not array.ndim or array.shape[-1] != size:
            return array
        found = base.copy()
        for name, place in self.slices.items():
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                found[..., place] = array[..., place]
        return found


def _finite(tensors: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in tensors.values() if array.dtype.kind == "f")


def _shapes(tensors: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in tensors.items()}
