"""The destination's end of a CFDP class 2 transaction (CCSDS 727.0-B-5, 4.6 and 4.7), without IO or a clock."""

from __future__ import annotations

from collections import deque

from fedpareto_space.links.managed import Managed
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
from fedpareto_space.links.stores import CHECKSUMS, Sink, checksum_of
from fedpareto_space.links.transactions import Delivered, Ended, Outgoing, Peers, Timer, Transaction

LONGEST_QUEUE = 64
"""Answers that wait for the link to be free."""


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
        """All timers of this end."""
        return self.acks, self.inactivity, self.naks

    @property
    def named(self) -> bool:
        """Whether its metadata have come."""
        return self._metadata is not None

    @property
    def name(self) -> str:
        """The name under which the file is sent, once it is known."""
        return self._metadata.destination_name if self._metadata else ""

    def receive(self, pdu: Pdu, now: float) -> None:
        """Take a PDU of the source."""
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
        """What to ask for; (0, 0) is the metadata."""
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
        """What was in flight when the contact ended may be lost: a NAK or the Finished goes first thing."""
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
        """Its place is needed: the end here, and what tells the source so, once."""
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
