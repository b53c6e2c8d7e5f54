"""Sending and fetching single messages over Flower's Grid, with every way in which that can fail as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from fedpareto_flower.engine import wire
from fedpareto_flower.engine.arrivals import FRAMING
from fedpareto_flower.engine.packing import packed, unpacked
from fedpareto_flower.engine.screen import ScreenedGrid

EXCHANGE, HELLO = "train.exchange", "query.hello"
"""Flower's types of our two messages; the client app answers both."""


class Lost(str):
    """Reasons for a missing answer where a retry may help; any other text is a refusal."""

    __slots__ = ()


class Away(Lost):
    """Nobody answered: the node is gone, its process ended, or the message expired. It may have been done or not."""

    __slots__ = ()


AWAY = frozenset(
    {
        ErrorCode.MESSAGE_UNAVAILABLE,
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
        ErrorCode.NODE_UNAVAILABLE,
        ErrorCode.CLIENT_APP_CRASHED,
    }
)
"""Errors of Flower's own, in place of an answer."""


@dataclass(frozen=True)
class Post:
    """Post that sends and fetches one message at a time.

    A list of messages is one request to Flower, which refuses it as a whole if it is too large; and one unreadable
    reply would lose the others of the same request.
    """

    grid: Grid

    def expect(self, size: int) -> None:
        """Allow replies with up to `size` bytes of tensors; the download of a larger one is aborted."""
        if isinstance(self.grid, ScreenedGrid):
            self.grid.largest = size + FRAMING

    def push(self, node: int, kind: str, content: RecordDict, patience: float) -> str:
        """Sends a message that expires after `patience` seconds; returns its id, empty if Flower did not accept it."""
        message = FlowerMessage(packed(content), node, kind, ttl=patience + 1.0)
        return next(iter(self.grid.push_messages([message])), None) or ""

    def forget(self, messages: Sequence[str]) -> None:
        """Nobody waits for their replies any more."""
        if isinstance(self.grid, ScreenedGrid):
            self.grid.forget(messages)

    def pull(self, message: str, node: int) -> RecordDict | str | None:
        """Return what the node replied, or what is wrong with it, or None if there is nothing yet."""
        if not message:
            return Away("Flower did not accept the message")
        try:
            found = list(self.grid.pull_messages([message]))
        except Exception as problem:  # Whatever untrusted bytes do to Flower's own decoder is that node's failure.
            return f"refused: its answer cannot be read ({type(problem).__name__}: {wire.printable(str(problem))})"
        return _content(found[0], message, node) if found else None


def _content(reply: FlowerMessage, message: str, node: int) -> RecordDict | str:
    if reply.metadata.reply_to_message_id != message:
        return "refused: it answers a message that was not sent"
    if reply.has_error():
        kind = Away if reply.error.code in AWAY else Lost
        return kind(f"the node failed: {wire.printable(reply.error.reason or f'code {reply.error.code}')}")
    if reply.metadata.src_node_id != node:
        return "refused: another node answered in its place"
    try:
        return unpacked(reply.content)
    except wire.Malformed as problem:
        return f"refused: {problem}"
