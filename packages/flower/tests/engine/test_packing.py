"""Small tensors travel with the header, large ones as objects that nodes share; a stranger's bytes come to nothing."""

from __future__ import annotations

import json
import re
from contextlib import suppress

import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from hypothesis import given
from hypothesis import strategies as st
from memory_federation import federation_of, node_of, small
from test_wire import NONCE, an_answer, an_envelope, json_values, same_messages

from fedpareto.engines.single import Task
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.packing import BYTES, MOST, PLACES, SMALL, packed, unpacked
from fedpareto_flower.engine.wire import Envelope, Job, Malformed


def envelope_with(client, **tensors):
    return wire.encode_envelope(Envelope("f", client, NONCE, (Job(0, 1, 0, (Task(client, 1, tensors),)),)))


def message_in(content):
    return wire.decode_envelope(content).jobs[0].tasks[0].message


@given(
    shapes=st.lists(st.lists(st.integers(0, 80), max_size=3), max_size=4),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8]),
)
def test_tensors_of_every_size_come_back_and_count_the_same(shapes, dtype):
    tensors = {f"x{number}": (torch.rand(shape) * 100).to(dtype) for number, shape in enumerate(shapes)}
    content = envelope_with(0, **tensors)
    found = unpacked(packed(content))
    same_messages(message_in(found), tensors)
    assert wire.size(found) == wire.size(content)


@pytest.mark.parametrize("content", [wire.encode_envelope(an_envelope()), wire.encode_answer(an_answer())])
def test_a_message_of_small_tensors_is_two_objects_in_a_message(content):
    assert len(get_all_nested_objects(content)) >= 7
    assert len(get_all_nested_objects(packed(content))) == 2


