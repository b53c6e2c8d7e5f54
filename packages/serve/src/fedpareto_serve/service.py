"""Models over HTTP: `/predict`, `/front`, `/health`, `/ready` and `/metrics`.

Errors in a request are reported in one sentence.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Collection
from functools import lru_cache
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi import Request as HTTPRequest
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from fedpareto.config.errors import UserError
from fedpareto.config.version import VERSION
from fedpareto.inputs.images_texts import ImageInputs
from fedpareto.record.servable import Card
from fedpareto_serve.access_log import AccessLog
from fedpareto_serve.answers import by_row
from fedpareto_serve.batching import Batcher
from fedpareto_serve.metrics import CONTENT_TYPE, Counters
from fedpareto_serve.models import AnyPreference, Point, Servable, is_yes_or_no
from fedpareto_serve.predictions import Predictions, Request
from fedpareto_serve.request_checks import KNOWN, ROWS, Gate, said
from fedpareto_serve.runs import Source

MOST_ROWS = 10_000
MOST_COLUMNS = 20_000
"""Columns of a row, also those that the model does not need."""
MOST_CACHED = 64
"""Clients whose models stay in memory."""
LONG = 64 * 2**10
"""Bytes of a request from which on it is read in a thread, so that others need not wait."""

Number = StrictInt | StrictFloat
Preference = Annotated[list[Number], Field(max_length=64)]


class _Strict(BaseModel):
    """Base of what is read and sent; a misspelt field is an error."""

    model_config = ConfigDict(extra="forbid")


Row = Annotated[dict[str, StrictStr | StrictBool | Number | None], Field(max_length=MOST_COLUMNS)]


class Question(_Strict):
    """Rows by column name, and how much each objective matters."""

    rows: Annotated[list[Row], Field(min_length=1, max_length=MOST_ROWS)]
    preference: Preference | Annotated[list[Preference], Field(max_length=MOST_ROWS)]
    """One for all rows, or a list with one for each."""
    client: StrictInt | None = None
    """Client whose model is asked; not needed where there is one."""


class ImageQuestion(Question):
    """Images, and how much each objective matters."""

    rows: Annotated[  # type: ignore[assignment]
        list[Annotated[dict[str, list[Any]], Field(max_length=MOST_COLUMNS)]], Field(min_length=1, max_length=MOST_ROWS)
    ]


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
    """Models chosen among the clients'; null for a model made for the row's preference."""
    unseen: dict[str, int]
    """Number of rows, by column, with a value that no training row had."""


class Answers(_Strict):
    """One entry for each row, of models with several classes, tasks or actions."""

    answers: list[dict[str, Any]]
    """Answers by output: the class and the probabilities (of actions the values) of all classes, or a number."""
    served_by: list[Served | None]
    unseen: dict[str, int]


class FrontPoint(Served):
    """A model's objectives on held-out rows."""

    on_front: bool


class Front(_Strict):
    """The trade-off."""

    maximise: dict[str, bool]
    points: list[FrontPoint]


class Alive(_Strict):
    """A sign that it answers."""

    status: str


class Health(Alive):
    """The service and its models."""

    algorithm: str
    problem: str
    clients: list[int]
    objectives: list[str]
    columns: dict[str, str]
    """Inputs of a row: each a number or a value; or an image, or a text."""
    outputs: list[dict[str, Any]]
    """Outputs: name and classes; of two, the second is the positive one."""


