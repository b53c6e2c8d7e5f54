"""A Grid that measures a reply before it is unpacked.

In Flower an array names its chunks by number, and may name one chunk many times: 20 MB on the wire become any number of
gigabytes in the receiver, before the first line of our own code. And nothing bounds what is downloaded.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flwr.app import Array, Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, inflate_object_from_contents, pull_objects
from flwr.superlink.grid.http_grid import HttpGrid

from fedpareto.engines.flower.wire import Malformed

LARGEST_REPLY = 2**31
MOST_OBJECTS = 10_000


class ScreenedGrid(HttpGrid):
    """Flower's Grid, but for what it does with replies. `largest` bounds a reply, packed and unpacked, in bytes."""

    largest = LARGEST_REPLY

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """See Grid.pull_messages. Raises if a reply is not fit to be unpacked: so ask for one at a time."""
        found = self._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=list(message_ids)))
        pairs = zip(found.messages_list, found.message_object_trees, strict=True)
        return [self._open(str(reply.metadata.message_id), tree) for reply, tree in pairs]

    def _open(self, message: str, tree: Any) -> Message:
        objects = {one.object_id for one in iterate_object_tree(tree)}
        if len(objects) > MOST_OBJECTS:
            raise Malformed(f"it consists of {len(objects)} objects")
        run = self.run.run_id
        pull = make_pull_object_fn_protobuf(self._runtime_client.PullObject, self.node, run)
        try:
            contents = pull_objects(sorted(objects), metered(pull, self.largest))
        finally:  # Good or bad, the SuperLink need not keep it any longer.
            done = ConfirmMessageReceivedRequest(node=self.node, run_id=run, message_object_id=message)
            self._runtime_client.ConfirmMessageReceived(done)
        screen(contents, self.largest)
        reply = inflate_object_from_contents(message, contents)
        if not isinstance(reply, Message):
            raise Malformed("it is not a message")
        reply.metadata.__dict__["_message_id"] = message
        return reply


def metered(pull: Callable[[str], bytes], largest: int) -> Callable[[str], bytes]:
    """`pull`, until all that it brought is larger than `largest` bytes."""
    total, lock = 0, threading.Lock()

    def pull_and_count(name: str) -> bytes:
        nonlocal total
        content = pull(name)
        with lock:
            total += len(content)
            if total > largest:
                raise ObjectPullError(name, f"the reply is larger than {largest} bytes")
        return content

    return pull_and_count


def screen(contents: Mapping[str, bytes], largest: int) -> None:
    """Raises Malformed if the arrays among Flower's packed objects would take more than `largest` bytes unpacked."""
    total = 0
    for content in contents.values():
        if get_object_type_from_object_content(content) == Array.__qualname__:
            total += _unpacked(content, contents, largest)
        if total > largest:
            raise Malformed(f"its arrays would take more than {largest} bytes")


def _unpacked(content: bytes, contents: Mapping[str, bytes], largest: int) -> int:
    """Bytes of an array whose chunks are among `contents`."""
    chunks = get_object_children_ids_from_object_content(content)
    total = 0
    try:
        for number in json.loads(get_object_body(content, Array))["arraychunk_ids"]:
            total += len(contents[chunks[number]])
            if total > largest:
                break
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise Malformed("it holds an array that cannot be read") from None
    return total
