"""The page's routes: what it asks for, its files, and one sentence for everything that goes wrong.

Every subject has its routes in a file of its own; `app_of` puts them together, behind the guard.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import secrets
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from fedpareto.config.errors import UserError
from fedpareto.config.files import json_text
from fedpareto_page import dial, figures, form, jobs, queries
from fedpareto_page.access import Guard
from fedpareto_page.saved import STATIC, VIEW, saved
from fedpareto_page.watch import Shelf, Unknown
from fedpareto_page.worker import Worker, WorkerFailed
from fedpareto_serve.request_checks import said

INDEX = STATIC / "index.html"
TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""Media types of our own files; what a system says of an ending is not always right, and a module of another type is
not run.
"""
LATEST = "latest"
COMMENT = 15.0
"""Seconds after which a silent stream says that it is still there: some proxies close those that do not."""
RETRY = 1000
"""Milliseconds after which a browser asks for a lost stream again."""
MOST_STREAMS = 64
MOST_WAITING = 1000
"""Events that one stream may be behind. Its page then asks anew for what it shows, which is what events are for."""


@dataclass(frozen=True)
class Served:
    """An application, and what its server has to know of it."""

    guard: Guard
    hub: Hub


def app_of(
    shelf: Shelf, token: str, hosts: Collection[str], read_only: bool = False, rows: Path | None = None
) -> Served:
    """The page over a shelf of runs, for those who know the token and under these names; `rows` are for the dial."""
    server = secrets.token_hex(8)
    hub = Hub(shelf, server)
    turned, forms, painter = dial.Dial(rows), Worker(form.TARGET, blind=read_only), Worker(figures.TARGET)

    def folder_of(id: str) -> Path:
        folder: Path = shelf.run(id).folder
        return folder

    @asynccontextmanager
    async def watching(_: FastAPI) -> AsyncIterator[None]:
        watch = asyncio.create_task(hub.watch())
        yield
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        turned.close()
        forms.close()
        painter.close()

    app = FastAPI(title="fedpareto", openapi_url=None, lifespan=watching)
    app.include_router(_asked(shelf, {"server": server, "read_only": read_only}))

    @app.get("/api/stream")
    async def stream() -> Response:
        if hub.is_full:
            return said(503, "too many pages are open")
        return StreamingResponse(hub.stream(), media_type="text/event-stream")

    app.include_router(dial.routes(folder_of, turned))
    app.include_router(form.routes(forms, shelf.roots[0], read_only))
    app.include_router(jobs.routes(folder_of, shelf.roots[0], forms, read_only))
    app.include_router(figures.routes(folder_of, painter))
    app.include_router(_files())
    for kind, status in ((Unknown, 404), (UserError, 422), (WorkerFailed, 500)):
        app.add_exception_handler(kind, _saying(status))
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_such_thing)
    return Served(Guard(app, token, hosts), hub)


def _asked(shelf: Shelf, own: dict[str, Any]) -> APIRouter:
    """Routes of `queries`. Functions without `async` run in threads, so that the stream never waits for them."""
    router = APIRouter(prefix="/api")

    @router.get("/runs")
    def runs() -> Response:
        with shelf.lock:  # The number belongs to what is read, see Hub.
            return as_json(own | {"changes": shelf.changes} | queries.runs(shelf))

    @router.get("/runs/{id}")
    def about(id: str) -> Response:
        return as_json(queries.about(shelf, id))

    @router.get("/runs/{id}/lines")
    def lines(id: str, since: int = 0, epoch: int = 0) -> Response:
        return as_frame(queries.lines(shelf, id, since, epoch))

    @router.get("/runs/{id}/solutions")
    def solutions(id: str, split: str) -> Response:
        return as_frame(queries.solutions(shelf, id, split))

    @router.get("/runs/{id}/values")
    def values(id: str, eval: str, split: str, since: int = 0, epoch: int = 0) -> Response:
        return as_frame(queries.values(shelf, id, eval, split, since, epoch))

    @router.get("/runs/{id}/film")
    def film(id: str, seed: int) -> Response:
        return as_frame(queries.film(shelf, id, seed))

    @router.get("/runs/{id}/grid")
    def grid(id: str, seed: int) -> Response:
        return as_frame(queries.grid(shelf, id, seed))

    @router.get("/runs/{id}/events")
    def events(id: str, since: int = 0) -> Response:
        return as_json(queries.events(shelf, id, since))

    @router.get("/runs/{id}/clients")
    def clients(id: str, seed: int, round: str = LATEST, runs: str = "") -> Response:
        wanted = None if round == LATEST else whole(round, "round")
        return as_json(queries.clients(shelf, id, seed, wanted, ids(runs)))

    @router.get("/matrix/{id}")
    def matrix(id: str) -> Response:
        return as_json(queries.matrix(shelf, id))

    @router.get("/federation/{id}")
    def federation(id: str) -> Response:
        return as_json(queries.federation(shelf, id))

    @router.get("/compare")
    def compare(runs: str = "") -> Response:
        return as_json(queries.compare(shelf, ids(runs)))

    @router.get("/save")
    def save(runs: str, view: str = VIEW) -> Response:
        for id in ids(runs):
            shelf.run(id)
        headers = {"content-disposition": 'attachment; filename="fedpareto.html"'}
        return Response(saved(shelf, ids(runs), view), headers=headers, media_type=TYPES[".html"])

    return router


