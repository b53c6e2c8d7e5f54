"""The dial's end points: a preference moves, and with it the decisions on rows. A worker process predicts."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, ValidationError

from fedpareto.config.errors import UserError
from fedpareto.config.files import json_text
from fedpareto_page.worker import Worker, WorkerFailed
from fedpareto_serve.request_checks import said

MOST_SENT = 8
"""Dropped files that are kept, one for all models with the same inputs."""
MOST_PREFERENCES = 1001
MOST_EDITS = 1000
MOST_TABS = 64
"""Pages whose newest question is remembered."""

Number = StrictInt | StrictFloat
Preference = Annotated[list[Number], Field(max_length=64)]
Whose = Annotated[int | None, Query()]


class _Strict(BaseModel):
    """Base of questions; a misspelt field is an error."""

    model_config = ConfigDict(extra="forbid")


class Turn(_Strict):
    """Position of the dial."""

    preference: Preference | None = None
    preferences: Annotated[list[Preference], Field(max_length=MOST_PREFERENCES)] | None = None
    """Instead: several, of which only the decisions are wanted."""
    client: StrictInt | None = None
    seed: StrictInt | None = None
    edits: Annotated[list[tuple[StrictInt, StrictStr, StrictStr | Number | None]], Field(max_length=MOST_EDITS)] = []
    """Cells with another value: row from 0, column, value."""
    output: StrictInt = 0
    """Number of the model's answer, where it gives several."""
    tab: Annotated[StrictStr, Field(max_length=64)] = ""
    """Name of the browser tab; of its questions only the newest is answered."""


class Table(_Strict):
    """A file that was dropped on the page."""

    csv: StrictStr | None
    """None: back to the rows with which the page began."""
    run: StrictStr
    """Run whose model reads them, as do those of all runs with the same inputs, and no others."""
    name: Annotated[StrictStr, Field(max_length=255)] = ""


class Superseded(Exception):
    """A newer question came before this one's turn."""


class Dial:
    """Asks the process that predicts, one question at a time, and keeps the rows that it is to predict for."""

    def __init__(self, rows: Path | None = None) -> None:
        self.worker = Worker("fedpareto_page.dial_worker:answer")
        self._file = None if rows is None else str(rows)
        self._sent: OrderedDict[tuple[str, ...], dict[str, Any]] = OrderedDict()
        """Rows that were sent, by the inputs of the model that they are for."""
        # One thread: questions wait their turn without holding up the server.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dial")
        self._numbers = itertools.count()
        self._newest: dict[str, int] = {}

    async def load(self, run: Path, csv: str | None, name: str) -> dict[str, Any]:
        """Other rows for the runs with this one's inputs from now on; None: those with which the page began."""
        return await self._soon(lambda: self._load(run, csv, name or "rows.csv"))

    async def ask(self, name: str, question: dict[str, Any], tab: str = "") -> dict[str, Any]:
        """The answer; Superseded where the same tab has asked again meanwhile."""
        number = next(self._numbers)
        if tab:
            self._newest.pop(tab, None)
            self._newest[tab] = number
            while len(self._newest) > MOST_TABS:
                self._newest.pop(next(iter(self._newest)))
        return await self._soon(lambda: self._answer(name, question, tab, number))

    def close(self) -> None:
        """Ends the process; questions that wait are not asked any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.worker.close()

    async def _soon(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # What the thread does: nothing else reads or changes which rows are asked about.

    def _load(self, run: Path, csv: str | None, name: str) -> dict[str, Any]:
        sent: dict[str, Any] = {"run": str(run), "csv": csv, "name": name, "number": next(self._numbers)}
        found: dict[str, Any] = self.worker.ask("load", sent)
        inputs = sent["inputs"] = tuple(found.pop("inputs"))
        self._sent.pop(inputs, None)
        if csv is not None:
            self._sent[inputs] = sent
            while len(self._sent) > MOST_SENT:
                self._sent.popitem(last=False)
        return found

    def _answer(self, name: str, question: dict[str, Any], tab: str, number: int) -> dict[str, Any]:
        if self._newest.get(tab, number) != number:
            raise Superseded
        asked = {**question, "file": self._file, "sent": [one["number"] for one in self._sent.values()]}
        found: dict[str, Any] | None = self.worker.ask(name, asked)
        if found is None:  # It was begun anew, and has not got the rows that were sent.
            for one in self._sent.values():
                self.worker.ask("keep", one)
            found = self.worker.ask(name, asked)
        assert found is not None, "it has the rows"
        return found


def routes(folder_of: Callable[[str], Path], dial: Dial) -> APIRouter:
    """The end points; `folder_of` gives a run's folder by its id, and raises Unknown where there is no such run."""
    router = APIRouter()

    def asked(ask: str, id: str, tab: str = "", **rest: Any) -> Awaitable[dict[str, Any]]:
        return dial.ask(ask, {"run": str(folder_of(id)), **rest}, tab)

    @router.get("/api/dial/{id}")
    async def about(id: str, client: Whose = None, seed: Whose = None) -> Response:
        """Describe what can be asked of a run; where it cannot be served, why."""
        return await _answered(asked("about", id, client=client, seed=seed))

    @router.get("/api/dial/{id}/rows")
    async def cells(id: str, client: Whose = None, seed: Whose = None) -> Response:
        return await _answered(asked("rows", id, client=client, seed=seed))

    @router.post("/api/dial/{id}")
    async def turn(id: str, request: Request) -> Response:
        """Probabilities, decisions and counts under a preference."""
        try:
            turned = Turn.model_validate_json(await request.body())
        except ValidationError as problem:
            return _invalid(problem)
        if (turned.preference is None) == (turned.preferences is None):
            return said(422, "give preference, or preferences, and not both")
        return await _answered(asked("dial", id, turned.tab, **turned.model_dump(exclude={"tab"})))

    @router.post("/api/rows")
    async def rows(request: Request) -> Response:
        """A CSV, kept in memory only."""
        try:
            table = await asyncio.to_thread(Table.model_validate_json, await request.body())
        except ValidationError as problem:
            return _invalid(problem)
        return await _answered(dial.load(folder_of(table.run), table.csv, table.name))

    return router


async def _answered(asked: Awaitable[dict[str, Any]]) -> Response:
    try:
        return Response(json_text(await asked, separators=(",", ":")), media_type="application/json")
    except Superseded:
        return said(409, "a newer question came")
    except UserError as problem:
        return said(422, str(problem))
    except WorkerFailed as problem:
        return said(503, f"{problem}; the next question begins it anew")


def _invalid(problem: ValidationError) -> Response:
    """A sentence with the place of the error; not the value itself, which may be anything."""
    first = problem.errors()[0]
    return said(422, f"{'.'.join(map(str, first['loc'][:4])) or 'the question'}: {first['msg']}")
