"""What `fuzz.py` tries of space links: frames, PDUs and bundles, also such as have right checksums."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

from fuzz_mutations import of_bytes
from fuzz_readers import Reader
from fuzz_space import ODD

from fedpareto_space.links import bundles
from fedpareto_space.links.cfdp import Entity
from fedpareto_space.links.frames import Deframer, Framer
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
    Prompt,
    TransactionStatus,
    decode,
    encode,
)
from fedpareto_space.links.refusal import Refused
from fedpareto_space.wire import cbor

PDUS = tuple(
    encode(header, pdu)
    for header in (Header(1, 9, 2), Header(1, 9, 2, width=4, crc=True, large=True))
    for pdu in (
        Metadata(4000, 3, "here", "there"),
        FileData(1024, b"weights" * 9),
        Eof(Condition.NO_ERROR, 1, 4000),
        Eof(Condition.CANCEL_REQUEST_RECEIVED, 1, 10, 1),
        Finished(Condition.NO_ERROR, True, FileStatus.RETAINED),
        Ack(Directive.FINISHED, Condition.NO_ERROR, TransactionStatus.ACTIVE),
        Nak(0, 4000, ((0, 0), (1024, 2048))),
        Prompt(True),
        KeepAlive(7),
    )
)
BUNDLE = bundles.encode(bundles.bundle(bundles.Endpoint(1), bundles.Endpoint(2), b"weights" * 9, 1, 1, 1000, 16))


def read_pdu(content: bytes) -> object:
    """Both ends of a transaction have to bear it, whatever else they are told; then its reader tells what it is."""
    for node in (1, 2):
        entity = Entity(node)
        for pdu in (PDUS[0], content, PDUS[1], content):
            entity.receive(pdu, 0.0)
        for _ in range(100):
            if entity.pull(3 - node, 0.0) is None:
                break
    return decode(content)


def of_frame(draw: random.Random, content: bytes) -> bytes:
    """Other bytes; or other ones in a frame with a right checksum."""
    if draw.random() < 0.7:
        return of_bytes(draw, content)
    return Framer(draw.choice((0, 1, 65535))).frame(of_bytes(draw, PDUS[0]) or b"\0")


def of_bundle(draw: random.Random, content: bytes) -> bytes:
    """Other bytes; or other values in blocks whose checksums are right."""
    if draw.random() < 0.3:
        return of_bytes(draw, content)
    blocks, place = [], 1
    while content[place] != bundles.CLOSE:
        fields, place = cbor.decode_at(content, place)
        blocks.append(fields[:-1])
    for _ in range(draw.choice((1, 1, 2))):
        block: list[Any] = draw.choice(blocks)
        kind = draw.randrange(4)
        if kind == 0:
            block.insert(draw.randrange(len(block) + 1), deepcopy(draw.choice(ODD)))
        elif kind == 1:
            blocks.insert(draw.randrange(len(blocks) + 1), deepcopy(draw.choice(blocks)))
        else:
            block[draw.randrange(len(block))] = deepcopy(draw.choice(ODD))
    whole = b"".join(bundles.checked(block, bundles.CRC_32C) for block in blocks)
    return bytes([bundles.OPEN]) + whole + bytes([bundles.CLOSE])


def readers(_: Path) -> list[Reader]:
    """Of frames, PDUs and bundles."""
    frame, deframer = Framer(1).frame(PDUS[1]), Deframer(1)
    return [
        Reader("frames", (frame,), of_frame, deframer.pdu, (Refused,)),
        Reader("PDUs", PDUS, of_bytes, read_pdu, (Refused,)),
        Reader("bundles", (BUNDLE,), of_bundle, bundles.decode, (Refused,)),
    ]
