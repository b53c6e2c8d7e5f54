"""A message of Flower's that is fetched piece by piece, and unpacked only if that is safe; for both sides.

In Flower an array names its chunks by number, and may name one chunk many times: 20 MB on the wire become any number of
gigabytes in the receiver, before our own code runs. The size of a download is not limited either.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import Array, Message
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_children_ids_from_object_content,
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents

from fedpareto_flower.engine.wire import Malformed

FRAMING = 2**22
"""Bytes that a message may take beside its tensors: its header, and Flower's own framing."""
MOST_OBJECTS = 10_000


@dataclass
class Arrival:
    """A message that was announced. Its objects arrive one by one; `largest` bounds them, in bytes."""

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
        """The message itself, once it is here."""
        screen(self.contents, self.largest)
        found = inflate_object_from_contents(self.message, self.contents)
        if not isinstance(found, Message):
            raise Malformed("it is not a message")
        found.metadata.__dict__["_message_id"] = self.message
        return found


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