def app_of(
    source: Source,
    client: int | None = None,
    seed: int | None = None,
    counters: Counters | None = None,
    token: str | None = None,
    log: AccessLog | None = None,
    hosts: Collection[str] = (),
) -> Gate:
    """The service for a run or a file; with `client`, for that one alone. `hosts` are the names under which it may be
    asked; none: any.
    """

    @lru_cache(maxsize=MOST_CACHED)
    def of_client(whose: int | None) -> Servable:
        return source.conditioned(whose, seed)

    def model(whose: int | None) -> Servable:
        if client is not None and whose not in (None, client):
            raise UserError(f"this service answers for client {client} only")
        return of_client(client if whose is None else whose)

    first = of_client(source.clients[0] if client is None else client)  # Errors are found before the first request.
    card = first.card
    names = [objective.name for objective in card.objectives]
    app = FastAPI(title="fedpareto", description=_about(first), docs_url=None, redoc_url=None)
    gate = Gate(app, counters, token, log, hosts)
    batcher = Batcher(gate.counters.batch)
    app.add_exception_handler(UserError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _invalid)

    asked = ImageQuestion if isinstance(card.inputs, ImageInputs) else Question
    answered = Answer if is_yes_or_no(card) else Answers

    @app.post("/predict", response_model=answered, openapi_extra=_body_of(asked), responses=REFUSALS)
    async def answer(request: HTTPRequest) -> Response:
        """The model's prediction for each row under the preference: a probability and a decision, or a class or
        action.
        """
        if not _is_json(request.headers.get("content-type", "")):
            return said(415, "the request is not JSON: set the header content-type: application/json")
        body = await request.body()
        if len(body) > LONG:
            question = await batcher.aside(lambda: asked.model_validate_json(body))
        else:
            question = asked.model_validate_json(body)
        found = await batcher.predict(model(question.client), Request(question.rows, question.preference))
        request.scope[ROWS] = len(question.rows)
        return Response(_written(card, found, names), media_type="application/json")

    @app.get("/front")
    async def front(client: Annotated[int | None, Query()] = None) -> Front:
        """The objectives on held-out rows: over preferences, or of all clients' models."""
        return Front(
            maximise={objective.name: objective.maximise for objective in card.objectives},
            points=[FrontPoint(**_named(point, names), on_front=point.on_front) for point in model(client).points],
        )

    health_of_all = Health(
        status="ok",
        algorithm=card.algorithm,
        problem=card.problem,
        clients=source.clients if client is None else [client],
        objectives=names,
        columns=dict(card.inputs.columns),
        outputs=[output.to_json() for output in card.outputs],
    )

    @app.get("/health", response_model=Health | Alive)
    async def health(request: HTTPRequest) -> Response:
        """Say whether the process answers, and what a request needs; without the token, only the former."""
        seen = health_of_all if request.scope[KNOWN] else Alive(status="ok")
        return JSONResponse(seen.model_dump())

    @app.get("/ready", response_model=Alive, responses={503: {"model": Alive, "description": "about to stop"}})
    async def ready() -> Response:
        """Say whether to send requests here: 200, or 503 once the service is about to stop."""
        return JSONResponse({"status": "draining" if gate.draining else "ready"}, 503 if gate.draining else 200)

    info = {"version": VERSION, "algorithm": card.algorithm, "problem": card.problem}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Metrics of all processes, for Prometheus."""
        return Response(gate.counters.text(info), headers={"content-type": CONTENT_TYPE})

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        """A page without external resources."""
        return HTMLResponse(_page(app.openapi()))

    return gate


REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"description": "the token is missing or wrong"},
    408: {"description": "the request did not arrive in time"},
    413: {"description": "the request is too long"},
    415: {"description": "the request is not JSON"},
    421: {"description": "the service is not known under this name"},
    422: {"description": "an error in the request"},
}


def _body_of(question: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that we read ourselves."""
    schema = {"application/json": {"schema": question.model_json_schema()}}
    return {"requestBody": {"content": schema, "required": True}}


def _is_json(content_type: str) -> bool:
    """JSON alone is accepted: a foreign page can make a browser send other types without a preflight request."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _written(card: Card, found: Predictions, names: list[str]) -> str:
    """An Answer, or Answers, as JSON."""
    if is_yes_or_no(card):
        said: dict[str, Any] = {
            "probabilities": found.probabilities.tolist(),
            "decisions": found.decisions.tolist(),
        }
    else:
        said = {"answers": by_row(card, found)}
    answer = {
        **said,
        "served_by": [None if point is None else _named(point, names) for point in found.served_by],
        "unseen": found.unseen,
    }
    return json.dumps(answer, separators=(",", ":"), allow_nan=False)


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


async def _refused(request: HTTPRequest, problem: Exception) -> Response:
    return said(422, str(problem))


async def _invalid(request: HTTPRequest, problem: Exception) -> Response:
    """A sentence with the place of the error; not the value itself, which may be anything, even what JSON cannot
    represent.
    """
    assert isinstance(problem, RequestValidationError | ValidationError), "registered for no other"
    first = problem.errors()[0]
    at = ("body", *first["loc"]) if isinstance(problem, ValidationError) else first["loc"]
    where = ".".join(str(part) for part in at[:4])
    return said(422, f"{where}: {first['msg']}")


def _page(openapi: dict[str, Any]) -> str:
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
