"""Changes told to every open page as they happen: one watch over the run folders, many streams.

Every event, and the `hello` that begins a stream, has the number of `changes` that it knows of. A page whose answer of
`/api/runs` has a smaller one has missed something between both, and asks again.
"""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from fedpareto_page.watch import Shelf

COMMENT = 15.0
"""Seconds after which a silent stream says that it is still there: some proxies close those that do not."""
RETRY = 1000
"""Milliseconds after which a browser asks for a lost stream again."""
MOST_STREAMS = 64
MOST_WAITING = 1000
"""Events that one stream may be behind. Its page then asks anew for what it shows, which is what events are for."""


class Hub:
    """The streams, and the watch that feeds them."""

    def __init__(self, shelf: Shelf, server: str) -> None:
        self._shelf, self._server = shelf, server
        self._streams: set[asyncio.Queue[str | None]] = set()

    @property
    def is_full(self) -> bool:
        return len(self._streams) >= MOST_STREAMS

    async def watch(self) -> None:
        """Looks at the folders until it is cancelled. A look that fails is printed, and the next one comes."""
        while True:
            try:
                events = await asyncio.to_thread(self._shelf.poll)
            except Exception:
                traceback.print_exc(file=sys.stderr)
                events = []
            self.tell(events)
            await asyncio.sleep(self._shelf.pause)

    def tell(self, events: list[dict[str, Any]]) -> None:
        """Sends events to all streams; a stream that nobody reads any more is closed."""
        for event in events:
            news = {name: value for name, value in event.items() if name != "event"}
            line = _written(str(event["event"]), news | {"changes": self._shelf.changes})
            for stream in list(self._streams):
                try:
                    stream.put_nowait(line)
                except asyncio.QueueFull:
                    self._close(stream)

    def close(self) -> None:
        """Ends all streams, so that the server can end."""
        for stream in list(self._streams):
            self._close(stream)

    def _close(self, stream: asyncio.Queue[str | None]) -> None:
        self._streams.discard(stream)
        with suppress(asyncio.QueueEmpty):
            while True:
                stream.get_nowait()
        stream.put_nowait(None)

    async def stream(self) -> AsyncIterator[str]:
        stream: asyncio.Queue[str | None] = asyncio.Queue(MOST_WAITING)
        self._streams.add(stream)
        try:
            yield f"retry: {RETRY}\n" + _written("hello", {"server": self._server, "changes": self._shelf.changes})
            while True:
                try:
                    async with asyncio.timeout(COMMENT):
                        line = await stream.get()
                except TimeoutError:
                    line = ": still here\n\n"
                if line is None:
                    return
                yield line
        finally:
            self._streams.discard(stream)


def _written(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
