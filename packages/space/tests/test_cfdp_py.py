"""Files to and from cfdp-py, an independent implementation of CFDP."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from cfdppy import CfdpState
from cfdppy.handler import DestHandler, SourceHandler
from cfdppy.mib import (
    CheckTimerProvider,
    DefaultFaultHandlerBase,
    IndicationConfig,
    LocalEntityConfig,
    RemoteEntityConfig,
    RemoteEntityConfigTable,
)
from cfdppy.request import PutRequest
from cfdppy.user import CfdpUserBase
from spacepackets.cfdp import ChecksumType, TransmissionMode
from spacepackets.cfdp.pdu import PduFactory
from spacepackets.countdown import Countdown
from spacepackets.seqcount import SeqCountProvider
from spacepackets.util import ByteFieldU8

from fedpareto_space.links.cfdp import Entity
from fedpareto_space.links.managed import Managed
from fedpareto_space.links.pdus import Condition, FileData, decode
from fedpareto_space.links.stores import BytesSource
from fedpareto_space.links.transactions import Delivered, Ended

DATA = random.Random(22).randbytes(20_000)
KINDS = {"crc-32": ChecksumType.CRC_32, "modular": ChecksumType.MODULAR, "crc-32c": ChecksumType.CRC_32C}


class User(CfdpUserBase):
    """Notes how a transaction ended."""

    ended = None

    def transaction_finished_indication(self, params):
        self.ended = params.finished_params.condition_code

    def _nothing(self, *_):
        pass

    transaction_indication = eof_sent_indication = metadata_recv_indication = file_segment_recv_indication = _nothing
    report_indication = suspended_indication = resumed_indication = fault_indication = _nothing
    abandoned_indication = eof_recv_indication = _nothing


class Faults(DefaultFaultHandlerBase):
    """There are to be none."""

    def _fail(self, *what):
        pytest.fail(f"fault {what}")

    notice_of_suspension_cb = notice_of_cancellation_cb = abandoned_cb = ignore_cb = _fail


class Timers(CheckTimerProvider):
    """Long enough."""

    def provide_check_timer(self, *_):
        return Countdown(timedelta(seconds=1000))


def their_side(checksum, crc):
    """What both of their handlers need; they are node 2, we are node 1."""
    user = User()
    remote = RemoteEntityConfig(
        ByteFieldU8(1), 500, 1000, False, crc, TransmissionMode.ACKNOWLEDGED, KINDS[checksum]
    )  # fmt: skip
    return user, (
        LocalEntityConfig(ByteFieldU8(2), IndicationConfig(), Faults()),
        user,
        RemoteEntityConfigTable([remote]),
        Timers(),
    )


def talk(ours, theirs, lose=()):
    """Exchange PDUs until both are silent; of ours and theirs, the file data with these numbers are lost."""
    counts = {1: 0, 2: 0}

    def lost(data, node):
        counts[node] += isinstance(decode(data)[1], FileData)
        return isinstance(decode(data)[1], FileData) and counts[node] in lose

    silent = 0
    while silent < 3:
        silent += 1
        while (found := ours.pull(2, 0.0)) is not None:
            silent = 0
            if not lost(found[0], 1):
                theirs.state_machine(PduFactory.from_raw(found[0]))
                hear(ours, theirs, lost)
        theirs.state_machine()
        silent = 0 if hear(ours, theirs, lost) else silent


def hear(ours, theirs, lost):
    """Take all that they have to say; whether that was anything."""
    packets = []
    while (packet := theirs.get_next_packet()) is not None:
        packets.append(bytes(packet.pdu.pack()))
    for data in packets:
        if not lost(data, 2):
            ours.receive(data, 0.0, 2)
    if packets:
        theirs.state_machine()
        hear(ours, theirs, lost)
    return bool(packets)


@pytest.mark.parametrize("lose", [(), (3, 7)])
@pytest.mark.parametrize(("checksum", "crc"), [("crc-32", False), ("modular", True), ("crc-32c", False)])
def test_they_receive_what_we_send(tmp_path, checksum, crc, lose):
    user, given = their_side(checksum, crc)
    theirs, ours = DestHandler(*given), Entity(1, Managed(segment=500, checksum=checksum, crc=crc))
    ours.put(2, BytesSource(DATA), 0.0, name=str(tmp_path / "file"))
    talk(ours, theirs, lose)
    assert (tmp_path / "file").read_bytes() == DATA
    assert theirs.state == CfdpState.IDLE
    assert user.ended == Condition.NO_ERROR
    assert [told.condition for told in ours.indications()] == [Condition.NO_ERROR]
    assert (ours.open, ours.refused) == (0, {})


@pytest.mark.parametrize("lose", [(), (3, 7)])
@pytest.mark.parametrize(("checksum", "crc"), [("crc-32", False), ("modular", True), ("crc-32c", False)])
def test_we_receive_what_they_send(tmp_path, checksum, crc, lose):
    (tmp_path / "file").write_bytes(DATA)
    user, given = their_side(checksum, crc)
    theirs, ours = SourceHandler(*given, SeqCountProvider(16)), Entity(1)
    request = PutRequest(ByteFieldU8(1), tmp_path / "file", tmp_path / "other", TransmissionMode.ACKNOWLEDGED, False)
    theirs.put_request(request)
    talk(ours, theirs, lose)
    delivered, ended = ours.indications()
    assert isinstance(delivered, Delivered)
    assert delivered.sink.data == DATA
    assert delivered.name == str(tmp_path / "other")
    assert isinstance(ended, Ended)
    assert theirs.state == CfdpState.IDLE
    assert user.ended == Condition.NO_ERROR
    assert (ours.open, ours.refused) == (0, {})
