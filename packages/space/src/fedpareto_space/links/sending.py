"""The source's end of a CFDP class 2 transaction (CCSDS 727.0-B-5, 4.6 and 4.7), without IO or a clock."""

from __future__ import annotations

from collections import deque

from fedpareto_space.links.managed import Managed
from fedpareto_space.links.pdus import (
    Ack,
    Condition,
    Directive,
    Eof,
    FileData,
    Finished,
    Header,
    KeepAlive,
    Metadata,
    Nak,
    Pdu,
    TransactionStatus,
)
from fedpareto_space.links.ranges import Ranges
from fedpareto_space.links.stores import CHECKSUMS, Checksum, Source
from fedpareto_space.links.transactions import Ended, Outgoing, Peers, Transaction


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
        """Whether anything has been sent."""
        return self._metadata_sent

    @property
    def ready(self) -> bool:
        """Whether there is something to send."""
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
        start, end = self._asked.take(self.managed.segment) if again else self._fresh()
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

    def _fresh(self) -> tuple[int, int]:
        return self._position, min(self._position + self.managed.segment, self._size)

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
        """What was in flight when the contact ended may be lost: the EOF goes first thing."""
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
