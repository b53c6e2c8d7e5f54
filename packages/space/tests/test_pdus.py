"""PDUs, packets and frames: the bytes of another implementation, and a refusal by name of all that is none."""

from __future__ import annotations

import random

import pytest
from spacepackets import uslp
from spacepackets.ccsds import SpacePacketHeader
from spacepackets.cfdp import ChecksumType, ConditionCode, CrcFlag, LargeFileFlag, TransmissionMode
from spacepackets.cfdp.conf import PduConfig
from spacepackets.cfdp.defs import DeliveryCode
from spacepackets.cfdp.defs import FileStatus as TheirStatus
from spacepackets.cfdp.pdu import (
    AckPdu,
    DirectiveType,
    EofPdu,
    FileDataPdu,
    FinishedPdu,
    KeepAlivePdu,
    MetadataParams,
    MetadataPdu,
    NakPdu,
    PromptPdu,
)
from spacepackets.cfdp.pdu import TransactionStatus as TheirTransactionStatus
from spacepackets.cfdp.pdu.file_data import FileDataParams
from spacepackets.cfdp.pdu.finished import FinishedParams
from spacepackets.cfdp.pdu.prompt import ResponseRequired
from spacepackets.cfdp.tlv import EntityIdTlv
from spacepackets.uslp.frame import FrameType, VarFrameProperties
from spacepackets.util import ByteFieldGenerator

from fedpareto_space.links.cfdp import Entity
from fedpareto_space.links.frames import OVERHEAD, Deframer, Framer
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

OURS = [
    Metadata(76225, 3, "here.flp", "there.flp", True),
    FileData(4096, b"weights"),
    Eof(Condition.NO_ERROR, 0xDEADBEEF, 76225),
    Eof(Condition.CANCEL_REQUEST_RECEIVED, 1, 10, 1),
    Finished(Condition.NO_ERROR, True, FileStatus.RETAINED),
    Finished(Condition.FILE_CHECKSUM_FAILURE, False, FileStatus.DISCARDED, 2),
    Ack(Directive.EOF, Condition.NO_ERROR, TransactionStatus.ACTIVE),
    Ack(Directive.FINISHED, Condition.INACTIVITY_DETECTED, TransactionStatus.TERMINATED),
    Nak(0, 76225, ((0, 0), (1024, 4096), (8192, 9216))),
    Prompt(True),
    KeepAlive(4711),
]


def theirs(header, pdu):
    """The same PDU by spacepackets."""
    conf = PduConfig(
        ByteFieldGenerator.from_int(header.width, header.source),
        ByteFieldGenerator.from_int(header.width, header.destination),
        ByteFieldGenerator.from_int(header.number_width, header.number),
        TransmissionMode.ACKNOWLEDGED,
        LargeFileFlag(header.large),
        CrcFlag(header.crc),
    )

    def location(node):
        return None if node is None else EntityIdTlv(node.to_bytes(header.width, "big"))

    match pdu:
        case Metadata(size, checksum, source, destination, closure):
            params = MetadataParams(closure, ChecksumType(checksum), size, source, destination)
            made = MetadataPdu(conf, params)
        case FileData(offset, data):
            made = FileDataPdu(conf, FileDataParams(data, offset))
        case Eof(condition, checksum, size, fault_at):
            made = EofPdu(conf, checksum, size, location(fault_at), ConditionCode(condition))
        case Finished(condition, complete, status, fault_at):
            delivery = DeliveryCode.DATA_COMPLETE if complete else DeliveryCode.DATA_INCOMPLETE
            made = FinishedPdu(
                conf,
                FinishedParams(
                    ConditionCode(condition), delivery, TheirStatus(status), fault_location=location(fault_at)
                ),
            )
        case Ack(of, condition, status):
            made = AckPdu(conf, DirectiveType(of), ConditionCode(condition), TheirTransactionStatus(status))
        case Nak(start, end, requests):
            made = NakPdu(conf, start, end, list(requests))
        case Prompt(keep_alive):
            made = PromptPdu(conf, ResponseRequired(keep_alive))
        case KeepAlive(progress):
            made = KeepAlivePdu(conf, progress)
    return bytes(made.pack())