def test_a_large_tensor_stays_an_object_that_all_nodes_share():
    model = torch.randn(SMALL // 4 + 1)
    one, other = (
        set(get_all_nested_objects(packed(envelope_with(client, model=model, weight=torch.rand(2)))))
        for client in (0, 1)
    )
    assert len(one & other) == 3, "the tensor's bytes, the tensor, and the record that holds it alone"


def test_what_has_no_small_tensors_is_left_as_it_is():
    for content in (wire.encode_greeting("f", 0, NONCE), envelope_with(0, model=torch.zeros(SMALL))):
        assert packed(content) is content
        assert unpacked(content) is content


def with_entries(**entries):
    content = packed(wire.encode_answer(an_answer()))
    return RecordDict({wire.HEADER: ConfigRecord({**content.config_records[wire.HEADER], **entries})})


def unlike_packed(kept):
    """Only one of the two entries."""
    record = packed(wire.encode_answer(an_answer())).config_records[wire.HEADER]
    return RecordDict({wire.HEADER: ConfigRecord({name: record[name] for name in (wire.HEADER, kept)})})


def beside(record, name=wire.TENSORS):
    return RecordDict(dict(with_entries().items()) | {name: record})


def described(*place):
    return with_entries(**{PLACES: json.dumps([place]), BYTES: b"\0" * 40})


TAMPERED = {
    "no bytes": ("have no bytes", lambda: with_entries(**{BYTES: "text"})),
    "too few bytes": ("announces the shape [10] and holds 3 bytes", lambda: with_entries(**{BYTES: b"abc"})),
    "too many bytes": ("944 bytes that belong to no small tensor", lambda: with_entries(**{BYTES: b"\0" * 1000})),
    "bytes alone": ("are not described", lambda: unlike_packed(BYTES)),
    "description alone": ("have no bytes", lambda: unlike_packed(PLACES)),
    "10 GB announced": ("announces the shape", lambda: described("0/0/model", "float32", [2_500_000_000])),
    "shape that overflows": ("announces the shape", lambda: described("0/0/model", "float32", [2**53] * 8)),
    "negative shape": ("an impossible shape", lambda: described("0/0/model", "float32", [-1, -10])),
    "shape of truths": ("an impossible shape", lambda: described("0/0/model", "uint8", [True])),
    "shape of floats": ("an impossible shape", lambda: described("0/0/model", "float32", [10.0])),
    "deep shape": ("an impossible shape", lambda: described("0/0/model", "float32", [1] * 50 + [10])),
    "pickled type": ("not of a known type", lambda: described("0/0/model", "object", [10])),
    "complex type": ("not of a known type", lambda: described("0/0/model", "complex64", [5])),
    "no shape": ("by its name, type and shape", lambda: described("0/0/model", "float32")),
    "long name": ("by its name, type and shape", lambda: described("m" * 10_000, "float32", [10])),
    "twice the same": (
        "the tensor 'a' twice",
        lambda: with_entries(**{PLACES: json.dumps([["a", "uint8", [20]]] * 2), BYTES: b"\0" * 40}),
    ),
    "in both forms": ("the tensor '0/0/model' twice", lambda: beside(wire.encode_answer(an_answer())[wire.TENSORS])),
    "beside another record": ("not an array record", lambda: beside(ConfigRecord({"0/0/model": b"x" * 40}))),
    "with a record more": ("records that the protocol does not know", lambda: beside(ConfigRecord({"a": 1}), "more")),
    "50,000 tensors": (
        f"a list of at most {MOST}",
        lambda: with_entries(**{PLACES: json.dumps([["", "uint8", [0]]] * 50_000)}),
    ),
    "long description": ("at too great length", lambda: with_entries(**{PLACES: " " * 2**20 + "[]"})),
    "deep JSON": ("is not JSON", lambda: with_entries(**{PLACES: "[" * 100_000})),
    "no JSON": ("is not JSON", lambda: with_entries(**{PLACES: "{"})),
    "places of bytes": ("are not described", lambda: with_entries(**{PLACES: b"[]"})),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampered_small_tensors_are_malformed_and_the_line_says_how(how):
    says, content = TAMPERED[how]
    with pytest.raises(Malformed, match=re.escape(says)) as malformed:
        unpacked(content())
    assert len(str(malformed.value)) < 400
    assert str(malformed.value).isprintable()


def test_small_tensors_count_as_others_do_for_what_the_receiver_expects():
    content = unpacked(packed(wire.encode_answer(an_answer())))
    with pytest.raises(Malformed, match="at most 10 are expected"):
        wire.decode_answer(content, wire.Limits(bytes=10))
    with pytest.raises(Malformed, match="at most 1 are expected"):
        wire.decode_answer(content, wire.Limits(tensors=1))


def test_of_very_many_small_tensors_some_stay_objects():
    tensors = {f"x{number}": torch.tensor([float(number)]) for number in range(MOST + 2)}
    content = packed(envelope_with(0, **tensors))
    assert len(content.array_records[wire.TENSORS]) == 2
    same_messages(message_in(unpacked(content)), tensors)


def test_the_server_refuses_tampered_small_tensors_by_name_and_the_round_goes_on(tmp_path):
    spec = small("fedavg", quorum=1, rounds=len(TAMPERED))
    engine, grid = federation_of(spec, tmp_path)
    state = spec.algorithm.begin(engine.settings[0])
    for says, content in TAMPERED.values():

        def tampered(node, message, reply, content=content):
            return Message(content(), reply_to=message) if node == 900 and wire.TENSORS in reply.content else reply

        grid.tamper = tampered
        outcome = engine.run(spec.algorithm.ask(state))
        (failure,) = outcome.failures
        assert failure.client == 0
        assert failure.reason.startswith("refused: ")
        assert says in failure.reason
        assert outcome.replies.clients.tolist() == [1, 2]
        state = spec.algorithm.tell(state, outcome.replies)
    assert state.round == spec.rounds


def test_a_node_refuses_tampered_small_tensors_and_answers_the_next_message(tmp_path):
    spec = small("fedavg")
    node = node_of(spec, 1, tmp_path)
    for says, content in TAMPERED.values():
        with pytest.raises(Malformed, match=re.escape(says)):
            node.exchange(content())
    asked = wire.Envelope("test", 1, NONCE, (Job(0, 1, 0, (Task(1, 1, {"model": node.settings[0].initial}),)),))
    answer = node.exchange(packed(wire.encode_envelope(asked)))
    assert wire.TENSORS not in answer, "its tensors are small"
    (result,) = wire.decode_answer(unpacked(answer)).results
    assert {"model", "size"} == result.replies[0].message.keys()


@given(places=json_values, data=st.binary(max_size=60))
def test_any_description_is_decoded_or_malformed(places, data):
    with suppress(Malformed):
        wire.decode_answer(unpacked(with_entries(**{PLACES: json.dumps(places), BYTES: data})))
