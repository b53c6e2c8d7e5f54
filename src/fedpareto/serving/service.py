"""Models over HTTP: `/predict`, `/front` and `/health`. What is wrong with a question is said, and nothing breaks."""

from __future__ import annotations

import html
import math
import socket
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedpareto.core.inputs import VALUE
from fedpareto.errors import UserError
from fedpareto.serving.models import AnyPreference, Point, Servable
from fedpareto.serving.predictions import predict
from fedpareto.serving.runs import Source

MOST_ROWS = 10_000
MOST_BYTES = 16 * 2**20
"""Of a question: as many rows of a wide table."""
MOST_CACHED = 64
"""Clients whose models stay in memory."""

Number = StrictInt | StrictFloat
Preference = Annotated[list[Number], Field(max_length=64)]


class _Strict(BaseModel):
    """Nothing is guessed: a misspelt field is a mistake."""

    model_config = ConfigDict(extra="forbid")


class Question(_Strict):
    """Rows by column name, and how much each objective matters."""

    rows: Annotated[list[dict[str, StrictStr | StrictBool | Number | None]], Field(min_length=1, max_length=MOST_ROWS)]
    preference: Preference | Annotated[list[Preference], Field(max_length=MOST_ROWS)]
    """One for all rows, or a list with one for each."""
    client: StrictInt | None = None
    """Whose model; not needed where there is one."""


class Served(_Strict):
    """A model that was chosen among several."""

    client: int
    preference: list[float] | None
    objectives: dict[str, float | None]


class Answer(_Strict):
    """One entry for each row."""

    probabilities: list[float]
    decisions: list[int]
    served_by: list[Served | None]
    """Where the model was chosen among the clients'; null where it was made for the row's preference."""
    unseen: dict[str, int]
    """By column, in how many rows its value is one that no training row had."""


class FrontPoint(Served):
    """What a model is worth on held-out rows."""

    on_front: bool


class Front(_Strict):
    """The trade-off."""

    maximise: dict[str, bool]
    points: list[FrontPoint]


class Health(_Strict):
    """What is served."""

    status: str
    algorithm: str
    problem: str
    clients: list[int]
    objectives: list[str]
    columns: dict[str, str]
    """What a row needs: each a number or a value."""


def app_of(source: Source, client: int | None = None, seed: int | None = None) -> FastAPI:
    """The service for a run or a file; with `client`, for that one alone."""

    @lru_cache(maxsize=MOST_CACHED)
    def of_client(whose: int | None) -> Servable:
        return source.conditioned(whose, seed)

    def model(whose: int | None) -> Servable:
        if client is not None and whose not in (None, client):
            raise UserError(f"this service answers for client {client} only")
        return of_client(client if whose is None else whose)

    first = of_client(source.clients[0] if client is None else client)  # What is wrong is found before anybody asks.
    card = first.card
    names = [objective.name for objective in card.objectives]
    app = FastAPI(title="fedpareto", description=_about(first), docs_url=None, redoc_url=None)
    app.add_middleware(SizeLimit, most=MOST_BYTES)
    app.add_exception_handler(UserError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)

    @app.post("/predict", responses={422: {"description": "what is wrong with the question"}})
    def answer(question: Question) -> Answer:
        """The probability of a positive decision and the decision for each row, under the preference."""
        found = predict(model(question.client), question.rows, question.preference)
        return Answer(
            probabilities=found.probabilities.tolist(),
            decisions=found.decisions.tolist(),
            served_by=[None if point is None else Served(**_named(point, names)) for point in found.served_by],
            unseen=found.unseen,
        )

    @app.get("/front")
    def front(client: Annotated[int | None, Query()] = None) -> Front:
        """The objectives on held-out rows: over preferences, or of all clients' models."""
        return Front(
            maximise={objective.name: objective.maximise for objective in card.objectives},
            points=[FrontPoint(**_named(point, names), on_front=point.on_front) for point in model(client).points],
        )

    @app.get("/health")
    def health() -> Health:
        """Whether the service answers, and what a question needs."""
        return Health(
            status="ok",
            algorithm=card.algorithm,
            problem=card.problem,
            clients=source.clients if client is None else [client],
            objectives=names,
            columns={name: "value" if kind == VALUE else kind for name, kind in card.inputs.columns.items()},
        )

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        """A page without anything from elsewhere."""
        return HTMLResponse(_page(app.openapi()))

    return app


class SizeLimit:
    """Answers 413 to a question that is too long, whatever its header says of its length."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI: the body is read here first, so that nobody behind works on a part of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self.most:
                refusal = _json(413, f"the question is longer than {self.most:,} bytes")
                await refusal(scope, receive, send)
                return
        await self.app(scope, _once(body, receive), send)


def _once(body: bytes, receive: Receive) -> Callable[[], Awaitable[Message]]:
    """The whole body in one message, then whatever comes after it."""
    left = [body]

    async def again() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return again


def serve(source: Source, host: str, port: int, client: int | None, seed: int | None, ready: Any) -> None:
    """Answers until it is stopped; `ready` is called with the address once there is one."""
    import uvicorn

    app = app_of(source, client, seed)
    with _listening(host, port) as listener:
        ready(f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}")
        options = uvicorn.Config(app, log_level="warning", server_header=False, ws="none")
        uvicorn.Server(options).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket of our own, so that a taken port is told in a line."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError, UnicodeError) as problem:
        raise UserError(
            f"cannot listen at {host}, port {port}: {getattr(problem, 'strerror', '') or problem}"
        ) from None
    return listener


def _named(point: Point, names: list[str]) -> dict[str, Any]:
    return {
        "client": point.client,
        "preference": None if point.preference is None else list(point.preference),
        "objectives": {
            name: value if math.isfinite(value) else None for name, value in zip(names, point.values, strict=True)
        },
    }


def _about(model: Servable) -> str:
    how = "a model for every preference" if isinstance(model, AnyPreference) else "the client's model that fits best"
    return f"{model.card.algorithm} on {model.card.problem}: {how}."


async def _refused(request: Request, problem: Exception) -> Response:
    return _json(422, str(problem))


async def _invalid(request: Request, problem: Exception) -> Response:
    """Where in the question what is wrong. Not the value itself, which may be anything, also what JSON cannot hold."""
    assert isinstance(problem, RequestValidationError), "registered for no other"
    first = problem.errors()[0]
    where = ".".join(str(part) for part in first["loc"][:4])
    return _json(422, f"{where}: {first['msg']}")


def _json(status: int, message: str) -> JSONResponse:
    # A text from outside may hold half a character, which UTF-8 has no bytes for.
    return JSONResponse({"detail": message.encode("utf-8", "replace").decode()}, status)


def _page(openapi: dict[str, Any]) -> str:
    """The end points in plain HTML."""
    entries = [
        f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{html.escape(entry.get('description', ''))}</p>"
        for path, methods in openapi["paths"].items()
        for method, entry in methods.items()
    ]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>fedpareto</title>"
        "<style>body{font:16px/1.5 sans-serif;max-width:46em;margin:2em auto;padding:0 1em}</style>"
        f"<h1>fedpareto</h1><p>{html.escape(openapi['info']['description'])}</p>{''.join(entries)}"
        "<p>Every field: <a href='openapi.json'>openapi.json</a></p></html>"
    )
