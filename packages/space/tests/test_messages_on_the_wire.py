"""Messages have one encoding; whatever else is refused by name, and by its row where it has one."""

from __future__ import annotations

import dataclasses

import cbor2
import numpy as np
import pytest

from fedpareto.codecs import Codec
from fedpareto_space.wire import cbor, golden, messages, payload, rows
from fedpareto_space.wire.kinds import Maybe
from fedpareto_space.wire.messages import Extension, decode, encode
from fedpareto_space.wire.negotiation import rejection
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.schema import entries
from fedpareto_space.wire.terms import ROWS

EVERY = golden.every()


def refused(data, code, place=(0, 0), **options):
    with pytest.raises(ProtocolError) as refusal:
        decode(data, **options)
    assert (refusal.value.code, refusal.value.place) == (code, place), str(refusal.value)
    return refusal.value


@pytest.mark.parametrize("name", EVERY)
def test_every_message_makes_a_round_trip_and_others_can_read_it(name):
    data = encode(EVERY[name])
    assert decode(data) == EVERY[name]
    assert encode(decode(data)) == data
    assert cbor2.loads(data) == cbor.decode(data)


def test_there_is_an_example_of_every_type():
    assert {message.type for message in EVERY.values()} == set(messages.Type) == set(messages.MESSAGES)


def test_an_offer_with_alternatives_takes_at_most_512_bytes_and_the_head_of_an_update_128():
    assert len(encode(EVERY["offer"])) <= 512
    assert max(len(EVERY["offer"].rows[row.place]) for row in ROWS) > 1
    update = EVERY["update"]
    largest = dataclasses.replace(update, sequence=2**32 - 1, client=2**32 - 1, base=2**16 - 1, round=2**16 - 1)
    assert len(encode(largest)) - len(largest.payload) <= 128


@pytest.mark.parametrize("name", EVERY)
def test_every_cut_and_every_extra_byte_is_noticed(name):
    data = encode(EVERY[name])
    for size in range(len(data)):
        refused(data[:size], Refusal.TRUNCATED)
    refused(data + b"\0", Refusal.TRAILING)


@pytest.mark.parametrize("name", EVERY)
def test_a_field_that_is_missing_unknown_or_null_is_refused_by_name(name):
    whole = cbor.decode(encode(EVERY[name]))
    optional = {entry.number for entry in entries(type(EVERY[name])) if isinstance(entry.kind, Maybe)}
    for key in list(whole[5]):
        value = whole[5].pop(key)
        if key not in optional:
            refused(cbor.encode(whole), Refusal.MISSING)
        whole[5][key] = None
        refused(cbor.encode(whole), Refusal.FORBIDDEN)
        whole[5][key] = value
    whole[5][99] = 0
    refused(cbor.encode(whole), Refusal.UNKNOWN_KEY)


def altered(name, place, value):
    whole = cbor.decode(encode(EVERY[name]))
    whole[place] = value
    return cbor.encode(whole)


def test_another_major_version_is_refused_and_another_minor_one_is_read():
    problem = refused(altered("close", 0, [2, 0]), Refusal.VERSION)
    assert str(problem) == "version 2.0 of the protocol; this is 1.0"
    assert (problem.session, problem.sequence) == (golden.SESSION, 12)
    newer = decode(altered("close", 0, [1, 7]))
    assert newer.version == (1, 7)
    assert encode(newer) == altered("close", 0, [1, 7])


@pytest.mark.parametrize(
    ("place", "value", "code"),
    [
        (0, [1], Refusal.OUT_OF_RANGE),
        (1, 11, Refusal.NOT_UNDERSTOOD),
        (1, True, Refusal.WRONG_TYPE),
        (2, b"1234567", Refusal.OUT_OF_RANGE),
        (2, "12345678", Refusal.WRONG_TYPE),
        (3, -1, Refusal.OUT_OF_RANGE),
        (4, b"1234", Refusal.OUT_OF_RANGE),
        (4, b"", Refusal.WRONG_AGREEMENT),
        (5, [], Refusal.WRONG_TYPE),
    ],
)
def test_a_head_that_is_none_is_refused_by_name(place, value, code):
    refused(altered("close", place, value), code)


