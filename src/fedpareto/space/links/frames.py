"""PDUs in space packets (CCSDS 133.0-B-2) in USLP transfer frames (CCSDS 732.1-B-2), with a checksum for each frame.

The package spacepackets writes and reads them. Frames have a variable length and hold one packet each. There is no
retransmission at this layer: that takes COP-1, and CFDP class 2 does it for whole files anyway.
"""

from __future__ import annotations

import struct

from spacepackets import uslp
from spacepackets.ccsds import SPACE_PACKET_HEADER_SIZE, PacketType, SequenceFlags, SpacePacketHeader
from spacepackets.uslp import defs
from spacepackets.uslp.frame import FrameType, VarFrameProperties

from fedpareto.space.links.refusal import Refused

APID = 2045
"""The application process that is reserved for CFDP."""
COUNT_BYTES = 2
"""Bytes of the frame count."""
OVERHEAD = 7 + COUNT_BYTES + 1 + SPACE_PACKET_HEADER_SIZE + 2
"""Bytes around a PDU: a frame's headers, a packet's header, and the frame's checksum."""
MAPS = 65536
"""Spacecraft identifiers have 16 bits."""

_PROPERTIES = VarFrameProperties(has_insert_zone=False, has_fecf=True, truncated_frame_len=0)
_REFUSALS = {
    defs.UslpChecksumError: "checksum",
    defs.UslpInvalidRawPacketOrFrameLenError: "length",
    defs.UslpVersionMissmatchError: "version",
    defs.UslpTypeMissmatchError: "kind of header",
    defs.UslpInvalidConstructionRulesError: "construction rule",
    defs.UslpInvalidFrameHeaderError: "header",
    defs.UslpTruncatedFrameNotAllowedError: "truncated",
    defs.UslpFhpVhopFieldMissingError: "pointer field",
}
"""What spacepackets raises at frames that are none."""


class Framer:
    """Packs PDUs of one node into frames for another, and counts them."""

    def __init__(self, node: int) -> None:
        self._craft, self._count = node % MAPS, 0

    def frame(self, pdu: bytes) -> bytes:
        """A PDU in a space packet in a frame."""
        packet = SpacePacketHeader(
            PacketType.TM, APID, self._count % 16384, len(pdu) - 1, seq_flags=SequenceFlags.UNSEGMENTED
        ).pack()
        field = uslp.TransferFrameDataField(
            uslp.TfdzConstructionRules.VpNoSegmentation,
            uslp.UslpProtocolIdentifier.SPACE_PACKETS_ENCAPSULATION_PACKETS,
            packet + pdu,
        )
        header = uslp.PrimaryHeader(
            scid=self._craft,
            src_dest=uslp.SourceOrDestField.SOURCE,
            vcid=0,
            map_id=0,
            frame_len=0,
            vcf_count_len=COUNT_BYTES,
            vcf_count=self._count,
            op_ctrl_flag=False,
            bypass_seq_ctrl_flag=uslp.BypassSequenceControlFlag.EXPEDITED_QOS,
            prot_ctrl_cmd_flag=uslp.ProtocolCommandFlag.USER_DATA,
        )
        frame = uslp.TransferFrame(header, field)
        frame.set_frame_len_in_header()
        self._count = (self._count + 1) % 256**COUNT_BYTES
        return bytes(frame.pack(frame_type=FrameType.VARIABLE))


class Deframer:
    """Takes PDUs out of the frames of one node, and sees from their count which are missing."""

    def __init__(self, node: int) -> None:
        self._craft = node % MAPS
        self._expected: int | None = None
        self.missed = 0
        """Frames that had not come when a later one came."""

    def pdu(self, data: bytes) -> bytes:
        """The PDU in a frame; what is not exactly a frame of that node is `Refused`."""
        frame = _read(data)
        if frame.header.scid != self._craft:
            raise Refused("frame", "of another spacecraft")
        self._see(frame.header.vcf_count)
        return _packet(frame.tfdf.tfdz)

    def _see(self, count: int) -> None:
        ahead = 0 if self._expected is None else (count - self._expected) % 256**COUNT_BYTES
        if ahead < 256**COUNT_BYTES // 2:
            self.missed += ahead
            self._expected = (count + 1) % 256**COUNT_BYTES


def _read(data: bytes) -> uslp.TransferFrame:
    try:
        frame = uslp.TransferFrame.unpack(data, FrameType.VARIABLE, _PROPERTIES)
    except tuple(_REFUSALS) as problem:
        raise Refused("frame", _REFUSALS[type(problem)]) from None
    except (ValueError, LookupError, struct.error):
        raise Refused("frame", "length") from None
    if not isinstance(frame.header, uslp.PrimaryHeader) or frame.header.vcf_count_len != COUNT_BYTES:
        raise Refused("frame", "kind of header")
    if frame.header.frame_len + 1 != len(data):
        raise Refused("frame", "length")
    if frame.tfdf.tfdz_contr_rules != uslp.TfdzConstructionRules.VpNoSegmentation or frame.tfdf.uslp_ident != 0:
        raise Refused("frame", "construction rule")
    return frame


def _packet(data: bytes) -> bytes:
    if len(data) <= SPACE_PACKET_HEADER_SIZE:
        raise Refused("packet", "length")
    identity, control, length = struct.unpack_from("!HHH", data)
    if identity >> 13 or identity & 0x7FF != APID or identity & 0x800:
        raise Refused("packet", "not of CFDP")
    if control >> 14 != SequenceFlags.UNSEGMENTED or len(data) != SPACE_PACKET_HEADER_SIZE + length + 1:
        raise Refused("packet", "length")
    return data[SPACE_PACKET_HEADER_SIZE:]
