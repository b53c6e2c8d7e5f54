"""The two ends of a CFDP class 2 transaction (CCSDS 727.0-B-5, 4.6 and 4.7), without IO or a clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Protocol

from fedpareto_space.links.managed import Handler, Managed
from fedpareto_space.links.pdus import (
    Ack,
    Condition,
    Directive,
    Eof,
    FileData,
    FileStatus,
    Finished,
    Header,
    KeepAlive,
    Metadata,
    Nak,
    Pdu,
    Prompt,
    TransactionStatus,
    requests_that_fit,
)
from fedpareto_space.links.ranges import Ranges
from fedpareto_space.links.stores import CHECKSUMS, Checksum, Sink, Source, checksum_of

Id = tuple[int, int]
"""A transaction: who began it, and its number there."""
LONGEST_QUEUE = 64
"""Answers that wait for the link to be free."""


@dataclass(frozen=True)
class Delivered:
    """An indication: the destination has the whole file, and its checksum is right."""

    transaction: Id
    peer: int
    name: str
    """The destination's name of the file."""
    sink: Sink


@dataclass(frozen=True)
class Ended:
    """An indication: a transaction is over at this end."""

    transaction: Id
    peer: int
    sending: bool
    condition: Condition
    complete: bool


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


class Peers(Protocol):
    """Knowledge of the other end of a transaction."""

    def heard(self, peer: int) -> float:
        """Return the time at which anything came from a peer last."""


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
        return (self.deadline if self._left is None else self._left) < inf

    def passed(self, now: float) -> bool:
        """Test whether the deadline has come; if so, stop waiting and count one more."""
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
        return self.acks, self.inactivity

    @property
    def frozen(self) -> bool:
        return self.link_down or self.suspended

    def next_time(self) -> float:
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
        if not self.frozen and not self.over:
            self.timed_out(now)

    def pull(self, now: float) -> Outgoing | None:
        return None if self.frozen or self.over else self.next_pdu(now)

    @abstractmethod
    def end(self, condition: Condition, complete: bool) -> None:
        """This end is closed."""

    @abstractmethod
    def cancel(self, condition: Condition, now: float) -> None:
        """Tell the other end that nothing will come of it."""

    @abstractmethod
    def resumed(self, now: float) -> None:
        """Do what comes first when the other end can be reached again."""

    @abstractmethod
    def timed_out(self, now: float) -> None:
        """Act on timers that have run out."""

    @abstractmethod
    def next_pdu(self, now: float) -> Outgoing | None:
        """Return the next PDU to send."""

    @abstractmethod
    def receive(self, pdu: Pdu, now: float) -> None:
        """Take a PDU of the other end."""


# -- the source --------------------------------------------------------------------------------------------------------


