"""The protocol data units of CFDP version 2 (CCSDS 727.0-B-5, chapter 5), written and read strictly."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import fastcrc

from fedpareto_space.links.refusal import Refused


class Condition(IntEnum):
    """Why a transaction ended, or what went wrong (table 5-5)."""

    NO_ERROR = 0
    POSITIVE_ACK_LIMIT_REACHED = 1
    KEEP_ALIVE_LIMIT_REACHED = 2
    INVALID_TRANSMISSION_MODE = 3
    FILESTORE_REJECTION = 4
    FILE_CHECKSUM_FAILURE = 5
    FILE_SIZE_ERROR = 6
    NAK_LIMIT_REACHED = 7
    INACTIVITY_DETECTED = 8
    INVALID_FILE_STRUCTURE = 9
    CHECK_LIMIT_REACHED = 10
    UNSUPPORTED_CHECKSUM_TYPE = 11
    SUSPEND_REQUEST_RECEIVED = 14
    CANCEL_REQUEST_RECEIVED = 15


class Directive(IntEnum):
    """Kinds of file directives (table 5-4)."""

    EOF = 4
    FINISHED = 5
    ACK = 6
    METADATA = 7
    NAK = 8
    PROMPT = 9
    KEEP_ALIVE = 12


class FileStatus(IntEnum):
    """Fate of the file (5.2.3)."""

    DISCARDED = 0
    REJECTED = 1
    RETAINED = 2
    UNREPORTED = 3


class TransactionStatus(IntEnum):
    """Status of the transaction at the acknowledging entity (5.2.4)."""

    UNDEFINED = 0
    ACTIVE = 1
    TERMINATED = 2
    UNRECOGNISED = 3


VERSION = 1
"""Version 2 of CFDP has the number 1 (5.1)."""
WIDTHS = (1, 2, 4, 8)
"""Bytes that node and sequence numbers may have here; the standard has 1 to 8."""
LARGEST_SMALL = 2**32 - 1
"""The largest size or offset without the large-file flag."""
CRC_SIZE = 2
FAULT_LOCATION = 6
"""Type of the TLV that names the node at fault (5.4.6)."""


@dataclass(frozen=True, slots=True)
class Header:
    """Header that all PDUs of a transaction share."""

    source: int
    number: int
    destination: int
    width: int = 1
    """Bytes of node numbers."""
    number_width: int = 2
    """Bytes of the transaction's number."""
    crc: bool = False
    large: bool = False
    acknowledged: bool = True

    @property
    def size(self) -> int:
        return 4 + 2 * self.width + self.number_width

    @property
    def transaction(self) -> tuple[int, int]:
        return self.source, self.number

    @property
    def offset_size(self) -> int:
        return 8 if self.large else 4


@dataclass(frozen=True, slots=True)
class Metadata:
    """The first PDU of a transaction: what will be sent."""

    size: int
    checksum: int
    source_name: str = ""
    destination_name: str = ""
    closure: bool = False


@dataclass(frozen=True, slots=True)
class FileData:
    """A segment of the file."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Eof:
    """All has been sent once, or the source has cancelled."""

    condition: Condition
    checksum: int
    size: int
    fault_at: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The destination is done."""

    condition: Condition
    complete: bool
    status: FileStatus
    fault_at: int | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """An EOF or a Finished has arrived."""

    of: Directive
    condition: Condition
    status: TransactionStatus


