"""Messages have one encoding; whatever else is refused by name, and by its row where it has one."""

from __future__ import annotations

import dataclasses

import cbor2
import pytest

from fedpareto.space.wire import cbor, golden, messages
from fedpareto.space.wire.messages import decode, encode
from fedpareto.space.wire.refusals import ProtocolError
from fedpareto.space.wire.terms import ROWS

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