class Sending(Transaction):
    """Sends metadata, the file, what is asked for again, and the EOF; ends when the destination has finished."""

    sending = True

    def __init__(
        self, header: Header, managed: Managed, peers: Peers, source: Source, name: str, priority: int = 0
    ) -> None:
        super().__init__(header, header.destination, managed, peers)
        self.priority, self.name = priority, name
        self._source, self._size = source, source.size
        self._checksum = Checksum(CHECKSUMS[managed.checksum])
        self._position = 0
        self._asked = Ranges()
        self._metadata_due, self._metadata_sent = True, False
        self._eof_due = self._eof_sent = self._eof_acknowledged = False
        self._replies: deque[Ack] = deque()
        self._repeated: deque[tuple[float, int, int]] = deque()

    @property
    def begun(self) -> bool:
        return self._metadata_sent

    @property
    def ready(self) -> bool:
        data = self.condition is Condition.NO_ERROR and (self._asked or self._position < self._size)
        return not self.frozen and bool(self._metadata_due or data or self._eof_due or not self._eof_sent)

    def next_pdu(self, now: float) -> Outgoing | None:
        """Acknowledgements, then metadata, then what was asked for again, then new data, then the EOF."""
        if self._replies:
            return self._out(self._replies.popleft())
        if self._metadata_due:
            again, self._metadata_due, self._metadata_sent = self._metadata_sent, False, True
            return self._out(Metadata(self._size, CHECKSUMS[self.managed.checksum], self.name, self.name), again)
        if self.condition is Condition.NO_ERROR and (self._asked or self._position < self._size):
            return self._data(now)
        if self._eof_due or not self._eof_sent:
            return self._eof(now)
        return None

    def _out(self, pdu: Pdu, again: bool = False) -> Outgoing:
        return Outgoing(self.header, pdu, again)

    def _data(self, now: float) -> Outgoing | None:
        again = bool(self._asked)
        fresh = self._position, min(self._position + self.managed.segment, self._size)
        start, end = self._asked.take(self.managed.segment) if again else fresh
        try:
            data = self._source.read(start, end - start)
        except OSError:
            data = b""
        if len(data) != end - start:
            self.fault(Condition.FILESTORE_REJECTION, now)
            return self.pull(now)
        if again:
            self._repeated.append((now, start, end))
        else:
            self._checksum.update(data)
            self._position = end
        return self._out(FileData(start, data), again)

    def _eof(self, now: float) -> Outgoing:
        again, self._eof_due, self._eof_sent = self._eof_sent, False, True
        self.acks.start(now)
        self.inactivity.start(now)
        cancelled = self.condition is not Condition.NO_ERROR
        size = self._position if cancelled else self._size
        fault_at = self.header.source if cancelled else None
        return self._out(Eof(self.condition, self._checksum.value, size, fault_at), again)

    def receive(self, pdu: Pdu, now: float) -> None:
        """Take an acknowledgement, a NAK, or the destination's Finished."""
        if self.inactivity.running:
            self.inactivity.start(now)
        match pdu:
            case Ack(Directive.EOF, condition, _) if self._eof_sent and condition == self.condition:
                self.acks.stop()
                self._eof_acknowledged, self._eof_due = True, False
                if self.condition is not Condition.NO_ERROR:
                    self.end(self.condition, complete=False)
            case Nak():
                self._asked_again(pdu, now)
            case Finished(condition, complete, _):
                self._replies.append(Ack(Directive.FINISHED, condition, TransactionStatus.ACTIVE))
                self.end(condition, complete)
            case KeepAlive() | _:
                pass

    def _asked_again(self, nak: Nak, now: float) -> None:
        """Note what is missing at the destination, but for what was repeated a moment ago.

        The destination cannot have known of it yet; frames are doubled, and a NAK may have been on its way for long.
        """
        while self._repeated and self._repeated[0][0] <= now - self.managed.nak_timeout:
            self._repeated.popleft()
        on_the_way = Ranges()
        for _, start, end in self._repeated:
            on_the_way.add(start, end)
        for start, end in nak.requests:
            if start == end == 0:
                self._metadata_due = True
            for piece in on_the_way.missing(start, min(end, self._position)):
                self._asked.add(*piece)

    def timed_out(self, now: float) -> None:
        """Send the EOF again; give up after too many times, or if nothing comes for very long."""
        if self.acks.passed(now):
            if self.acks.count > self.managed.ack_limit:
                self._ack_limit_reached(now)
            else:
                self._eof_due = True
        elif self.inactivity.passed(now) and self.fault(Condition.INACTIVITY_DETECTED, now):
            self.inactivity.start(now)

    def _ack_limit_reached(self, now: float) -> None:
        self.acks.stop()
        if self.condition is not Condition.NO_ERROR:
            self.end(self.condition, complete=False)  # an EOF that cancels is not waited for a second time
        elif self.fault(Condition.POSITIVE_ACK_LIMIT_REACHED, now):
            self._eof_due = True

    def resumed(self, now: float) -> None:
        """Send the EOF first thing: what was in flight when the contact ended may be lost."""
        self._repeated.clear()
        self._eof_due = self._eof_sent and not self._eof_acknowledged
        if self._eof_due:
            self.acks.stop()

    def cancel(self, condition: Condition, now: float) -> None:
        """Send an EOF that says why; if nothing was sent yet, nobody need know."""
        if not self.begun:
            self.end(condition, complete=False)
            return
        self.condition = condition
        self._asked.clear()
        self._metadata_due, self._eof_due, self._eof_acknowledged = False, True, False
        self.acks.stop()

    def end(self, condition: Condition, complete: bool) -> None:
        """Closed; a last acknowledgement may still have to go out."""
        if not self.over:
            self.over = True
            self.indications.append(Ended(self.header.transaction, self.peer, True, condition, complete))

    def last_words(self) -> list[Outgoing]:
        """Acknowledgements that are still due after the end."""
        replies, self._replies = self._replies, deque()
        return [self._out(reply) for reply in replies]


# -- the destination ---------------------------------------------------------------------------------------------------


