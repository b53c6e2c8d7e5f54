"""Figures for papers: the page's runs drawn by matplotlib, in a process of its own, so that no stream waits for it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from fedpareto_page.watch import Unknown
from fedpareto_page.worker import Worker

TARGET = "fedpareto_page.figures:drawn"
"""The worker's function."""
KINDS = {"svg": "image/svg+xml", "pdf": "application/pdf", "png": "image/png"}
NAMES = ("fronts", "hypervolume", "clients")


def routes(folder_of: Callable[[str], Path], worker: Worker) -> APIRouter:
    """`/api/figure/…`."""
    router = APIRouter()

    @router.get("/api/figure/{name}.{kind}")
    def figure(name: str, kind: str, runs: str) -> Response:
        if name not in NAMES or kind not in KINDS:
            raise Unknown(f"there is no figure {name}.{kind}; there are {', '.join(NAMES)} as {', '.join(KINDS)}")
        folders = [str(folder_of(id)) for id in runs.split(",")]
        content = base64.b64decode(worker.ask("draw", {"name": name, "kind": kind, "runs": folders}))
        headers = {"content-disposition": f'attachment; filename="{name}.{kind}"'}
        return Response(content, headers=headers, media_type=KINDS[kind])

    return router


def drawn(job: str, asked: Any) -> str:
    """The worker's side: a figure as bytes in base64."""
    from fedpareto.record.reading import load
    from fedpareto.report import client_figures, figures

    draw = {
        "fronts": figures.fronts,
        "hypervolume": figures.hypervolume_curves,
        "clients": client_figures.clients_at_the_end,
    }[asked["name"]]
    records = [load(Path(run)) for run in asked["runs"]]
    return base64.b64encode(figures.render(draw(records), asked["kind"])).decode()
