"""A reply that would burst the server's memory is refused before it is unpacked."""

from __future__ import annotations

import json

import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError

from fedpareto.engines.flower.screen import metered, screen
from fedpareto.engines.flower.wire import Malformed


def packed(size):
    content = RecordDict({"tensors": ArrayRecord({"x": Array("uint8", (size,), "raw", b"\1" * size)})})
    return {name: one.deflate() for name, one in get_all_nested_objects(content).items()}


def with_chunks(contents, numbers):
    """The same reply, whose array names other chunks."""
    for name, content in contents.items():
        head, null, body = content.partition(b"\0")
        if head.startswith(b"Array "):
            entries = json.loads(body) | {"arraychunk_ids": numbers}
            return contents | {name: head + null + json.dumps(entries).encode()}
    raise AssertionError("no array")


def test_an_honest_reply_passes():
    screen(packed(1000), largest=1100)


def test_a_chunk_named_a_million_times_is_refused():
    with pytest.raises(Malformed, match="more than 2000000 bytes"):
        screen(with_chunks(packed(10_000), [0] * 1_000_000), largest=2_000_000)


@pytest.mark.parametrize("numbers", [[7], ["0"], None, 3, [[0]]])
def test_chunks_that_do_not_exist_are_refused(numbers):
    with pytest.raises(Malformed):
        screen(with_chunks(packed(10), numbers), largest=1000)


def test_a_download_stops_at_the_limit():
    pull = metered(lambda name: b"x" * 100, 250)
    assert len(pull("a") + pull("b")) == 200
    with pytest.raises(ObjectPullError, match="larger than 250 bytes"):
        pull("c")
