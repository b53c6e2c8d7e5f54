"""The form for a new run: what there is to choose from, and what a choice comes to."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, field_validator

from fedpareto.config.errors import UserError
from fedpareto.config.files import free_path, must_be_whole_letters, quoted
from fedpareto_page.worker import Worker

TARGET = "fedpareto_page.form_worker:answer"
"""Target of the worker that knows algorithms and problems."""
NAME = re.compile(r"\w[\w .,+=@-]{0,99}")
"""Names that the page gives to folders."""


class Wanted(BaseModel):
    """A run as the form has it."""

    values: dict[str, Any]
    """A spec's values by flat names; texts are read as on the command line."""
    name: str = ""
    """Name of its folder; empty: after algorithm and problem."""

    @field_validator("values", "name")
    @classmethod
    def _of_whole_letters(cls, given: Any) -> Any:
        must_be_whole_letters(given)
        return given


def routes(worker: Worker, root: Path, read_only: bool = False) -> APIRouter:
    """The form and its check, which for a page that only watches reads no data; `root` would hold a new folder."""
    router = APIRouter()

    @functools.cache
    def found() -> Any:
        return worker.ask("form")

    @router.get("/api/form")
    def form() -> Any:
        return found()

    @router.post("/api/check")
    def check(wanted: Wanted) -> dict[str, Any]:
        checked = worker.ask("outline" if read_only else "check", wanted.values)
        found = {"yaml": checked["yaml"], "command": None, "error": checked["error"], "field": checked["field"]}
        if checked["error"] is not None:
            return found
        try:
            return found | {"command": command_of(checked["words"], free_path(root, folder_name(wanted, checked)))}
        except UserError as problem:
            return found | {"error": str(problem), "field": "name"}

    return router


def folder_name(wanted: Wanted, settled: dict[str, Any]) -> str:
    name = wanted.name.strip() or str(settled["name"])
    if NAME.fullmatch(name) is None:
        raise UserError(f"a folder cannot be called '{name}' here; use letters, digits, spaces and . , + - = @ _")
    return name


def command_of(words: list[str], folder: Path) -> str:
    """The line that starts the same run from a terminal."""
    return quoted("fedpareto", "run", *words, "--out", folder)
