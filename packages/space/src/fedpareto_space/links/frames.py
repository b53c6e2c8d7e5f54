"""PDUs in space packets (CCSDS 133.0-B-2) in USLP transfer frames (CCSDS 732.1-B-2), with a checksum for each frame.

Frames have a variable length and hold one packet each. There is no retransmission at this layer: that takes COP-1, and
CFDP class 2 does it for whole files anyway. The package spacepackets makes the first frame of a node; in all others
only counts and lengths differ, so that they are written and compared as bytes, ten times as fast.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import fastcrc
from spacepackets import uslp
from spacepackets.ccsds import PacketType, SequenceFlags, SpacePacketHeader
from spacepackets.uslp.frame import FrameType

from fedpareto_space.links.refusal import Refused

APID = 2045
"""The application process that is reserved for CFDP."""
COUNT_BYTES = 2
"""Bytes of the frame count."""
COUNTS = 256**COUNT_BYTES
PACKETS = 1 << 14
"""Packets are counted with 14 bits."""
HEADERS = struct.Struct("!4s H B H B 2s H H")
"""Craft and channel, the frame's length − 1, flags, frame count, construction rule; the packet's identity, flags and
count, and its length − 1.
"""
CHECKSUM = 2
OVERHEAD = HEADERS.size + CHECKSUM
CRAFTS = 65536
"""Spacecraft identifiers have 16 bits."""
UNSEGMENTED = int(SequenceFlags.UNSEGMENTED) << 14


@lru_cache(maxsize=1024)
def _constants(craft: int) -> tuple[bytes, int, int, bytes]:
    """Return the fields that all frames of a spacecraft share: place, flags, construction rule and packet identity."""
    packet = SpacePacketHeader(PacketType.TM, APID, 0, 0, seq_flags=SequenceFlags.UNSEGMENTED).pack() + b"\0"
    field = uslp.TransferFrameDataField(
        uslp.TfdzConstructionRules.VpNoSegmentation,
        uslp.UslpProtocolIdentifier.SPACE_PACKETS_ENCAPSULATION_PACKETS,
        packet,
    )
    header = uslp.PrimaryHeader(
        scid=craft,
        src_dest=uslp.SourceOrDestField.SOURCE,
        vcid=0,
        map_id=0,
        frame_len=0,
        vcf_count_len=COUNT_BYTES,
        vcf_count=0,
        op_ctrl_flag=False,
        bypass_seq_ctrl_flag=uslp.BypassSequenceControlFlag.EXPEDITED_QOS,
        prot_ctrl_cmd_flag=uslp.ProtocolCommandFlag.USER_DATA,
    )
    frame = bytes(uslp.TransferFrame(header, field).pack(frame_type=FrameType.VARIABLE))
    place, _, flags, _, rule, identity, _, _ = HEADERS.unpack_from(frame)
    return place, flags, rule, identity


class Framer:
    """Packs PDUs of one node into frames for another, and counts them."""

    def __init__(self, node: int) -> None:
        self._constants, self._count = _constants(node % CRAFTS), 0

    def frame(self, pdu: bytes) -> bytes:
        place, flags, rule, identity = self._constants
        count, self._count = self._count, (self._count + 1) % COUNTS
        length = len(pdu) + OVERHEAD
        numbered = UNSEGMENTED | count % PACKETS
        frame = HEADERS.pack(place, length - 1, flags, count, rule, identity, numbered, len(pdu) - 1) + pdu
        return frame + fastcrc.crc16.ibm_3740(frame).to_bytes(CHECKSUM, "big")


class Deframer:
    """Takes PDUs out of the frames of one node, and sees from their count which are missing."""

    def __init__(self, node: int) -> None:
        self._constants = _constants(node % CRAFTS)
        self._expected: int | None = None
        self.missed = 0
        """Frames that had not come when a later one came."""

    def pdu(self, frame: bytes) -> bytes:
        """The PDU in a frame; what is not exactly a frame of that node is `Refused`."""
        if len(frame) <= OVERHEAD:
            raise Refused("frame", "length")
        if fastcrc.crc16.ibm_3740(frame) != 0:
            raise Refused("frame", "checksum")
        place, length, flags, count, rule, identity, numbered, packet_length = HEADERS.unpack_from(frame)
        if length + 1 != len(frame):
            raise Refused("frame", "length")
        if place != self._constants[0]:
            raise Refused("frame", "of another spacecraft or channel")
        if (flags, rule) != self._constants[1:3]:
            raise Refused("frame", "kind")
        if identity != self._constants[3] or numbered & UNSEGMENTED != UNSEGMENTED:
            raise Refused("packet", "not a whole one of CFDP")
        if packet_length + 1 != len(frame) - OVERHEAD:
            raise Refused("packet", "length")
        self._see(count)
        return frame[HEADERS.size : -CHECKSUM]

    def _see(self, count: int) -> None:
        ahead = 0 if self._expected is None else (count - self._expected) % COUNTS
        if ahead < COUNTS // 2:
            self.missed += ahead
            self._expected = (count + 1) % COUNTS