@dataclass(frozen=True, slots=True)
class Nak:
    """Missing bytes between `start` and `end`; (0, 0) is the metadata."""

    start: int
    end: int
    requests: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """A wish for a NAK, or for a Keep Alive."""

    keep_alive: bool


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Progress of the destination."""

    progress: int


Pdu = Metadata | FileData | Eof | Finished | Ack | Nak | Prompt | KeepAlive


def goes_back(pdu: Pdu) -> bool:
    """Tell whether a PDU goes to the source of the file."""
    return isinstance(pdu, Finished | Nak | KeepAlive) or (isinstance(pdu, Ack) and pdu.of == Directive.EOF)


def encode(header: Header, pdu: Pdu) -> bytes:
    body = _body(header, pdu)
    data = isinstance(pdu, FileData)
    first = (
        VERSION << 5
        | data << 4
        | goes_back(pdu) << 3
        | (not header.acknowledged) << 2
        | header.crc << 1
        | header.large
    )  # fmt: skip
    length = len(body) + (CRC_SIZE if header.crc else 0)
    whole = b"".join(
        (
            struct.pack("!BHB", first, length, (header.width - 1) << 4 | (header.number_width - 1)),
            header.source.to_bytes(header.width, "big"),
            header.number.to_bytes(header.number_width, "big"),
            header.destination.to_bytes(header.width, "big"),
            body,
        )
    )
    return whole + fastcrc.crc16.ibm_3740(whole).to_bytes(CRC_SIZE, "big") if header.crc else whole


def _body(header: Header, pdu: Pdu) -> bytes:
    wide = "Q" if header.large else "I"
    match pdu:
        case FileData(offset, data):
            return struct.pack(f"!{wide}", offset) + data
        case Metadata(size, checksum, source_name, destination_name, closure):
            start = struct.pack(f"!BB{wide}", Directive.METADATA, closure << 6 | checksum, size)
            return start + _text(source_name) + _text(destination_name)
        case Eof(condition, checksum, size, fault_at):
            start = struct.pack(f"!BBI{wide}", Directive.EOF, condition << 4, checksum, size)
            return start + _fault_location(header, fault_at)
        case Finished(condition, complete, status, fault_at):
            flags = condition << 4 | (not complete) << 2 | status
            return bytes([Directive.FINISHED, flags]) + _fault_location(header, fault_at)
        case Ack(of, condition, status):
            return bytes([Directive.ACK, of << 4 | (of == Directive.FINISHED), condition << 4 | status])
        case Nak(start_of_scope, end_of_scope, requests):
            ends = [start_of_scope, end_of_scope, *(end for request in requests for end in request)]
            return struct.pack(f"!B{len(ends)}{wide}", Directive.NAK, *ends)
        case Prompt(keep_alive):
            return bytes([Directive.PROMPT, keep_alive << 7])
        case KeepAlive(progress):
            return struct.pack(f"!B{wide}", Directive.KEEP_ALIVE, progress)


def _text(name: str) -> bytes:
    encoded = name.encode("utf-8")
    return bytes([len(encoded)]) + encoded


def _fault_location(header: Header, node: int | None) -> bytes:
    if node is None:
        return b""
    return bytes([FAULT_LOCATION, header.width]) + node.to_bytes(header.width, "big")


def requests_that_fit(header: Header, largest: int) -> int:
    room = largest - header.size - 1 - 2 * header.offset_size - (CRC_SIZE if header.crc else 0)
    return max(1, room // (2 * header.offset_size))


def decode(data: bytes) -> tuple[Header, Pdu]:
    """Read a PDU; whatever is not exactly one is `Refused`."""
    if len(data) < 4:
        raise Refused("PDU", "shorter than its header")
    first, length, widths = struct.unpack_from("!BHB", data)
    if first >> 5 != VERSION:
        raise Refused("PDU", f"version {first >> 5}")
    width, number_width = (widths >> 4 & 7) + 1, (widths & 7) + 1
    if width not in WIDTHS or number_width not in WIDTHS:
        raise Refused("PDU", f"numbers of {width} and {number_width} bytes")
    number_at, destination_at = 4 + width, 4 + width + number_width
    body_at = destination_at + width
    if len(data) != body_at + length:
        raise Refused("PDU", "its length is not the one that it tells")
    crc = bool(first & 2)
    if crc:
        if length < CRC_SIZE or fastcrc.crc16.ibm_3740(data) != 0:
            raise Refused("PDU", "checksum")
        data = data[:-CRC_SIZE]
    header = Header(
        int.from_bytes(data[4:number_at], "big"),
        int.from_bytes(data[number_at:destination_at], "big"),
        int.from_bytes(data[destination_at:body_at], "big"),
        width,
        number_width,
        crc,
        bool(first & 1),
        not first & 4,
    )
    if first & 16:
        return header, _file_data(header, data[body_at:], segment_metadata=bool(widths & 8))
    pdu = _directive(header, data[body_at:])
    if bool(first & 8) != goes_back(pdu):
        raise Refused("PDU", "it goes the wrong way")
    return header, pdu


def _file_data(header: Header, body: bytes, segment_metadata: bool) -> FileData:
    if segment_metadata:
        if not body:
            raise Refused("PDU", "no segment metadata where it is announced")
        body = body[1 + (body[0] & 63) :]
    size = header.offset_size
    if len(body) <= size:
        raise Refused("PDU", "file data without data")
    return FileData(int.from_bytes(body[:size], "big"), body[size:])


def _directive(header: Header, body: bytes) -> Pdu:
    if not body:
        raise Refused("PDU", "a directive without a code")
    reader = _READERS.get(body[0])
    if reader is None:
        raise Refused("PDU", f"directive {body[0]}")
    return reader(header, _Fields(body[1:], header.offset_size))


class _Fields:
    """The fields of a directive, one after the other."""

    def __init__(self, body: bytes, offset_size: int) -> None:
        self._body, self._at, self._offset_size = body, 0, offset_size

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._body):
            raise Refused("PDU", "a directive shorter than its fields")
        self._at += size
        return self._body[self._at - size : self._at]

    def number(self, size: int = 1) -> int:
        return int.from_bytes(self.take(size), "big")

    def offset(self) -> int:
        return self.number(self._offset_size)

    def text(self) -> str:
        try:
            return self.take(self.number()).decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("PDU", "a name that is not UTF-8") from None

    @property
    def left(self) -> int:
        return len(self._body) - self._at

    def options(self) -> dict[int, bytes]:
        """All that follows, as type, length and value; the last one of each type."""
        found = {}
        while self.left:
            kind = self.number()
            found[kind] = self.take(self.number())
        return found

    def end(self) -> None:
        if self.left:
            raise Refused("PDU", "a directive longer than its fields")


def _condition(code: int) -> Condition:
    try:
        return Condition(code)
    except ValueError:
        raise Refused("PDU", f"condition {code}") from None


def _fault_at(options: dict[int, bytes]) -> int | None:
    return int.from_bytes(options[FAULT_LOCATION], "big") if FAULT_LOCATION in options else None


def _read_metadata(header: Header, fields: _Fields) -> Metadata:
    flags, size = fields.number(), fields.offset()
    metadata = Metadata(size, flags & 15, fields.text(), fields.text(), bool(flags & 64))
    fields.options()  # messages to the user and the like mean nothing here, but must be well formed
    return metadata


def _read_eof(header: Header, fields: _Fields) -> Eof:
    condition, checksum, size = _condition(fields.number() >> 4), fields.number(4), fields.offset()
    return Eof(condition, checksum, size, _fault_at(fields.options()))


def _read_finished(header: Header, fields: _Fields) -> Finished:
    flags = fields.number()
    return Finished(_condition(flags >> 4), not flags & 4, FileStatus(flags & 3), _fault_at(fields.options()))


def _read_ack(header: Header, fields: _Fields) -> Ack:
    of, flags = fields.number() >> 4, fields.number()
    fields.end()
    if of not in (Directive.EOF, Directive.FINISHED):
        raise Refused("PDU", f"an acknowledgement of directive {of}")
    return Ack(Directive(of), _condition(flags >> 4), TransactionStatus(flags & 3))


def _read_nak(header: Header, fields: _Fields) -> Nak:
    start, end = fields.offset(), fields.offset()
    requests = []
    while fields.left:
        requests.append((fields.offset(), fields.offset()))
    if any(first > last for first, last in requests):
        raise Refused("PDU", "a request that ends before it begins")
    return Nak(start, end, tuple(requests))


def _read_prompt(header: Header, fields: _Fields) -> Prompt:
    flags = fields.number()
    fields.end()
    return Prompt(bool(flags & 128))


def _read_keep_alive(header: Header, fields: _Fields) -> KeepAlive:
    progress = fields.offset()
    fields.end()
    return KeepAlive(progress)


_READERS: dict[int, Callable[[Header, _Fields], Pdu]] = {
    Directive.METADATA: _read_metadata,
    Directive.EOF: _read_eof,
    Directive.FINISHED: _read_finished,
    Directive.ACK: _read_ack,
    Directive.NAK: _read_nak,
    Directive.PROMPT: _read_prompt,
    Directive.KEEP_ALIVE: _read_keep_alive,
}