def test_an_unknown_critical_extension_is_refused_with_its_row_and_any_other_is_ignored():
    close = EVERY["close"]
    harmless = dataclasses.replace(close, extensions=(Extension(7, False, 2, 6, b"x"),))
    assert decode(encode(harmless)) == harmless
    critical = dataclasses.replace(close, extensions=(Extension(7, False), Extension(9, True, 2, 6)))
    problem = refused(encode(critical), Refusal.CRITICAL_EXTENSION, (2, 6))
    assert str(problem) == "table 6.2, row 6: extension 9 must be understood, and is not"
    assert rejection(problem).place == (2, 6)
    assert decode(encode(critical), extensions={9}) == critical
    whole = cbor.decode(encode(close))
    whole[5][messages.EXTENSIONS] = []
    refused(cbor.encode(whole), Refusal.FORBIDDEN)


def test_what_was_agreed_is_named_by_every_later_message_and_by_none_before():
    for name in ("offer", "counter", "reject"):
        refused(altered(name, 4, golden.terms().id), Refusal.INCONSISTENT)
    for name in EVERY.keys() - {"offer", "counter", "reject"}:
        assert EVERY[name].agreement == golden.terms().id
        refused(altered(name, 4, b""), Refusal.WRONG_AGREEMENT)
    refused(altered("accept", 4, bytes(8)), Refusal.WRONG_AGREEMENT)


def test_a_manifest_that_is_sent_along_has_its_digest():
    update = dataclasses.replace(EVERY["update"], manifest=EVERY["global"].manifest)
    assert decode(encode(update)) == update
    with pytest.raises(ProtocolError, match="does not have its digest"):
        dataclasses.replace(update, manifest_digest=bytes(8))


def test_a_codec_has_one_spelling_on_the_wire():
    with pytest.raises(ProtocolError, match="spelled") as refusal:
        dataclasses.replace(EVERY["update"], codec="int8-delta+ccsds121")
    assert refusal.value.code is Refusal.NOT_SHORTEST
    with pytest.raises(ProtocolError) as refusal:
        dataclasses.replace(EVERY["update"], codec="int7")
    assert refusal.value.code is Refusal.NOT_UNDERSTOOD


def test_a_certified_statement_travels_and_is_not_read():
    offer = dataclasses.replace(EVERY["offer"], statement=bytes(range(256)))
    assert decode(encode(offer)).statement == bytes(range(256))


def test_a_refused_offer_is_answered_with_code_and_row():
    whole = cbor.decode(encode(EVERY["offer"]))
    del whole[5][3][1][2]
    problem = refused(cbor.encode(whole), Refusal.MISSING, (3, 2))
    answer = rejection(problem)
    assert (answer.session, answer.code, answer.place) == (golden.SESSION, Refusal.MISSING, (3, 2))
    assert decode(encode(answer)) == answer


@pytest.mark.parametrize("content", rows.Content, ids=lambda content: content.name)
@pytest.mark.parametrize("delta", ["", "-delta"])
@pytest.mark.parametrize("coder", ["", "+none", "+ccsds121", "+zstd"])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int8", "int4", "top5%"])
def test_every_content_type_and_coder_makes_a_round_trip(content, kind, coder, delta):
    codec = Codec.parse(f"{kind}{delta}{coder}")
    base = {"model": np.linspace(-1, 1, 80, dtype=np.float32)}
    sent = {"model": base["model"] ** 3, "losses": np.ones(2, np.float32)}
    manifest, data = payload.pack(sent, codec, base)
    update = dataclasses.replace(
        EVERY["update"],
        content=content,
        codec=str(codec),
        payload=data,
        manifest=manifest,
        manifest_digest=manifest.digest,
    )
    heard = decode(encode(update))
    assert (heard.content, heard.codec) == (content, str(codec))
    tensors = payload.unpack(heard.manifest, heard.payload, Codec.parse(heard.codec), base)
    np.testing.assert_array_equal(tensors["model"], codec.decoded(sent["model"], base["model"]))
    np.testing.assert_array_equal(tensors["losses"], sent["losses"])
