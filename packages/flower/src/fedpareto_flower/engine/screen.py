"""A Grid that checks the size of a reply before it is unpacked (see arrivals), and never blocks.

A reply counts as available as soon as it is announced: Flower waits up to two hours for objects that may never arrive,
and blocks all others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import httpx
from flwr.app import Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.superlink.grid.http_grid import HttpGrid

from fedpareto_flower.engine.arrivals import FRAMING, Arrival
from fedpareto_flower.engine.wire import Malformed

FRESH = 0.02
"""Seconds for which a poll of the SuperLink need not be repeated: it covers all outstanding replies."""


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
        sent = list(messages)
        names = list(super().push_messages(sent))
        now = time.monotonic()
        self._due |= {name: now + one.metadata.ttl for name, one in zip(names, sent, strict=False) if name}
        return names

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Pull replies as Grid does. Raises if a reply cannot be unpacked safely: so pull one at a time."""
        wanted = list(message_ids)
        if not self._arrivals.keys() >= set(wanted):
            self._look()
        return [reply for one in wanted if one in self._arrivals for reply in self._opened(one)]

    def _look(self) -> None:
        """Poll once for all outstanding replies: thirty nodes would be thirty requests otherwise."""
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
        self.forget([name for name, end in self._due.items() if end < now])

    def forget(self, message_ids: Iterable[str]) -> None:
        """Replies to these messages are not wanted any more."""
        for name in message_ids:
            self._due.pop(name, None)
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
