"""Managed parameters of CFDP: what two entities have to set for each other (CCSDS 727.0-B-5, chapter 8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fedpareto.config.bounds import Bounded, Count, NotNegative, Positive, Whole
from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.links.pdus import Condition
from fedpareto_space.links.stores import CHECKSUMS


class Handler(Enum):
    """Ways to handle a fault (4.8)."""

    CANCEL = "cancel"
    SUSPEND = "suspend"
    IGNORE = "ignore"
    ABANDON = "abandon"


HANDLED = tuple(set(Condition) - {Condition.NO_ERROR, Condition.SUSPEND_REQUEST_RECEIVED})


@dataclass(frozen=True)
class Managed(Bounded):
    """Managed parameters of an entity."""

    segment: Count = 1024
    """Bytes of file data in one PDU."""
    largest_pdu: int = 1100
    """Bytes of the longest PDU; what a NAK cannot hold goes into further ones."""
    crc: bool = False
    """PDUs have a checksum of their own; frames have one already."""
    checksum: str = "crc-32"
    """Checksum of whole files: crc-32, crc-32c, modular or null."""
    ack_timeout: Positive = 10.0
    """Seconds until an EOF or a Finished that nobody acknowledged is sent again."""
    ack_limit: Whole = 60
    """Number of repetitions; at 50 % loss both ways one in thirty million acknowledgements needs more."""
    nak_timeout: Positive = 10.0
    """Seconds without new data until what is missing is asked for again."""
    nak_limit: Whole = 60
    """Requests in vain, while nothing at all is heard of the sender."""
    nak_delay: NotNegative = 0.0
    """Seconds after the EOF until the first NAK: how late data may be that overtook each other."""
    immediate_nak: bool = False
    """A gap is asked for at once, not only after the EOF."""
    inactivity: Positive = 86400.0
    """Seconds of contact without any PDU of a transaction until it is given up."""
    unnamed: Positive = 3600.0
    """Inactivity of a transaction whose metadata have not come, in seconds: anybody can begin such by a PDU."""
    checksum_retries: Whole = 2
    """Number of times that a file with a wrong checksum is asked for anew as a whole."""
    largest_file: Count = 2**28
    """Bytes of the largest file that is accepted; messages are put together in memory."""
    most_transactions: Count = 256
    """Files that may be on their way here at the same time, of all senders; if there are more, one goes of
    the sender that has most.
    """
    remembered: Whole = 4096
    """Ended transactions of which late PDUs are known as such."""
    handlers: tuple[tuple[Condition, Handler], ...] = ()
    """Pairs of a condition and its handler; all other faults cancel the transaction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.checksum not in CHECKSUMS:
            raise UnknownName("checksum", self.checksum, CHECKSUMS)
        if not self.segment + 64 <= self.largest_pdu <= 65536:
            raise UserError(
                f"largest_pdu is {self.largest_pdu}; it is at least 64 more than a segment ({self.segment}), "
                "and at most 65536"
            )
        for condition, _ in self.handlers:
            if condition not in HANDLED:
                raise UserError(f"{condition.name} is no fault; handlers are for {', '.join(c.name for c in HANDLED)}")

    def handler(self, condition: Condition) -> Handler:
        return dict(self.handlers).get(condition, Handler.CANCEL)
