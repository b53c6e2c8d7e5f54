"""A client of a session: it agrees, trains, submits, integrates, and does about each fault what was agreed.

No IO, no clock and no learning in here: events go in, effects come out (see events).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from fedpareto.codecs import Codec
from fedpareto.config.errors import DamagedFile
from fedpareto_space.session import events as happened
from fedpareto_space.session import triggers
from fedpareto_space.session.client_state import TRIGGER, WAIT, ClientState, Lane, Mode
from fedpareto_space.session.events import (
    Adopt,
    Answer,
    Arrays,
    Ask,
    Effect,
    Event,
    Keep,
    Leave,
    Restore,
    Send,
    SetTimer,
    Told,
    Train,
)
from fedpareto_space.session.integration import integrated
from fedpareto_space.session.voice import (
    ADOPT,
    KINDS,
    NOTHING,
    Coder,
    Voice,
    bases,
    digest,
    in_order,
    opened,
    shapes_of,
    submission,
)
from fedpareto_space.wire import messages, rows
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.negotiation import confirm, fitting, negotiate
from fedpareto_space.wire.refusals import NOWHERE, Place, ProtocolError, Refusal
from fedpareto_space.wire.rows import Action, ServerChange
from fedpareto_space.wire.terms import Terms
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason

VERSIONS_HELD = 4
"""Global messages of a lane on which the next may build."""
ANSWERS_KEPT = 4
"""Submissions that can be sent again if a server asks for them a second time."""
ROW = (2, 8)
SILENT = "the server is silent"


class Trouble(NamedTuple):
    """A fault at this node, the action that was agreed about it, and the lane that it befell."""

    kind: FaultKind
    action: Action
    why: str
    lane: Lane | None


@dataclass
class ClientMachine(ClientState):
    """The state machine of a client."""

    # -- events ----------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now: float) -> list[Effect]:
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
            case happened.LocalFault(fault) if self.terms is not None:
                self.faults.add(fault)
                self._act(fault)
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
        """Return why a message is not the server's own; or None."""
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
        kind = KINDS.get(problem.code)
        if kind is not None:
            self._reject(source, problem.code, problem.what, problem.place, problem.session)
            self._out.append(Told(kind, "reject", str(problem)))
        elif self.terms is not None and source == self.server:
            self._act(FaultKind.CORRUPT_PAYLOAD, str(problem))

    def _offered(self, source: int, offer: messages.Offer) -> None:
        """Another offer of the session that it is in gets the same answer: the first was lost on the way."""
        if self.voice is not None and offer.session != self.speaker.session:
            self._reject(source, Refusal.NOT_SUPPORTED, "in another session already", session=offer.session)
            return
        if self.terms is not None and source != self.server and self._change is not ServerChange.RENEGOTIATE:
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
        base = self._base(message)
        if base is None:
            self._act(FaultKind.UNKNOWN_BASE, f"builds on version {message.base}")
            return
        try:
            tensors = opened(message, message.manifest, base)
            if digest(tensors) != message.model_digest:
                raise ProtocolError(Refusal.WRONG_DIGEST, "the model does not have its digest")
        except ProtocolError as problem:
            self._act(FaultKind.CORRUPT_PAYLOAD, str(problem))
            return
        self._integrate(message, tensors)

    def _base(self, message: messages.Global) -> Arrays | None:
        """Return what a message builds on; None if that is not here, or is no longer what it was."""
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
        """Keep what the next global message may build on: this one, and those from its own base on.

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
        ill = any(self._agreed_about(fault) is Action.PAUSE for fault in self.faults)
        return self.mode is Mode.AGREED and self._busy is None and not ill

    def _work(self) -> None:
        """Begin the next local step, if there is one to do."""
        if self.terms is None or not self._may_train:
            return
        lane = next(filter(self._has_work, self.lanes.values()), None)
        if lane is not None and self._is_sound(lane):
            self._busy = lane
            self._out.append(Train(lane.ask, lane.local, lane.steps))

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

    def _is_sound(self, lane: Lane) -> bool:
        """Compare stored weights with their digests; if they differ, do what was agreed about it."""
        if digest(lane.local) == lane.local_digest and digest(lane.ask.tensors) == lane.digest:
            return True
        self._act(FaultKind.CORRUPT_STATE, "stored weights do not have their digest", lane)
        return False

    def _trained(self, answer: Answer) -> None:
        lane, self._busy = self._busy, None
        if lane is None or lane.ask.key != answer.ask.key or self.terms is None:
            return
        if answer.failure or not _finite(answer.tensors):
            self._act(FaultKind.NON_FINITE, answer.failure or "a trained tensor is not finite", lane)
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
        begun, asked = bases(lane.ask.tensors, shapes_of(answer.tensors)), lane.ask.tensors
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
        """Submit what is due, then go on."""
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
        """Tell whether the trigger fires; where the server collects, it must have asked as well."""
        asked = lane.progress.polled or not isinstance(self.agreed.collection, rows.Poll)
        met = lane.progress.contact or not isinstance(self.agreed.collection, rows.Contacts)
        return asked and met and triggers.fires(self.agreed.trigger, lane.progress, self._now)

    # -- submitting ------------------------------------------------------------------------------------------------

    def _submit(self, lane: Lane) -> None:
        assert lane.answer is not None
        agreed, tensors = self.agreed.format, dict(lane.answer.tensors)
        begun = bases(lane.ask.tensors, shapes_of(tensors))
        tensors = {name: self._wanted(array, begun.get(name)) for name, array in tensors.items()}
        if agreed.content is rows.Content.DIFFERENCE:
            tensors = {name: array - begun[name] if name in begun else array for name, array in tensors.items()}
            begun = {name: np.zeros_like(array) for name, array in begun.items()}
        packed = self.coder.packed(lane.ask.lane, tensors, begun)
        size = lane.answer.tensors.get("size")
        update = messages.Update(
            session=self.speaker.session,
            agreement=self.speaker.agreement,
            rows=int(size) if agreed.rows and size is not None else None,
            **submission(self.node, lane.ask, lane.version, lane.digest, lane.steps, agreed, *packed),
        )
        lane.submitted, lane.progress.polled = True, False
        self._answers[lane.ask.key] = update
        self._answers = dict(list(self._answers.items())[-ANSWERS_KEPT:])
        self._send(update)
        self._wait()

    def _wanted(self, array: np.ndarray, base: np.ndarray | None) -> np.ndarray:
        """Leave out those tensors of a model that are not submitted: there the base stays."""
        patterns = self.agreed.format.tensors
        size = max((place.stop for place in self.slices.values()), default=0)
        if base is None or patterns == ("*",) or not array.ndim or array.shape[-1] != size:
            return array
        found = base.copy()
        for name, place in self.slices.items():
            if any(fnmatchcase(name, pattern) for pattern in patterns):
                found[..., place] = array[..., place]
        return found

    # -- saying ----------------------------------------------------------------------------------------------------

    def _say_fault(self, to: int, kind: FaultKind, action: Action, place: Place, why: str) -> None:
        fields: dict[str, Any] = {"node": self.node, "fault": kind, "action": action, "model": self.newest()[0]}
        fields |= {"table": place[0], "row": place[1], "detail": fitting(why) or None}
        self._out.append(Send(to, self.speaker.say(messages.Fault, **fields), priority=1))

    def _reject(self, to: int, code: Refusal, why: str, place: Place = NOWHERE, session: bytes = b"") -> None:
        session = session or (self.speaker.session if self.voice else bytes(8))
        reject = messages.Reject(session=session, code=code, table=place[0], row=place[1], detail=fitting(why) or None)
        self._out.append(Send(to, messages.encode(reject), priority=1))

    def _leave(self, reason: str, tell: bool = True) -> None:
        if tell and self.voice is not None:
            version, found = self.newest()[0], self.lanes
            model = max((lane.digest for lane in found.values() if lane.version == version), default=digest({}))
            close = {"node": self.node, "reason": Reason.LEFT, "model": version, "model_digest": model}
            self._out.append(Send(self.server, self.speaker.say(messages.Close, **close), priority=1))
        self.mode = Mode.LEFT
        self._out += [SetTimer(WAIT, None), Leave(reason)]

    def _receive(self, message: messages.Message, outcome: Outcome) -> None:
        """Tell the server what this client holds: the next global model may build on it."""
        version, found = self.newest()
        fields: dict[str, Any] = {"node": self.node, "of": message.sequence, "outcome": outcome}
        receipt = self.speaker.say(messages.Receipt, **fields, model=version, model_digest=found)
        self._out.append(Send(self.server, receipt))

    def _send(self, update: messages.Update) -> None:
        self.speaker.sequence += 1
        known = update.manifest_digest in self._manifests
        manifest = None if known else update.manifest
        data = messages.encode(replace(update, sequence=self.speaker.sequence, manifest=manifest))
        self._out.append(Send(self.server, data, replaces=f"update/{update.lane}/{update.round}"))

    def _wait(self) -> None:
        failures = self.agreed.client_failures
        self._out.append(SetTimer(WAIT, self._now + failures.timeout * failures.backoff**self._tries))

    def _waited(self) -> None:
        """No global model came in time; or nothing made this client submit."""
        if self.terms is None or self.mode is Mode.PAUSED:
            return
        if self._busy is not None and self._busy.progress.steps == 0:
            self._wait()  # It is still at its first step: nobody else is late.
            return
        self._act(FaultKind.SERVER_SILENT, f"waited {self._tries + 1} times")

    # -- another server --------------------------------------------------------------------------------------------

    def _handed_over(self, source: int, message: messages.Handover, data: bytes) -> None:
        """Another server says that it is the server now."""
        node, change = message.successor.node, self._change
        if self._accepts(source, node, data):
            self.server, self._tries, self._standbys, self._manifests = node, 0, 0, set()
            self._out.append(Told(FaultKind.SERVER_CHANGE, spelled(change), f"node {node} is the server now"))
            self._receive(message, Outcome.TAKEN)
            self._wait()
            return
        if change is ServerChange.RENEGOTIATE:
            self._out.append(Told(FaultKind.SERVER_CHANGE, spelled(change), f"node {node} must make an offer"))
            self._reject(source, Refusal.WRONG_AGREEMENT, "a new server makes an offer", (2, 2))
            return
        self._out.append(Told(FaultKind.SERVER_CHANGE, "refuse", f"node {node} is not a declared server"))
        self._say_fault(source, FaultKind.SERVER_CHANGE, Action.IGNORE, (2, 2), f"node {node} is not accepted")

    def _accepts(self, source: int, node: int, data: bytes) -> bool:
        """Tell whether a node may be the server: a stand-by after the present one, or whoever proves who it is."""
        match self._change:
            case ServerChange.STANDBYS:
                return source in (node, self.server) and node in self._later_servers
            case ServerChange.SIGNED:
                return self.verify(source, data)
        return False

    @property
    def _later_servers(self) -> list[int]:
        """Stand-bys after the present server."""
        servers = [one.node for one in self.agreed.servers]
        return servers[servers.index(self.server) + 1 :] if self.server in servers else []

    @property
    def _change(self) -> ServerChange:
        return self.agreed.client_failures.on_server_change

    # -- faults: what was agreed is looked up in FAULTS -------------------------------------------------------------

    def _agreed_about(self, kind: FaultKind) -> Action:
        action: Action = getattr(self.agreed.client_failures, FAULTS[kind][0])
        return action

    def _act(self, kind: FaultKind, why: str = "", lane: Lane | None = None) -> None:
        action, handlers = self._agreed_about(kind), FAULTS[kind][1]
        self._out.append(Told(kind, spelled(action), why))
        usual = handlers.get(Action.IGNORE, ClientMachine._ignore)
        handlers.get(action, usual)(self, Trouble(kind, action, why, lane))

    def _ignore(self, fault: Trouble) -> None:
        """Go on as if nothing had been."""

    def _report(self, fault: Trouble) -> None:
        self._say_fault(self.server, fault.kind, fault.action, ROW, fault.why)

    def _give_up(self, fault: Trouble) -> None:
        self._leave(": ".join(filter(None, (spelled(fault.kind), fault.why))))

    def _pause(self, fault: Trouble) -> None:
        self.mode = Mode.PAUSED
        self._report(fault)

    def _go_back(self, fault: Trouble) -> None:
        self._revert()
        self._report(fault)

    def _request(self, fault: Trouble) -> None:
        if fault.lane is not None:
            self.lanes.pop(fault.lane.ask.lane, None)
        self._report(fault)
        self._wait()

    def _skip(self, fault: Trouble) -> None:
        """Count the lane as done: nothing of it is submitted in this round."""
        assert fault.lane is not None
        fault.lane.submitted = True
        self._report(fault)
        self._wait()

    def _train_again(self, fault: Trouble) -> None:
        """Train once more: from where the lane began, or from the checkpoint."""
        lane = fault.lane
        assert lane is not None
        if lane.tries >= self.agreed.client_failures.retries:
            self._leave(f"{spelled(fault.kind)} again after {lane.tries} retries")
            return
        tries = lane.tries + 1
        if fault.action is Action.REVERT:
            self._revert()
            if lane.ask.lane not in self.lanes or self.lanes[lane.ask.lane].version != lane.version:
                # The checkpoint is older than what it was asked.
                self._report(fault._replace(why="back at the checkpoint"))
                return
            lane = self.lanes[lane.ask.lane]
        else:
            self._out.append(Restore())
        lane.tries = tries

    def _revert(self) -> None:
        """Go back to the checkpoint; if there is none, or it is damaged too, nothing is left."""
        self._out.append(Restore())
        self._busy, self.lanes, self.held = None, {}, {}
        if self._checkpoint:
            try:
                self.restore(self._checkpoint, self._now)
            except DamagedFile:
                self.lanes, self.held = {}, {}

    def _keep(self) -> None:
        if FaultKind.STORAGE_FULL not in self.faults:
            self._checkpoint = self.saved()
            self._out.append(Keep())

    def _make_room(self, fault: Trouble) -> None:
        self.held, self._checkpoint = {}, b""
        self._report(fault)

    def _wait_on(self, fault: Trouble) -> None:
        self._alone = self._alone or fault.action is Action.CONTINUE
        self._wait()

    def _rest(self, fault: Trouble) -> None:
        """Pause without a word: nobody hears it."""
        if fault.action is Action.REVERT:
            self._revert()
        self.mode = Mode.PAUSED

    def _ask_again(self, fault: Trouble) -> None:
        if self._tries < self.agreed.client_failures.retries:
            self._tries += 1
            self._repeat(fault.action)
            self._wait()
            return
        left = self._later_servers[self._standbys :] if self._change is ServerChange.STANDBYS else []
        if not left:
            self._leave(SILENT)
            return
        self._standbys += 1
        self._say_fault(left[0], FaultKind.SERVER_SILENT, Action.RETRY, (2, 2), f"node {self.server} is silent")
        self._wait()

    def _repeat(self, action: Action) -> None:
        """Send again what the server may not have got; what no trigger has released is sent now."""
        waiting = [lane for lane in self.lanes.values() if lane.answer is not None and not lane.submitted]
        for lane in waiting:
            self._submit(lane)
        lost = [lane for lane in self.lanes.values() if lane.submitted and not lane.received]
        lost = [lane for lane in lost if lane not in waiting and lane.ask.key in self._answers]
        for lane in lost if action is Action.RETRY else ():
            self._send(self._answers[lane.ask.key])
        if action is Action.REQUEST_FULL or not (waiting or lost):
            self._say_fault(self.server, FaultKind.SERVER_SILENT, action, ROW, "no global model in time")


Handlers = Mapping[Action, Callable[[ClientMachine, Trouble], None]]
_SILENCE: Handlers = {
    Action.IGNORE: ClientMachine._wait_on,
    Action.RETRY: ClientMachine._ask_again,
    Action.CONTINUE: ClientMachine._wait_on,
    Action.PAUSE: ClientMachine._rest,
    Action.REVERT: ClientMachine._rest,
    Action.REQUEST_FULL: ClientMachine._ask_again,
    Action.LEAVE: lambda machine, fault: machine._leave(SILENT),
}
_TRAINING: Handlers = {
    Action.RETRY: ClientMachine._train_again,
    Action.PAUSE: ClientMachine._pause,
    Action.REVERT: ClientMachine._train_again,
    Action.DROP: ClientMachine._skip,
    Action.REQUEST_FULL: ClientMachine._request,
    Action.LEAVE: ClientMachine._give_up,
}
_RECEIVING: Handlers = {
    Action.IGNORE: ClientMachine._ignore,
    Action.RETRY: ClientMachine._request,
    Action.PAUSE: ClientMachine._pause,
    Action.REVERT: ClientMachine._go_back,
    Action.REQUEST_FULL: ClientMachine._request,
    Action.LEAVE: ClientMachine._give_up,
}
_STORAGE: Handlers = {
    Action.IGNORE: ClientMachine._ignore,
    Action.CONTINUE: ClientMachine._ignore,
    Action.PAUSE: ClientMachine._report,
    Action.DROP: ClientMachine._make_room,
    Action.LEAVE: ClientMachine._give_up,
}
_POWER: Handlers = {action: handler for action, handler in _STORAGE.items() if action is not Action.DROP}
FAULTS: Mapping[FaultKind, tuple[str, Handlers]] = {
    FaultKind.SERVER_SILENT: ("on_timeout", _SILENCE),
    FaultKind.NON_FINITE: ("on_non_finite", _TRAINING),
    FaultKind.CORRUPT_STATE: ("on_corrupt_state", _TRAINING),
    FaultKind.STORAGE_FULL: ("on_storage_full", _STORAGE),
    FaultKind.LOW_POWER: ("on_low_power", _POWER),
    FaultKind.CORRUPT_PAYLOAD: ("on_undecodable", _RECEIVING),
    FaultKind.UNKNOWN_BASE: ("on_unknown_base", _RECEIVING),
}
"""Row 8 of table 6.2: for each fault the field with what was agreed about it, and what this package does then."""


def _finite(tensors: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in tensors.values() if array.dtype.kind == "f")
