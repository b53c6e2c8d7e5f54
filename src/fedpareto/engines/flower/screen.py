"""A Grid that checks the size of a reply before it is unpacked, and never blocks.

In Flower an array names its chunks by number, and may name one chunk many times: 20 MB on the wire become any number of
gigabytes in the receiver, before our own code runs. The size of a download is not limited. And a reply counts as
available as soon as it is announced: Flower waits up to two hours for objects that may never arrive, and blocks all
others.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Array, Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents
from flwr.superlink.grid.http_grid import HttpGrid

from fedpareto.engines.flower.wire import Malformed

FRAMING = 2**22
"""Bytes that a reply may take beside its tensors: its header, and Flower's own framing."""
MOST_OBJECTS = 10_000
FRESH = 0.02
"""Seconds for which a poll of the SuperLink need not be repeated: it covers all outstanding replies."""


@dataclass
class Arrival:
    """A reply that was announced. Its objects arrive one by one; `largest` bounds them, in bytes."""

    message: str
    tree: ObjectTree = field(repr=False)
    largest: int
    contents: dict[str, bytes] = field(default_factory=dict, repr=False)
    _missing: list[str] | None = field(default=None, repr=False)

    def is_here(self, pull: Callable[[str], bytes]) -> bool:
        """Fetches what is available, and says whether that is all. Raises Malformed if it is too large."""
        if self._missing is None:
            self._missing = sorted({one.object_id for one in iterate_object_tree(self.tree)})
        if len(self._missing) > MOST_OBJECTS:
            raise Malformed(f"it consists of {len(self._missing)} objects")
        while self._missing:
            name = self._missing[-1]
            try:
                self.contents[name] = pull(name)
            except ObjectUnavailableError:
                return False
            self._missing.pop()
            if sum(map(len, self.contents.values())) > self.largest:
                raise Malformed(f"it is larger than {self.largest} bytes")
        return True

    def open(self) -> Message:
        """The reply itself, once it is here."""
        screen(self.contents, self.largest)
        reply = inflate_object_from_contents(self.message, self.contents)
        if not isinstance(reply, Message):
            raise Malformed("it is not a message")
        reply.metadata.__dict__["_message_id"] = self.message
        return reply


class ScreenedGrid(HttpGrid):
    """Flower's Grid, except for its handling of replies. `largest` bounds a reply, packed and unpacked, in bytes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.largest = FRAMING
        self._due: dict[str, float] = {}
        """Deadline of the reply to each message."""
        self._arrivals: dict[str, Arrival] = {}
        """Replies that were announced, by the message that they answer."""
        self._last_look = float("-inf")

    def _connect(self) -> None:
        super()._connect()
        self._runtime_client._client.event_hooks["response"].append(self._refuse_large)

    def _refuse_large(self, response: httpx.Response) -> None:
        """Called when a response has begun and none of its body is read yet."""
        if int(response.headers.get("content-length", 0)) > self.largest:
            raise Malformed(f"it is larger than {self.largest} bytes")

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """See Grid.push_messages."""
        sent = list(messages)
        names = list(super().push_messages(sent))
        now = time.monotonic()
        self._due |= {name: now + one.metadata.ttl for name, one in zip(names, sent, strict=False) if name}
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """See Grid.pull_messages. Raises if a reply cannot be unpacked safely: so pull one at a time."""
        wanted = list(message_ids)
        if not self._arrivals.keys() >= set(wanted):
            self._look()
        return [reply for one in wanted if one in self._arrivals for reply in self._opened(one)]

    def _look(self) -> None:
        """One request for all outstanding replies: thirty nodes would be thirty requests otherwise."""
        now = time.monotonic()
        if now - self._last_look < FRESH:
            return
        self._forget_the_late(now)
        names = [name for name in self._due if name not in self._arrivals]
        found = self._runtime_client.PullMessages(PullAppMessagesRequest(message_ids=names))
        for reply, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            if reply.metadata.reply_to_message_id in self._due:
                arrival = Arrival(str(reply.metadata.message_id), tree, self.largest)
                self._arrivals[reply.metadata.reply_to_message_id] = arrival
        self._last_look = time.monotonic()

    def _forget_the_late(self, now: float) -> None:
        for name in [name for name, end in self._due.items() if end < now]:
            del self._due[name]
            if name in self._arrivals:
                self._close(name)

    def _opened(self, name: str) -> list[Message]:
        arrival = self._arrivals[name]
        pull = make_pull_object_fn_protobuf(self._runtime_client.PullObject, self.node, self.run.run_id)
        over = True
        try:
            over = arrival.is_here(pull)
            return [arrival.open()] if over else []
        finally:
            if over:
                self._close(name)

    def _close(self, name: str) -> None:
        """Valid, invalid or late: the SuperLink need not keep it any longer."""
        message = self._arrivals.pop(name).message
        self._due.pop(name, None)
        done = ConfirmMessageReceivedRequest(node=self.node, run_id=self.run.run_id, message_object_id=message)
        self._runtime_client.ConfirmMessageReceived(done)


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