class Hub:
    """Streams of changes to every open page, and the watch over the run folders that feeds them.

    Every event, and the `hello` that begins a stream, has the number of `changes` that it knows of. A page whose answer
    of `/api/runs` has a smaller one has missed something between both, and asks again.
    """

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


def _static_file(path: str) -> Path | None:
    """The file of this name in the page's folder; names that no file system takes have none."""
    try:
        file = (STATIC / path).resolve()
        return file if file.is_relative_to(STATIC.resolve()) and file.is_file() else None
    except (OSError, ValueError):
        return None


def _files() -> APIRouter:
    """The page itself, and its scripts and styles: from the folder each time, so that none is older than its server."""
    router = APIRouter()
    fresh = {"cache-control": "no-cache"}

    @router.get("/static/{path:path}")
    def static(path: str, request: Request) -> Response:
        kind = TYPES.get(Path(path).suffix)
        file = _static_file(path)
        if kind is None or file is None:
            raise HTTPException(404)
        stamp = f'"{file.stat().st_mtime_ns:x}"'
        headers = fresh | {"etag": stamp, "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == stamp:
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(file.read_bytes(), media_type=kind, headers=headers)
        return Response(_packed(file, stamp), media_type=kind, headers=headers | {"content-encoding": "gzip"})

    @router.get("/")
    @router.get("/{screen}")
    @router.get("/run/{id}")
    def index(screen: str = "shelf", id: str = "none") -> Response:
        if not screen.isalpha() or not id.isalnum():
            raise HTTPException(404)
        return FileResponse(INDEX, media_type=TYPES[".html"], headers=fresh)

    return router


@lru_cache(maxsize=128)
def _packed(file: Path, stamp: str) -> bytes:
    """The file as it was at that stamp, in a third of the bytes, for whoever looks through a tunnel."""
    return gzip.compress(file.read_bytes())


# -- answers ---------------------------------------------------------------------------------------------------------


def as_json(value: dict[str, Any]) -> Response:
    """Answer with an object; what is not a number is null."""
    return Response(json_text(value, separators=(",", ":")), media_type="application/json")


def as_frame(content: bytes) -> Response:
    return Response(content, media_type="application/octet-stream")


def ids(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


def whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{name} is '{text[:40]}', expected a whole number or {LATEST}") from None


def _saying(status: int) -> Callable[[Request, Exception], Response]:
    return lambda _, problem: said(status, str(problem))


def _invalid(_: Request, problem: Exception) -> Response:
    """A sentence with the place of the error; not the value itself, which may be anything."""
    assert isinstance(problem, RequestValidationError)
    first = problem.errors()[0]
    return said(422, f"{'.'.join(map(str, first['loc'][1:])) or 'the request'}: {first['msg']}")


def _no_such_thing(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    sentence = "there is nothing at this address" if problem.status_code == 404 else str(problem.detail)
    return JSONResponse({"detail": sentence}, problem.status_code, problem.headers)