@pytest.mark.parametrize("pdu", OURS, ids=lambda pdu: type(pdu).__name__)
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("width", "number_width", "crc"), [(1, 2, False), (2, 4, True), (8, 8, True), (4, 1, False)])
def test_every_pdu_has_the_bytes_of_another_implementation_and_is_read_back(pdu, large, width, number_width, crc):
    header = Header(1, 200, 2, width, number_width, crc, large)
    data = encode(header, pdu)
    assert data == theirs(header, pdu)
    assert decode(data) == (header, pdu)


def test_random_bytes_as_pdus_are_refused_by_name_and_nothing_else():
    chance = random.Random(22)
    entity = Entity(2)
    whole = [encode(Header(1, 9, 2, crc=crc), pdu) for pdu in OURS for crc in (False, True)]
    refused = 0
    for number in range(3000):
        data = bytearray(chance.choice(whole) if number % 2 else chance.randbytes(chance.randrange(80)))
        for _ in range(chance.randrange(4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        data = bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)
        try:
            assert encode(*decode(data)) is not None
        except Refused:
            refused += 1
        entity.receive(data, 0.0)
        while entity.pull(1, 0.0) is not None:
            pass
    assert refused > 1500
    assert sum(entity.refused.values()) >= refused


def test_every_single_bit_of_a_pdu_with_a_checksum_counts():
    data = encode(Header(1, 9, 2, crc=True), OURS[0])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        if bit == 1:  # the flag that says there is a checksum: without it the checksum is two bytes too many
            continue
        with pytest.raises(Refused):
            decode(bytes(damaged))


def test_a_frame_is_read_by_another_implementation():
    pdu = encode(Header(1, 9, 2), OURS[1])
    framer = Framer(513)
    frames = [framer.frame(pdu) for _ in range(3)]
    properties = VarFrameProperties(has_insert_zone=False, has_fecf=True, truncated_frame_len=0)
    found = uslp.TransferFrame.unpack(frames[2], FrameType.VARIABLE, properties)
    assert (found.header.scid, found.header.vcf_count, found.header.frame_len) == (513, 2, len(frames[2]) - 1)
    packet = SpacePacketHeader.unpack(found.tfdf.tfdz)
    assert (packet.apid, packet.seq_count, packet.data_len) == (2045, 2, len(pdu) - 1)
    assert len(frames[0]) == len(pdu) + OVERHEAD
    found.has_fecf = True  # which their reader forgets
    assert bytes(found.pack(frame_type=FrameType.VARIABLE)) == frames[2]
    assert bytes(packet.pack()) + pdu == found.tfdf.tfdz


def test_lost_frames_are_seen_from_their_count():
    framer, deframer = Framer(1), Deframer(1)
    frames = [framer.frame(b"pdu") for _ in range(10)]
    for number in (0, 1, 4, 5, 5, 3, 9):
        assert deframer.pdu(frames[number]) == b"pdu"
    assert deframer.missed == 2 + 3


def test_every_damaged_bit_of_a_frame_is_seen():
    frame = Framer(1).frame(b"some data")
    for bit in range(8 * len(frame)):
        damaged = bytearray(frame)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Refused, match="frame refused"):
            Deframer(1).pdu(bytes(damaged))


def test_random_bytes_as_frames_are_refused_by_name_and_nothing_else():
    chance = random.Random(22)
    frame = Framer(1).frame(b"some data")
    for number in range(2000):
        data = bytearray(frame if number % 2 else chance.randbytes(chance.randrange(60)))
        for _ in range(chance.randrange(1, 6)):
            if data:
                data[chance.randrange(len(data))] ^= 1 + chance.randrange(255)
        data = bytes(data[: chance.randrange(len(data) + 1)] if number % 3 == 0 else data)
        with pytest.raises(Refused):
            Deframer(1).pdu(data)


def test_a_frame_of_another_spacecraft_or_with_another_packet_is_refused():
    with pytest.raises(Refused, match="another spacecraft"):
        Deframer(2).pdu(Framer(1).frame(b"pdu"))
    with pytest.raises(Refused, match="frame refused: checksum"):
        Deframer(1).pdu(Framer(1).frame(b"pdu") + b"more")
