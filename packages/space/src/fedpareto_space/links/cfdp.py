"""A CFDP entity: all transactions of one node, class 2, without IO and without a clock.

The user puts files; whoever owns the link pulls PDUs when there is room on it and hands in those that arrive. Time is
passed in. Contacts suspend and resume all transactions with a peer, and their timers.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from math import inf

from fedpareto.config.errors import UserError
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.pdus import (
    LARGEST_SMALL,
    WIDTHS,
    Ack,
    Condition,
    Directive,
    Eof,
    FileData,
    Finished,
    Header,
    Metadata,
    Pdu,
    TransactionStatus,
    decode,
    encode,
    goes_back,
)
from fedpareto_space.links.refusal import Refused
from fedpareto_space.links.stores import BytesSink, Sink, Source
from fedpareto_space.links.transactions import Id, Indication, Outgoing, Receiving, Sending

LONGEST_NAME = 255
"""Bytes of a file's name (5.1.8)."""
METADATA = 44
"""Bytes of a PDU with metadata without names, at most."""
MOST_ANSWERS = 256
"""Acknowledgements for ended and unknown transactions that wait for a link; whoever lacks one asks again."""


class Entity:
    """A CFDP entity."""

    def __init__(
        self,
        node: int,
        managed: Managed | None = None,
        open_sink: Callable[[Id], Sink] = lambda transaction: BytesSink(),
        first_number: int = 1,
    ) -> None:
        """`open_sink` says where a file that begins to arrive is written; it may come before its name."""
        self.node, self.managed = node, managed or Managed()
        self.refused: Counter[str] = Counter()
        self._open_sink, self._number = open_sink, first_number - 1
        self._sending: dict[Id, Sending] = {}
        self._receiving: dict[Id, Receiving] = {}
        self._ended: OrderedDict[Id, None] = OrderedDict()
        self._last: dict[int, deque[Outgoing]] = defaultdict(lambda: deque(maxlen=MOST_ANSWERS))
        self._down: set[int] = set()
        self._heard: dict[int, float] = {}
        self._indications: list[Indication] = []

    def put(self, to: int, source: Source, now: float, *, name: str = "message", priority: int = 0) -> Id:
        if to == self.node:
            raise UserError(f"node {to} cannot send to itself")
        longest = min(LONGEST_NAME, (self.managed.largest_pdu - METADATA) // 2)
        if not 0 < len(name.encode("utf-8")) <= longest:
            raise UserError(f"a file's name has 1 to {longest} bytes, so that it fits twice into the metadata")
        self._number += 1
        header = Header(
            self.node,
            self._number,
            to,
            width=_width(max(self.node, to)),
            number_width=max(2, _width(self._number)),
            crc=self.managed.crc,
            large=source.size > LARGEST_SMALL,
        )
        transaction = Sending(header, self.managed, self, source, name, priority)
        if to in self._down:
            transaction.freeze(now, link=True)
        self._sending[header.transaction] = transaction
        return header.transaction

    def receive(self, data: bytes, now: float, peer: int | None = None) -> None:
        """Take a PDU, of the node `peer` if the link tells; one that makes no sense is counted in `refused`."""
        try:
            header, pdu = decode(data)
            self._dispatch(header, pdu, now, peer)
        except Refused as refusal:
            self.refused[refusal.reason] += 1

    def _dispatch(self, header: Header, pdu: Pdu, now: float, peer: int | None) -> None:
        to_source = goes_back(pdu)
        here, there = (header.source, header.destination) if to_source else (header.destination, header.source)
        if here != self.node:
            raise Refused("PDU", "for another node")
        if there == self.node or (peer is not None and there != peer):
            raise Refused("PDU", "from another node")
        if not header.acknowledged:
            raise Refused("PDU", "unacknowledged mode")
        self._heard[there] = now
        transaction = self._sending.get(header.transaction) if to_source else self._received(header, pdu, there, now)
        if transaction is None:
            self._answer_for_the_unknown(header, pdu, there)
            return
        transaction.receive(pdu, now)
        transaction.tick(now)
        self._collect(transaction)

    def _received(self, header: Header, pdu: Pdu, peer: int, now: float) -> Receiving | None:
        """The transaction of a PDU from a source: a new one, unless it has ended here."""
        found = self._receiving.get(header.transaction)
        if found is not None or header.transaction in self._ended or not isinstance(pdu, Metadata | FileData | Eof):
            return found
        if isinstance(pdu, Eof) and pdu.condition is not Condition.NO_ERROR:
            return None
        if len(self._receiving) >= self.managed.most_transactions:
            self._make_room(peer, now)
        found = Receiving(header, self.managed, self, self._open_sink(header.transaction))
        if peer in self._down:
            found.freeze(now, link=True)
        self._receiving[header.transaction] = found
        return found

    def _make_room(self, peer: int, now: float) -> None:
        """Places are shared by peers: a transaction of the one that has most must go, first one without metadata and
        then the youngest; unless this peer would then have as many.
        """
        crowd = Counter(one.peer for one in self._receiving.values())
        busiest = max(crowd, key=lambda one: crowd[one])
        if crowd[busiest] < crowd[peer] + 2:
            raise Refused("PDU", "too many transactions")
        theirs = (one for one in reversed(self._receiving.values()) if one.peer == busiest)
        gone = min(theirs, key=lambda one: one.named)
        self._last[busiest].append(gone.give_up(now))
        self._collect(gone)

    def _answer_for_the_unknown(self, header: Header, pdu: Pdu, peer: int) -> None:
        """Whoever repeats an EOF or a Finished has not got our acknowledgement."""
        known = header.transaction in self._ended
        status = TransactionStatus.TERMINATED if known else TransactionStatus.UNRECOGNISED
        if isinstance(pdu, Eof | Finished):
            of = Directive.EOF if isinstance(pdu, Eof) else Directive.FINISHED
            self._last[peer].append(Outgoing(header, Ack(of, pdu.condition, status), again=True))

    def _collect(self, transaction: Sending | Receiving) -> None:
        self._indications += transaction.indications
        transaction.indications.clear()
        if transaction.over:
            self._last[transaction.peer].extend(transaction.last_words())
            table: dict[Id, Sending] | dict[Id, Receiving] = self._sending if transaction.sending else self._receiving
            table.pop(transaction.header.transaction, None)
            self._ended[transaction.header.transaction] = None
            while len(self._ended) > self.managed.remembered:
                self._ended.popitem(last=False)

    def pull(self, peer: int, now: float) -> tuple[bytes, bool] | None:
        """The next PDU for a peer, and whether it was sent before; none if there is nothing to send."""
        if peer in self._down:
            return None
        if self._last[peer]:
            outgoing = self._last[peer].popleft()
            return encode(outgoing.header, outgoing.pdu), outgoing.again
        for transaction in self._in_order(peer):
            found = transaction.pull(now)
            if transaction.over or transaction.indications:
                self._collect(transaction)
            if found is not None:
                return encode(found.header, found.pdu), found.again
        return None

    def _in_order(self, peer: int) -> list[Sending | Receiving]:
        """Put what is received first, for its PDUs are small; then what is sent, by priority and age."""
        receiving = [one for one in self._receiving.values() if one.peer == peer]
        sending = [one for one in self._sending.values() if one.peer == peer]
        if len(sending) > 1:
            sending.sort(key=lambda one: (-one.priority, one.header.number))
        return [*receiving, *sending]

    def tick(self, now: float) -> None:
        for transaction in self._all():
            if transaction.next_time() <= now:
                transaction.tick(now)
                self._collect(transaction)

    def next_time(self) -> float:
        return min((one.next_time() for one in self._all()), default=inf)

    def _all(self) -> list[Sending | Receiving]:
        return [*self._receiving.values(), *self._sending.values()]

    def link(self, peer: int, up: bool, now: float) -> None:
        """A contact with a peer begins or ends: suspend or resume its transactions, and their timers."""
        if up == (peer not in self._down):
            return
        if up:
            self._down.discard(peer)
        else:
            self._down.add(peer)
        for transaction in self._all():
            if transaction.peer == peer:
                (transaction.thaw if up else transaction.freeze)(now, link=True)

    def suspend(self, transaction: Id, now: float) -> None:
        self._find(transaction).freeze(now, link=False)

    def resume(self, transaction: Id, now: float) -> None:
        self._find(transaction).thaw(now, link=False)

    def cancel(self, transaction: Id, now: float) -> None:
        """Give up a transaction, and tell the other end; nothing happens if it has ended."""
        if transaction in self._sending or transaction in self._receiving:
            found = self._find(transaction)
            found.cancel(Condition.CANCEL_REQUEST_RECEIVED, now)
            self._collect(found)

    def _find(self, transaction: Id) -> Sending | Receiving:
        found = self._sending.get(transaction) or self._receiving.get(transaction)
        if found is None:
            raise UserError(f"there is no transaction {transaction[1]} of node {transaction[0]}, or it has ended")
        return found

    def priority(self, peer: int) -> float:
        """The highest priority of what could be sent to a peer now; below all if there is nothing."""
        ready = (one.priority for one in self._sending.values() if one.peer == peer and one.ready)
        return max(ready, default=-inf)

    def sending_to(self, peer: int) -> int:
        return sum(one.peer == peer for one in self._sending.values())

    def reaches(self, peer: int) -> bool:
        return peer not in self._down

    def heard(self, peer: int) -> float:
        return self._heard.get(peer, -inf)

    def indications(self) -> list[Indication]:
        found, self._indications = self._indications, []
        return found

    @property
    def open(self) -> int:
        return len(self._sending) + len(self._receiving)


def _width(number: int) -> int:
    """Bytes that a number needs, of those that fields may have."""
    for width in WIDTHS:
        if 0 <= number < 256**width:
            return width
    raise UserError(f"{number} is no node number; they are from 0 to 2⁶⁴ − 1")
