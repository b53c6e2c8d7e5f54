"""What a client does about each fault, as row 8 of table 6.2 says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from fedpareto.config.errors import DamagedFile
from fedpareto_space.session.client_state import WAIT, ClientState, Lane, Mode
from fedpareto_space.session.events import Keep, Leave, Restore, Send, SetTimer, Told
from fedpareto_space.session.voice import digest
from fedpareto_space.wire import messages
from fedpareto_space.wire.kinds import spelled
from fedpareto_space.wire.negotiation import fitting
from fedpareto_space.wire.refusals import NOWHERE, Place, Refusal
from fedpareto_space.wire.rows import Action, ServerChange
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason

ROW = (2, 8)


@dataclass
class ClientFaults(ClientState, ABC):
    """See the module."""

    def _act(self, kind: FaultKind, action: Action, why: str, lane: Lane | None = None) -> None:
        """Does what was agreed about a fault of a global model or of the local one."""
        self._out.append(Told(kind, spelled(action), why))
        if action in (Action.RETRY, Action.REVERT) and lane is not None:
            self._try_again(kind, action, lane)
        elif action is Action.PAUSE:
            self.mode = Mode.PAUSED
            self._say_fault(self.server, kind, action, ROW, why)
        elif action is Action.REVERT:
            self._revert()
            self._say_fault(self.server, kind, action, ROW, why)
        elif action in (Action.REQUEST_FULL, Action.RETRY):
            if lane is not None:
                self.lanes.pop(lane.ask.lane, None)
            self._say_fault(self.server, kind, action, ROW, why)
            self._wait()
        elif action is Action.DROP and lane is not None:
            lane.submitted = True
            self._say_fault(self.server, kind, action, ROW, why)
            self._wait()
        elif action is Action.LEAVE:
            self._leave(f"{spelled(kind)}: {why}")

    def _try_again(self, kind: FaultKind, action: Action, lane: Lane) -> None:
        """Trains once more: from where it began, or from the checkpoint."""
        if lane.tries >= self.agreed.client_failures.retries:
            self._leave(f"{spelled(kind)} again after {lane.tries} retries")
            return
        tries = lane.tries + 1
        if action is Action.REVERT:
            self._revert()
            if lane.ask.lane not in self.lanes or self.lanes[lane.ask.lane].version != lane.version:
                # The checkpoint is older than what it was asked.
                self._say_fault(self.server, kind, action, ROW, "back at the checkpoint")
                return
            lane = self.lanes[lane.ask.lane]
        else:
            self._out.append(Restore())
        lane.tries = tries

    def _revert(self) -> None:
        """Back to the checkpoint; if there is none, or it is damaged too, nothing is left."""
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

    def _ill(self, fault: FaultKind) -> None:
        """Storage is full, or power is low."""
        if self.terms is None:
            return
        failures = self.agreed.client_failures
        action = failures.on_storage_full if fault is FaultKind.STORAGE_FULL else failures.on_low_power
        self.faults.add(fault)
        self._out.append(Told(fault, spelled(action)))
        if action is Action.DROP:
            self.held, self._checkpoint = {}, b""
        if action in (Action.DROP, Action.PAUSE):
            self._say_fault(self.server, fault, action, ROW, "")
        if action is Action.LEAVE:
            self._leave(spelled(fault))

    # -- the server ------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """How long from now on."""
        failures = self.agreed.client_failures
        self._out.append(SetTimer(WAIT, self._now + failures.timeout * failures.backoff**self._tries))

    def _waited(self) -> None:
        """No global model came in time; or nothing made this client submit."""
        if self.terms is None or self.mode is Mode.PAUSED:
            return
        failures = self.agreed.client_failures
        if self._busy is not None and self._busy.progress.steps == 0:
            self._wait()  # It is still at its first step: nobody else is late.
            return
        action = failures.on_timeout
        self._out.append(Told(FaultKind.SERVER_SILENT, spelled(action), f"waited {self._tries + 1} times"))
        if action in (Action.RETRY, Action.REQUEST_FULL):
            self._ask_again(action)
        elif action is Action.CONTINUE:
            self._alone = True
            self._wait()
        elif action in (Action.PAUSE, Action.REVERT):
            if action is Action.REVERT:
                self._revert()
            self.mode = Mode.PAUSED
        elif action is Action.LEAVE:
            self._leave("the server is silent")
        else:
            self._wait()

    def _ask_again(self, action: Action) -> None:
        if self._tries < self.agreed.client_failures.retries:
            self._tries += 1
            self._repeat(action)
            self._wait()
            return
        servers = [one.node for one in self.agreed.servers]
        later = servers[servers.index(self.server) + 1 :] if self.server in servers else []
        left = later[self._standbys :] if self._change is ServerChange.STANDBYS else []
        if not left:
            self._leave("the server is silent")
            return
        self._standbys += 1
        self._say_fault(left[0], FaultKind.SERVER_SILENT, Action.RETRY, (2, 2), f"node {self.server} is silent")
        self._wait()

    def _repeat(self, action: Action) -> None:
        """Sends again what the server may not have got; what no trigger has released is sent now."""
        waiting = [lane for lane in self.lanes.values() if lane.answer is not None and not lane.submitted]
        for lane in waiting:
            self._submit(lane)
        lost = [lane for lane in self.lanes.values() if lane.submitted and not lane.received]
        lost = [lane for lane in lost if lane not in waiting and lane.ask.key in self._answers]
        for lane in lost if action is Action.RETRY else ():
            self._send(self._answers[lane.ask.key])
        if action is Action.REQUEST_FULL or not (waiting or lost):
            self._say_fault(self.server, FaultKind.SERVER_SILENT, action, ROW, "no global model in time")

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
        """Whether a node may be the server: a stand-by after the present one, or whoever proves who it is."""
        servers = [one.node for one in self.agreed.servers]
        later = servers[servers.index(self.server) + 1 :] if self.server in servers else []
        match self._change:
            case ServerChange.STANDBYS:
                return source in (node, self.server) and node in later
            case ServerChange.SIGNED:
                return self.verify(source, data)
        return False

    @property
    def _change(self) -> ServerChange:
        return self.agreed.client_failures.on_server_change

    # -- saying so -------------------------------------------------------------------------------------------------

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
        """Tells the server what this client holds: the next global model may build on it."""
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

    @abstractmethod
    def _submit(self, lane: Lane) -> None:
        """Hands in what the lane has learnt."""
