"""CFDP class 2: what goes wrong on links, and in other implementations, one case at a time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from entity_pair import MANAGED, Pair
from fedpareto.config.errors import UserError
from fedpareto_space.links.cfdp import Entity
from fedpareto_space.links.managed import Handler, Managed
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
    Prompt,
    decode,
    encode,
)
from fedpareto_space.links.stores import BytesSource
from fedpareto_space.links.transactions import Delivered, Ended, Faulted

DATA = bytes(range(256)) * 4


def closed_without_error(pair, *files):
    """Whether all files are there and all transactions ended well at both ends."""
    assert pair.files == list(files)
    assert pair.open == 0
    assert pair.ends(1) == pair.ends(2) == [Condition.NO_ERROR] * len(files)
    return True


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 1024])
@pytest.mark.parametrize("checksum", ["crc-32", "crc-32c", "modular", "null"])
def test_a_file_of_any_size_arrives_and_both_ends_close(size, checksum):
    pair = Pair(Managed(segment=100, largest_pdu=200, checksum=checksum))
    pair.send(DATA[:size])
    assert closed_without_error(pair.run(), DATA[:size])
    assert pair.now == 0.0
    assert len(pair.of(FileData)) == -(-size // 100)


def lose(kind, which, **fields):
    """Lose the PDUs of a kind with these numbers."""
    return lambda pdu, count: (
        not (
            isinstance(pdu, kind)
            and count in which
            and all(getattr(pdu, name) == value for name, value in fields.items())
        )
    )


def double(kind):
    """Every PDU of a kind comes twice."""
    return lambda pdu, count: 2 if isinstance(pdu, kind) else 1


def test_metadata_that_was_lost_is_asked_for_and_data_before_it_is_kept():
    pair = Pair(fate=lose(Metadata, {0, 1}))
    pair.send(DATA)
    assert closed_without_error(pair.run(), DATA)
    assert len(pair.of(FileData)) == 11  # none was sent twice
    assert all(nak.requests == ((0, 0),) for nak in pair.of(Nak))


def test_late_metadata_after_all_data_and_the_eof_does_not_begin_anew():
    pair = Pair(fate=lambda pdu, count: not isinstance(pdu, Metadata))
    pair.send(DATA)
    pair.exchange()
    pair.fate = lambda pdu, count: 1
    assert closed_without_error(pair.run(), DATA)
    assert len(pair.of(FileData)) == 11


def test_an_out_of_order_last_segment_does_not_change_the_file():
    here, there = Entity(1, MANAGED), Entity(2, MANAGED)
    here.put(2, BytesSource(DATA), 0.0)
    pdus = []
    while (found := here.pull(2, 0.0)) is not None:
        pdus.append(found[0])
    for pdu in [*pdus[:-3], pdus[-1], pdus[-2], pdus[-3]]:
        there.receive(pdu, 0.0)
    (delivered,) = there.indications()
    assert delivered.sink.data == DATA


@pytest.mark.parametrize("order", [1, -1])
def test_any_order_of_all_pdus_gives_the_file(order):
    here, there = Entity(1, MANAGED), Entity(2, MANAGED)
    here.put(2, BytesSource(DATA), 0.0)
    pdus = []
    while (found := here.pull(2, 0.0)) is not None:
        pdus.append(found[0])
    for pdu in pdus[::order] + pdus:
        there.receive(pdu, 0.0)
    assert there.indications()[0].sink.data == DATA


@pytest.mark.parametrize("kind", [Metadata, FileData, Eof, Finished, Ack, Nak])
def test_pdus_that_come_twice_change_nothing(kind):
    pair = Pair(fate=lambda pdu, count: 2 * lose(FileData, {3})(pdu, count) if isinstance(pdu, kind) else 1)
    pair.send(DATA)
    assert closed_without_error(pair.run(), DATA)
    assert len(pair.of(FileData)) == 11 + (kind is FileData)


@pytest.mark.parametrize("kind", [Eof, Finished, Ack])
def test_a_lost_end_or_acknowledgement_is_repeated_until_it_comes(kind):
    pair = Pair(fate=lose(kind, {0, 1}))
    pair.send(DATA)
    assert closed_without_error(pair.run(), DATA)
    assert len(pair.of(kind)) >= 3


def test_an_eof_again_after_the_end_is_acknowledged_again_and_begins_nothing():
    pair = Pair()
    pair.send(DATA)
    assert closed_without_error(pair.run(), DATA)
    header = Header(1, 1, 2)
    pair.two.receive(encode(header, pair.of(Eof)[0]), pair.now)
    pair.two.receive(encode(header, pair.of(FileData)[0]), pair.now)
    pair.one.receive(encode(header, pair.of(Finished)[0]), pair.now)
    assert pair.exchange()
    assert pair.open == 0
    assert [ack.of for ack in pair.of(Ack)] == [Directive.EOF, Directive.FINISHED, Directive.FINISHED, Directive.EOF]


def test_a_nak_that_one_pdu_cannot_hold_becomes_several_within_the_limit():
    size = 20_000
    pair = Pair(fate=lambda pdu, count: not isinstance(pdu, FileData) or count % 2 == 1 or count >= 200)
    pair.send(bytes(size))
    assert closed_without_error(pair.run(), bytes(size))
    naks = pair.of(Nak)
    assert len(naks) > 3
    assert all(len(encode(Header(1, 1, 2), nak)) <= MANAGED.largest_pdu for nak in naks)
    scopes = [(nak.start, nak.end) for nak in naks]
    assert scopes[0][0] == 0
    assert scopes[-1][1] == size
    assert all(before[1] == after[0] for before, after in pairwise(scopes))
    assert len(pair.of(FileData)) == 300  # each lost one once more


def test_resuming_after_loss_of_signal_sends_the_nak_at_once():
    pair = Pair(fate=lambda pdu, count: not isinstance(pdu, FileData) or count % 2)
    pair.send(DATA)
    pair.fate = lambda pdu, count: not isinstance(pdu, Nak) and (not isinstance(pdu, FileData) or count % 2)
    pair.exchange()
    asked = len(pair.of(Nak))
    pair.link(False)
    pair.now = 5000.0
    assert not pair.exchange()
    assert pair.one.next_time() == pair.two.next_time() == float("inf")  # no timer runs while nobody hears
    pair.fate = lambda pdu, count: 1
    pair.link(True)
    pair.exchange()
    assert pair.now == 5000.0
    assert len(pair.of(Nak)) == asked + 1
    assert closed_without_error(pair, DATA)


def test_a_transfer_goes_on_where_the_contact_ended():
    pair = Pair()
    pair.send(DATA)
    for _ in range(5):
        pair._carry(pair.one.pull(2, 0.0)[0], pair.one, pair.two)
    pair.link(False)
    assert not pair.exchange()
    pair.now = 90_000.0  # longer than the inactivity limit
    pair.link(True)
    assert closed_without_error(pair.run(), DATA)
    assert len(pair.of(FileData)) == 11


@pytest.mark.parametrize("crc", [False, True])
def test_the_crc_flag_guards_every_kind_of_pdu(crc):
    pair = Pair(Managed(segment=100, largest_pdu=200, crc=crc), fate=lose(FileData, {1, 4}))
    pair.send(DATA)
    assert closed_without_error(pair.run(), DATA)
    for pdu in (pair.of(kind)[0] for kind in (Metadata, FileData, Eof, Finished, Ack, Nak)):
        data = bytearray(encode(Header(1, 7, 2, crc=crc), pdu))
        data[-1] ^= 1
        entity = Entity(1 if isinstance(pdu, Finished | Nak | Ack) else 2, MANAGED)
        entity.receive(bytes(data), 0.0)
        assert (entity.refused["checksum"] == 1) == crc


@pytest.mark.parametrize(
    ("lost", "condition", "node"),
    [
        (lambda pdu, count: not isinstance(pdu, Ack | Finished), Condition.POSITIVE_ACK_LIMIT_REACHED, 1),
        (lambda pdu, count: not isinstance(pdu, Ack | Finished), Condition.POSITIVE_ACK_LIMIT_REACHED, 2),
        (lambda pdu, count: isinstance(pdu, Metadata | Eof | Ack), Condition.NAK_LIMIT_REACHED, 2),
        (lambda pdu, count: isinstance(pdu, Metadata), Condition.INACTIVITY_DETECTED, 2),
        (lambda pdu, count: not isinstance(pdu, Finished), Condition.INACTIVITY_DETECTED, 1),
    ],
)  # fmt: skip
def test_limits_end_in_a_named_fault_and_never_in_a_hang(lost, condition, node):
    pair = Pair(fate=lost)
    pair.send(DATA)
    pair.run()
    assert pair.open == 0
    assert condition in pair.faults(node)


def test_a_fault_leads_to_what_its_handler_says():
    for handler, ends in ((Handler.ABANDON, 1), (Handler.SUSPEND, 0)):
        managed = Managed(segment=100, largest_pdu=200, handlers=((Condition.POSITIVE_ACK_LIMIT_REACHED, handler),))
        pair = Pair(managed, fate=lambda pdu, count: not isinstance(pdu, Ack | Finished))
        transaction = pair.send(DATA)
        pair.run(until=5000.0)
        assert Condition.POSITIVE_ACK_LIMIT_REACHED in pair.faults(1)
        assert len(pair.ends(1)) == ends
    pair.fate = lambda pdu, count: 1
    pair.one.resume(transaction, pair.now)
    pair.two.resume(transaction, pair.now)
    pair.run(until=5001.0)
    assert Condition.NO_ERROR in pair.ends(1)


def test_an_ignored_limit_goes_on_counting_from_nothing():
    managed = Managed(
        segment=100, largest_pdu=200, ack_limit=1, handlers=((Condition.POSITIVE_ACK_LIMIT_REACHED, Handler.IGNORE),)
    )
    pair = Pair(managed, fate=lose(Ack | Finished, range(8)))
    pair.send(DATA)
    assert closed_without_error(pair.run(), DATA)
    assert pair.faults(1).count(Condition.POSITIVE_ACK_LIMIT_REACHED) >= 2


@pytest.mark.parametrize("canceller", [1, 2])
def test_cancelling_ends_both_sides_with_the_reason(canceller):
    pair = Pair()
    transaction = pair.send(DATA)
    for _ in range(4):
        pair._carry(pair.one.pull(2, 0.0)[0], pair.one, pair.two)
    (pair.one if canceller == 1 else pair.two).cancel(transaction, 0.0)
    pair.run()
    assert pair.ends(1) == pair.ends(2) == [Condition.CANCEL_REQUEST_RECEIVED]
    assert pair.files == []
    assert len(pair.of(FileData)) <= 4


def test_cancelling_survives_loss_and_what_was_never_sent_needs_no_word():
    pair = Pair(fate=lose(Eof, {0, 1}))
    transaction = pair.send(DATA)
    for _ in range(4):
        pair._carry(pair.one.pull(2, 0.0)[0], pair.one, pair.two)
    pair.one.cancel(transaction, 0.0)
    never = pair.send(DATA)
    pair.one.cancel(never, 0.0)
    pair.run()
    assert pair.ends(1) == [Condition.CANCEL_REQUEST_RECEIVED] * 2
    assert pair.ends(2) == [Condition.CANCEL_REQUEST_RECEIVED]
    assert len(pair.of(Metadata)) == 1


def test_several_transactions_at_once_do_not_mix_and_urgent_ones_go_first():
    pair = Pair(fate=lambda pdu, count: not isinstance(pdu, FileData) or count % 3)
    files = [bytes([value]) * (500 + value) for value in range(6)]
    for number, data in enumerate(files):
        pair.send(data, name=f"file {number}", priority=number)
    pair.run()
    assert pair.open == 0
    told = {told.name: told.sink.data for told in pair.told[2] if hasattr(told, "sink")}
    assert told == {f"file {number}": data for number, data in enumerate(files)}
    assert pair.of(Metadata)[0].destination_name == "file 5"


def test_both_directions_work_at_the_same_time():
    pair = Pair()
    pair.send(DATA)
    pair.two.put(1, BytesSource(DATA[::-1]), 0.0)
    pair.run()
    assert pair.files == [DATA]
    assert [told.sink.data for told in pair.told[1] if hasattr(told, "sink")] == [DATA[::-1]]
    assert pair.open == 0


def test_immediate_naks_ask_for_a_gap_before_the_eof():
    pair = Pair(Managed(segment=100, largest_pdu=200, immediate_nak=True), fate=lose(FileData, {2}))
    pair.send(DATA)
    assert closed_without_error(pair.run(), DATA)
    order = [type(pdu) for _, pdu in pair.sent]
    assert order.index(Nak) < order.index(Eof)
    assert len(pair.of(FileData)) == 12


def test_a_prompt_is_answered_by_a_nak_or_by_how_far_it_is():
    pair = Pair(fate=lose(FileData, {2}))
    pair.send(DATA)
    for _ in range(6):
        pair._carry(pair.one.pull(2, 0.0)[0], pair.one, pair.two)
    for keep_alive in (True, False):
        pair.two.receive(encode(Header(1, 1, 2), Prompt(keep_alive)), 0.0)
    pair.run()
    assert pair.of(KeepAlive) == [KeepAlive(500)]
    assert pair.of(Nak)[0].requests == ((200, 300),)


def test_strangers_cannot_open_transactions_without_end():
    entity = Entity(2, Managed(most_transactions=5))
    for number in range(20):
        entity.receive(encode(Header(1, number, 2), FileData(0, b"x")), 0.0)
    assert entity.open == 5
    assert entity.refused == {"too many transactions": 15}


def test_one_peer_that_begins_many_transactions_does_not_shut_others_out():
    entity = Entity(2, Managed(most_transactions=8))
    for number in range(20):
        entity.receive(encode(Header(7, number, 2), FileData(0, b"x")), 0.0, 7)
    sender = Entity(8, MANAGED)
    for _ in range(6):
        sender.put(2, BytesSource(DATA), 0.0)
    while (found := sender.pull(2, 0.0)) is not None:
        entity.receive(found[0], 0.0, 8)
    told = entity.indications()
    assert [one.transaction for one in told if isinstance(one, Delivered)] == [(8, number) for number in range(1, 5)]
    assert [one.peer for one in told if isinstance(one, Ended)] == [7] * 4
    assert entity.open == 8
    (gone, _), *_ = [entity.pull(7, 0.0) for _ in range(4)]
    assert decode(gone)[1].condition is Condition.CANCEL_REQUEST_RECEIVED


def test_a_transaction_without_metadata_goes_first_and_ends_early():
    entity = Entity(2, Managed(most_transactions=3))
    entity.receive(encode(Header(7, 1, 2), Metadata(10, 3, "a", "b")), 0.0, 7)
    entity.receive(encode(Header(7, 2, 2), FileData(0, b"x")), 0.0, 7)
    entity.receive(encode(Header(7, 3, 2), Metadata(10, 3, "a", "b")), 0.0, 7)
    entity.receive(encode(Header(8, 1, 2), FileData(0, b"x")), 0.0, 8)
    assert [one.transaction for one in entity.indications()] == [(7, 2)]
    assert entity.next_time() == 3600.0
    entity.tick(3600.0)
    assert [one.transaction for one in entity.indications() if isinstance(one, Faulted)] == [(8, 1)]
    assert entity.next_time() > 3600.0


def test_a_message_that_would_not_fit_into_memory_is_refused_by_its_metadata():
    entity = Entity(2)
    entity.receive(encode(Header(7, 1, 2, large=True), Metadata(2**32, 3, "a", "b")), 0.0, 7)
    assert entity.indications()[0].condition is Condition.FILE_SIZE_ERROR


def test_whoever_repeats_himself_does_not_fill_the_memory():
    entity = Entity(2, MANAGED)
    entity.link(1, False, 0.0)
    for number in range(3000):
        entity.receive(encode(Header(1, 1, 2), Eof(Condition.NO_ERROR, 0, 10)), 0.0)
        entity.receive(encode(Header(1, number + 2, 2), Eof(Condition.CANCEL_REQUEST_RECEIVED, 0, 0)), 0.0)
    entity.link(1, True, 0.0)
    said = 0
    while entity.pull(1, 0.0) is not None:
        said += 1
    assert said == 256 + 2  # answers for the unknown; an acknowledgement, and a NAK


def test_mistakes_are_named():
    for wrong, said in (
        ({"checksum": "md5"}, "unknown checksum 'md5'"),
        ({"segment": 0}, "segment is 0"),
        ({"nak_limit": -1}, "nak_limit is -1"),
        ({"largest_pdu": 1024}, "largest_pdu is 1024"),
        ({"handlers": ((Condition.NO_ERROR, Handler.IGNORE),)}, "NO_ERROR is no fault"),
    ):
        with pytest.raises(UserError, match=said):
            Managed(**wrong)
    with pytest.raises(UserError, match="no transaction 9 of node 1"):
        Entity(1).suspend((1, 9), 0.0)
    with pytest.raises(UserError, match="1 to 255 bytes"):
        Entity(1).put(2, BytesSource(b""), 0.0, name="x" * 256)
    longest = Pair(Managed(segment=100, largest_pdu=200, crc=True))
    with pytest.raises(UserError, match="1 to 78 bytes"):
        longest.send(b"", name="x" * 79)
    longest.one = Entity(2**63, longest.one.managed, first_number=2**63)
    longest.one.put(2, BytesSource(b""), 0.0, name="x" * 78)
    assert len(longest.one.pull(2, 0.0)[0]) <= 200