class Receiving(Transaction):
    """Writes what comes, asks for what does not, checks the whole, and says that it has finished."""

    sending = False

    def __init__(self, header: Header, managed: Managed, peers: Peers, sink: Sink) -> None:
        super().__init__(header, header.source, managed, peers)
        self.sink = sink
        self.naks = Timer(managed.nak_timeout)
        self._received = Ranges()
        self._metadata: Metadata | None = None
        self._eof: Eof | None = None
        self._out: deque[Pdu] = deque()
        self._nak_due = False
        self._finished: Finished | None = None
        self._finished_due = self._finished_sent = False
        self._restarts = 0

    @property
    def timers(self) -> tuple[Timer, ...]:
        return self.acks, self.inactivity, self.naks

    @property
    def named(self) -> bool:
        return self._metadata is not None

    @property
    def name(self) -> str:
        """The name under which the file is sent, once it is known."""
        return self._metadata.destination_name if self._metadata else ""

    def receive(self, pdu: Pdu, now: float) -> None:
        is_named = self.named or isinstance(pdu, Metadata)
        self.inactivity.start(now, None if is_named else min(self.managed.unnamed, self.managed.inactivity))
        match pdu:
            case FileData() if self._finished is None:
                self._data(pdu, now)
            case Metadata() if self._metadata is None and self._finished is None:
                self._begin(pdu, now)
            case Eof():
                self._end_of_file(pdu, now)
            case Ack(Directive.FINISHED) if self._finished is not None:
                self._close()
            case Prompt(keep_alive) if self._finished is None:
                if keep_alive:
                    self._say(KeepAlive(self._received.end))
                else:
                    self._nak_due = True
            case _:
                pass

    def _say(self, pdu: Pdu) -> None:
        """Put a PDU in the queue, unless it is there or the queue is long: all of it can be asked for again."""
        if len(self._out) < LONGEST_QUEUE and pdu not in self._out:
            self._out.append(pdu)

    def _begin(self, metadata: Metadata, now: float) -> None:
        self._metadata = metadata
        if metadata.size > self.managed.largest_file:
            self.fault(Condition.FILE_SIZE_ERROR, now)
        elif metadata.checksum not in CHECKSUMS.values():
            self.fault(Condition.UNSUPPORTED_CHECKSUM_TYPE, now)
        else:
            self._progress(now)

    def _data(self, segment: FileData, now: float) -> None:
        end = segment.offset + len(segment.data)
        most = self.managed.largest_file if self._eof is None else self._eof.size
        if end > most:
            self.fault(Condition.FILE_SIZE_ERROR, now)
            return
        gap = segment.offset > self._received.end
        new = self._received.missing(segment.offset, end)
        try:
            for start, stop in new:
                self.sink.write(start, segment.data[start - segment.offset : stop - segment.offset])
        except OSError:
            self.fault(Condition.FILESTORE_REJECTION, now)
            return
        if gap and self.managed.immediate_nak and self._eof is None:
            self._say(Nak(self._received.end, segment.offset, ((self._received.end, segment.offset),)))
        self._received.add(segment.offset, end)
        if new:
            self._progress(now)

    def _end_of_file(self, eof: Eof, now: float) -> None:
        """Every EOF is acknowledged: if it comes again, the first acknowledgement was lost."""
        self._say(Ack(Directive.EOF, eof.condition, TransactionStatus.ACTIVE))
        if self._finished is not None:
            return
        if eof.condition is not Condition.NO_ERROR:
            self.end(eof.condition, complete=False)
        elif self._eof is None:
            if eof.size > self.managed.largest_file or eof.size < self._received.end:
                self.fault(Condition.FILE_SIZE_ERROR, now)
                return
            self._eof = eof
            self._progress(now, delay=self.managed.nak_delay)

    def _missing(self) -> list[tuple[int, int]]:
        """Return the ranges to ask for; (0, 0) is the metadata."""
        end = self._received.end if self._eof is None else self._eof.size
        metadata = [] if self._metadata else [(0, 0)]
        return metadata + self._received.missing(0, end)

    def _progress(self, now: float, delay: float | None = None) -> None:
        """Something new has come: all is there, or what is missing will be asked for when nothing more comes."""
        if self._eof is None:
            return
        if self._metadata is None or len(self._received) < self._eof.size:
            self.naks.count = 0
            self.naks.start(now, delay)
            return
        self.naks.stop()
        self._nak_due = False
        self._check(self._metadata, self._eof, now)

    def _check(self, metadata: Metadata, eof: Eof, now: float) -> None:
        try:
            right = metadata.checksum == CHECKSUMS["null"] or eof.checksum == checksum_of(
                metadata.checksum, self.sink, eof.size
            )
        except OSError:
            self.fault(Condition.FILESTORE_REJECTION, now)
            return
        if right:
            self._finish(Finished(Condition.NO_ERROR, True, FileStatus.RETAINED))
        elif self._restarts < self.managed.checksum_retries:
            # A frame's 16-bit checksum lets one damaged frame in 65,536 through. Which one is unknown: all anew.
            self._restarts += 1
            self.sink.restart()
            self._received.clear()
            self._nak_due = True
        elif self.fault(Condition.FILE_CHECKSUM_FAILURE, now):
            self._finish(Finished(Condition.FILE_CHECKSUM_FAILURE, True, FileStatus.RETAINED))

    def _finish(self, finished: Finished) -> None:
        self._finished, self._finished_due = finished, True
        self.condition = finished.condition
        self.sink.close(finished.complete)
        if finished.complete:
            self.indications.append(Delivered(self.header.transaction, self.peer, self.name, self.sink))
        self._nak_due = False
        self.naks.stop()
        self.acks.stop()
        self._out = deque(pdu for pdu in self._out if isinstance(pdu, Ack))

    def next_pdu(self, now: float) -> Outgoing | None:
        """Acknowledgements and NAKs, then the Finished."""
        if self._nak_due:
            self._nak_due = False
            self._out.extend(self._nak_sequence())
            self.naks.start(now)
        if self._out:
            return Outgoing(self.header, self._out.popleft())
        if self._finished_due and self._finished is not None:
            again, self._finished_due, self._finished_sent = self._finished_sent, False, True
            self.acks.start(now)
            return Outgoing(self.header, self._finished, again)
        return None

    def _nak_sequence(self) -> list[Nak]:
        """As many NAKs as it takes, each with its part of the scope (4.6.4.3)."""
        missing = self._missing()
        most = requests_that_fit(self.header, self.managed.largest_pdu)
        parts = [missing[at : at + most] for at in range(0, len(missing), most)]
        end = self._received.end if self._eof is None else self._eof.size
        starts = [0, *(part[-1][1] for part in parts[:-1])]
        return [
            Nak(start, end if part is parts[-1] else part[-1][1], tuple(part))
            for start, part in zip(starts, parts, strict=False)
        ]

    def timed_out(self, now: float) -> None:
        """Ask again, say again that it has finished, or give up."""
        if self.naks.passed(now):
            self._ask_again(now)
        elif self.acks.passed(now):
            if self.acks.count <= self.managed.ack_limit:
                self._finished_due = True
            else:
                self._ack_limit_reached(now)
        elif self.inactivity.passed(now):
            if self._finished is not None:
                self._close()
            elif self.fault(Condition.INACTIVITY_DETECTED, now):
                self.inactivity.start(now)

    def _ask_again(self, now: float) -> None:
        """A sender that is heard may be busy with other files; only silence counts."""
        if self.peers.heard(self.peer) > now - self.naks.seconds:
            self.naks.count = 0
        if self.naks.count <= self.managed.nak_limit:
            self._nak_due = True
        else:
            self.naks.stop()
            if self.fault(Condition.NAK_LIMIT_REACHED, now):
                self._nak_due = True

    def _ack_limit_reached(self, now: float) -> None:
        """The file is here, but the source may never know: a fault, and the end."""
        self.acks.stop()
        if self.condition is Condition.NO_ERROR and self.fault(Condition.POSITIVE_ACK_LIMIT_REACHED, now):
            self._finished_due = True
        elif not self.over and not self.suspended:
            self._close()

    def resumed(self, now: float) -> None:
        """Send a NAK or the Finished first thing: what was in flight when the contact ended may be lost."""
        if self._finished is not None:
            self._finished_due = True
            self.acks.stop()
        elif self._eof is not None:
            self._nak_due = True
            self.naks.stop()

    def cancel(self, condition: Condition, now: float) -> None:
        """Tell the source why nothing will come of it; a file that is here already stays."""
        if self._finished is None:
            self._finish(Finished(condition, False, FileStatus.DISCARDED, self.header.destination))

    def give_up(self, now: float) -> Outgoing:
        """End the transaction, whose place is needed; return the PDU that tells the source so, once."""
        self.cancel(Condition.CANCEL_REQUEST_RECEIVED, now)
        assert self._finished is not None
        self._close()
        return Outgoing(self.header, self._finished)

    def _close(self) -> None:
        if self._finished is not None:
            self.end(self._finished.condition, self._finished.complete)

    def end(self, condition: Condition, complete: bool) -> None:
        """Closed; an acknowledgement may still have to go out."""
        if not self.over:
            self.over = True
            if self._finished is None:
                self.sink.close(complete)
            self.indications.append(Ended(self.header.transaction, self.peer, False, condition, complete))

    def last_words(self) -> list[Outgoing]:
        """Acknowledgements that are still due after the end."""
        acks, self._out = [pdu for pdu in self._out if isinstance(pdu, Ack)], deque()
        return [Outgoing(self.header, ack) for ack in acks]
