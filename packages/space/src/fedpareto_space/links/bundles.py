"""Bundles of the Bundle Protocol version 7 (RFC 9171), written deterministically and read strictly.

Every block has a checksum, and it is looked at. Fragments are refused: hops carry bundles of any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import fastcrc

from fedpareto_space.links.refusal import Refused
from fedpareto_space.wire import cbor
from fedpareto_space.wire.refusals import ProtocolError

VERSION = 7
PAYLOAD, PREVIOUS_NODE, AGE, HOPS = 1, 6, 7, 10
"""Kinds of blocks (RFC 9171, 9.1)."""
FRAGMENT, ADMINISTRATIVE = 1, 2
"""Flags of a bundle (4.2.3)."""
DELETE_IF_UNKNOWN, DROP_IF_UNKNOWN = 16, 2
"""Flags of a block (4.2.4)."""
CRC_16, CRC_32C = 1, 2
CRC_SIZES = {CRC_16: 2, CRC_32C: 4}
IPN, DTN = 2, 1
"""Schemes of endpoints; of the second only dtn:none is known here."""
OPEN, CLOSE = 0x9F, 0xFF
"""An array of unknown length, and its end."""
LARGEST = 2**64 - 1


@dataclass(frozen=True)
class Endpoint:
    """ipn:NODE.SERVICE."""

    node: int
    service: int = 1

    def __str__(self) -> str:
        return f"ipn:{self.node}.{self.service}"


@dataclass(frozen=True)
class Block:
    """A block after the first: what kind, its number in the bundle, and what it holds."""

    kind: int
    number: int
    data: bytes
    flags: int = 0
    crc: int = CRC_32C


@dataclass(frozen=True)
class Bundle:
    """A message with all that relays need to know."""

    source: Endpoint
    destination: Endpoint
    created: int
    """Milliseconds since the beginning of 2000, or of a simulation; 0 if the source has no clock."""
    sequence: int
    """Tells apart what a source made in the same millisecond."""
    lifetime: int
    """Milliseconds."""
    blocks: tuple[Block, ...]
    """The last one is the payload."""
    report_to: Endpoint | None = None
    """None is dtn:none."""
    flags: int = 0
    crc: int = CRC_32C
    """Checksum of the primary block."""

    @property
    def identity(self) -> tuple[Endpoint, int, int]:
        return self.source, self.created, self.sequence

    @property
    def payload(self) -> bytes:
        return self.blocks[-1].data

    @property
    def age(self) -> int | None:
        return next((cbor.decode(block.data) for block in self.blocks if block.kind == AGE), None)

    @property
    def hops(self) -> tuple[int, int] | None:
        return next((tuple(cbor.decode(block.data)) for block in self.blocks if block.kind == HOPS), None)

    def told(self, kind: int, value: Any) -> Bundle:
        data, numbers = cbor.encode(value), [block.number for block in self.blocks]
        changed = tuple(replace(block, data=data) if block.kind == kind else block for block in self.blocks)
        if all(block.kind != kind for block in self.blocks):
            new = Block(kind, max(numbers) + 1, data)
            # The previous node comes first, others before the payload.
            changed = (new, *changed) if kind == PREVIOUS_NODE else (*changed[:-1], new, changed[-1])
        return replace(self, blocks=changed)


def bundle(
    source: Endpoint, destination: Endpoint, payload: bytes, created: int, sequence: int, lifetime: int, hops: int
) -> Bundle:
    blocks = (Block(AGE, 2, cbor.encode(0)), Block(HOPS, 3, cbor.encode([hops, 0])), Block(PAYLOAD, 1, payload))
    return Bundle(source, destination, created, sequence, lifetime, blocks)


def encode(whole: Bundle) -> bytes:
    ends = [_eid(end) for end in (whole.destination, whole.source, whole.report_to)]
    primary = [VERSION, whole.flags, whole.crc, *ends, [whole.created, whole.sequence], whole.lifetime]
    blocks = [[block.kind, block.number, block.flags, block.crc, block.data] for block in whole.blocks]
    kinds = [whole.crc, *(block.crc for block in whole.blocks)]
    return bytes([OPEN]) + b"".join(map(checked, [primary, *blocks], kinds)) + bytes([CLOSE])


def _eid(end: Endpoint | None) -> list[Any]:
    return [DTN, 0] if end is None else [IPN, [end.node, end.service]]


def checked(fields: list[Any], kind: int) -> bytes:
    """A block with its checksum, which is made over the block with zeros in its place."""
    size = CRC_SIZES[kind]
    empty = cbor.encode([*fields, bytes(size)])
    return empty[:-size] + _checksum(empty, kind)


def _checksum(data: bytes, kind: int) -> bytes:
    value = fastcrc.crc16.ibm_sdlc(data) if kind == CRC_16 else fastcrc.crc32.iscsi(data)
    return value.to_bytes(CRC_SIZES[kind], "big")


def decode(data: bytes) -> Bundle:
    """Read a bundle; whatever is not exactly one, whole and undamaged, is `Refused`."""
    try:
        blocks = list(_blocks(data))
    except ProtocolError as problem:
        raise Refused("bundle", f"CBOR: {problem}") from None
    if len(blocks) < 2:
        raise Refused("bundle", "fewer than two blocks")
    found = _primary(blocks[0], tuple(_block(fields) for fields in blocks[1:]))
    _consistent(found)
    if encode(found) != data:
        raise Refused("bundle", "not the one encoding that it has")
    return found


def _blocks(data: bytes) -> Iterator[list[Any]]:
    """The fields of each block, whose checksum was right."""
    if data[:1] != bytes([OPEN]):
        raise Refused("bundle", "not an array of blocks")
    place = 1
    while data[place : place + 1] != bytes([CLOSE]):
        fields, end = cbor.decode_at(data, place)
        if not isinstance(fields, list) or len(fields) < 5:
            raise Refused("bundle", "a block that is none")
        kind = _number(fields[3] if place > 1 else fields[2])
        if kind not in CRC_SIZES:
            raise Refused("bundle", "a block without a checksum")
        size, crc = CRC_SIZES[kind], fields[-1]
        if not isinstance(crc, bytes) or len(crc) != size:
            raise Refused("bundle", "a checksum of the wrong size")
        if _checksum(data[place : end - size] + bytes(size), kind) != crc:
            raise Refused("bundle", "checksum")
        yield fields[:-1]
        place = end
    if place + 1 != len(data):
        raise Refused("bundle", "something follows it")


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise Refused("bundle", "a field that is no number")
    return value


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise Refused("bundle", "a field that is no pair")
    return _number(value[0]), _number(value[1])


def _end(value: Any) -> Endpoint | None:
    if not isinstance(value, list) or len(value) != 2:
        raise Refused("bundle", "a field that is no endpoint")
    scheme = _number(value[0])
    if scheme == DTN and value[1] == 0:
        return None
    if scheme != IPN:
        raise Refused("bundle", "an endpoint of another scheme")
    return Endpoint(*_pair(value[1]))


def _primary(fields: list[Any], blocks: tuple[Block, ...]) -> Bundle:
    if _number(fields[0]) != VERSION:
        raise Refused("bundle", "version")
    if _number(fields[1]) & FRAGMENT:
        raise Refused("bundle", "a fragment")
    if len(fields) != 8:
        raise Refused("bundle", "a primary block of the wrong length")
    destination, source, report_to = (_end(field) for field in fields[3:6])
    if destination is None or source is None:
        raise Refused("bundle", "nobody's")
    created, sequence = _pair(fields[6])
    lifetime = _number(fields[7])
    return Bundle(source, destination, created, sequence, lifetime, blocks, report_to, fields[1], fields[2])


def _block(fields: list[Any]) -> Block:
    if len(fields) != 5 or not isinstance(fields[4], bytes):
        raise Refused("bundle", "a block that is none")
    kind, number, flags = map(_number, fields[:3])
    return Block(kind, number, fields[4], flags, fields[3])


def _consistent(found: Bundle) -> None:
    kinds = [block.kind for block in found.blocks]
    if kinds.count(PAYLOAD) != 1 or kinds[-1] != PAYLOAD or found.blocks[-1].number != 1:
        raise Refused("bundle", "its last block is not its payload")
    if any(kinds.count(kind) > 1 for kind in (PREVIOUS_NODE, AGE, HOPS)):
        raise Refused("bundle", "a block twice")
    numbers = [block.number for block in found.blocks]
    if len(set(numbers)) < len(numbers) or 0 in numbers:
        raise Refused("bundle", "a block's number twice")
    for block in found.blocks:
        if block.kind in (PREVIOUS_NODE, AGE, HOPS):
            try:
                value = cbor.decode(block.data)
            except ProtocolError:
                raise Refused("bundle", "a block that holds no CBOR") from None
            (_end if block.kind == PREVIOUS_NODE else _number if block.kind == AGE else _pair)(value)
        elif block.kind != PAYLOAD and block.flags & DELETE_IF_UNKNOWN:
            raise Refused("bundle", "an unknown block that matters")
    if not found.created and AGE not in kinds:
        raise Refused("bundle", "neither a time nor an age")
