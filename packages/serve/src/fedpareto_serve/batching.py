"""Requests that arrive together go through the network together, each under its own preference. No request waits for
others: a batch is what has arrived by then. A single request goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fedpareto_serve.models import Servable
from fedpareto_serve.predictions import Predictions, Request, predict_each

T = TypeVar("T")
MOST_ROWS_AT_ONCE = 256
"""Rows that are predicted at once, between two polls of the connections: a few milliseconds. A longer request has its
own thread, so that short ones need not wait for it.
"""


class Batcher:
    """Predicts for requests as they arrive. All of it happens on one event loop."""

    def __init__(self, noted: Callable[[int, int], None]) -> None:
        self._noted = noted
        self._waiting: dict[Servable, list[tuple[Request, asyncio.Future[Predictions]]]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predict")

    async def predict(self, model: Servable, request: Request) -> Predictions:
        """The answer to one request; raises UserError where it has none."""
        if len(request.rows) > MOST_ROWS_AT_ONCE:
            found = (await self.aside(lambda: self._together(model, [request])))[0]
            if isinstance(found, Predictions):
                return found
            raise found
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Predictions] = loop.create_future()
        if not self._waiting:
            # Tasks of connections that have been read are due before this is.
            loop.call_soon(self._flush)
        self._waiting.setdefault(model, []).append((request, answer))
        return await answer

    async def aside(self, work: Callable[[], T]) -> T:
        """Do long work, while the loop goes on."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for model, entries in waiting.items():
            for batch in _cut(entries):
                found = self._together(model, [request for request, _ in batch])
                for (_, answer), one in zip(batch, found, strict=True):
                    if answer.done():  # Its client has disconnected.
                        continue
                    if isinstance(one, Predictions):
                        answer.set_result(one)
                    else:
                        answer.set_exception(one)

    def _together(self, model: Servable, requests: Sequence[Request]) -> list[Predictions | Exception]:
        try:
            found: list[Predictions | Exception] = list(predict_each(model, requests))
        except Exception as problem:  # An internal error is reported to every waiting request.
            return [problem] * len(requests)
        answered = [
            len(request.rows) for request, one in zip(requests, found, strict=True) if isinstance(one, Predictions)
        ]
        if answered:  # What was refused did not go through the network.
            self._noted(len(answered), sum(answered))
        return found


def _cut(entries: list[tuple[Request, Any]]) -> list[list[tuple[Request, Any]]]:
    """Cut entries into batches of at most MOST_ROWS_AT_ONCE rows."""
    batches: list[list[tuple[Request, Any]]] = []
    rows = MOST_ROWS_AT_ONCE
    for entry in entries:
        count = len(entry[0].rows)
        if rows + count > MOST_ROWS_AT_ONCE:
            batches.append([])
            rows = 0
        batches[-1].append(entry)
        rows += count
    return batches
