"""A message that would burst its receiver's memory is refused before it is unpacked."""

from __future__ import annotations

import json

import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError

from fedpareto_flower.engine.arrivals import MOST_OBJECTS, Arrival, screen
from fedpareto_flower.engine.link import fetched
from fedpareto_flower.engine.wire import Malformed


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


def arriving(contents, largest):
    """A reply that consists of these objects, announced but not yet here."""
    tree = ObjectTree(object_id="0" * 64, children=[ObjectTree(object_id=name) for name in contents])
    return Arrival("0" * 64, tree, largest)


def test_a_download_stops_at_the_limit():
    arrival = arriving(["a", "b", "c", "d"], 250)
    with pytest.raises(Malformed, match="larger than 250 bytes"):
        arrival.is_here(lambda name: b"x" * 100)
    assert len(arrival.contents) == 3


def test_a_reply_that_is_announced_and_does_not_come_holds_nobody_up():
    uploaded = {"0" * 64: b"root", "a": b"1"}

    def pull(name):
        if name not in uploaded:
            raise ObjectUnavailableError(name)
        return uploaded[name]

    arrival = arriving(["a", "b"], 100)
    assert not arrival.is_here(pull)
    assert not arrival.is_here(pull)
    uploaded["b"] = b"2"
    assert arrival.is_here(pull)
    assert arrival.contents == uploaded


def test_a_reply_of_too_many_objects_is_not_even_fetched():
    with pytest.raises(Malformed, match="consists of 10002 objects"):
        arriving(map(str, range(MOST_OBJECTS + 1)), 100).is_here(lambda name: pytest.fail("fetched"))


def test_a_node_screens_what_a_server_sends_and_gets_an_honest_message_as_it_was():
    message = Message(
        RecordDict({"tensors": ArrayRecord({"x": Array("uint8", (1000,), "raw", b"\1" * 1000)})}), 1, "train"
    )
    contents = {name: one.deflate() for name, one in get_all_nested_objects(message).items()}
    tree = get_object_tree(message)
    late = iter([ObjectUnavailableError(tree.object_id)])

    def pull(name, contents=contents):
        for problem in late:
            raise problem
        return contents[name]

    found = fetched(Arrival(tree.object_id, tree, 5000), pull)
    assert found.content["tensors"]["x"].data == b"\1" * 1000
    assert found.metadata.message_id == tree.object_id
    bomb = with_chunks(contents, [0] * 1_000_000)
    with pytest.raises(Malformed, match="its arrays would take more than"):
        fetched(Arrival(tree.object_id, tree, 2**23), bomb.__getitem__)
