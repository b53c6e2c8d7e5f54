"""Logs for operators: a line for each event, or a JSON object for each with --log-format json.

No log grows for ever.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

from fedpareto.config.errors import UserError
from fedpareto.config.files import cut

LogFormat = Literal["text", "json"]
KEPT = 20
"""Warnings that `status` shows."""
LARGEST = 10 * 2**20
"""Bytes at which a log file becomes an old one and a new one begins."""
OLD = 5
"""Old files that are kept of our own logs, the newest as .1; of Flower's programs one."""


class _Json(logging.Formatter):
    """One object per line, for other programs."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": moment(record.created),
                "level": record.levelname.lower(),
                "part": record.name.removeprefix("fedpareto."),
                "message": record.getMessage(),
            },
            ensure_ascii=False,
        )


class _Text(logging.Formatter):
    """Lines for people; they name who speaks, if several do in one terminal."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self.who = f"{who}: " if who else ""

    def format(self, record: logging.LogRecord) -> str:
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"{moment(record.created)} {self.who}{mark}{record.getMessage()}"


class Memory(logging.Handler):
    """Keeps the last warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[dict[str, str]] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append({"time": moment(record.created), "message": record.getMessage()})


@dataclass(frozen=True)
class LogOptions:
    """Options of a process's log."""

    format: LogFormat = "text"
    file: Path | None = None
    """Beside stderr; None: stderr alone."""
    who: str = ""
    """Begins each line of text, such as node 0."""


PLAIN = LogOptions()


class _File(RotatingFileHandler):
    """A log of limited size. A full disk must not end a run, nor fill stderr with tracebacks."""

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(path, maxBytes=LARGEST, backupCount=OLD, encoding="utf-8")
        except OSError as problem:
            raise UserError(f"the log {path} cannot be written: {problem.strerror or problem}") from None

    def handleError(self, record: logging.LogRecord) -> None:
        """Stay silent."""


def begin(options: LogOptions = PLAIN) -> Memory:
    """Sends this process's log to stderr, and to a file if wished; returns the handler that keeps its warnings. Only
    our own loggers are enabled: their messages contain no data, preferences or keys, and others' might.
    """
    ours = logging.getLogger("fedpareto")
    ours.setLevel(logging.INFO)
    ours.propagate = False
    shown: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if options.file is not None:
        shown.append(_File(options.file))
    for handler in shown:
        handler.setFormatter(_Json() if options.format == "json" else _Text(options.who))
    memory = Memory()
    ours.handlers = [*shown, memory]
    return memory


def bound(folder: Path) -> None:
    """Shortens the logs of other programs, which hold them open: the content becomes `.1`, and they continue at 0.
    They open files for appending, so truncation is safe.
    """
    for path in folder.glob("*.log"):
        with suppress(FileNotFoundError):
            if path.stat().st_size > LARGEST:
                path.with_name(f"{path.name}.1").unlink(missing_ok=True)
                shutil.copyfile(path, path.with_name(f"{path.name}.1"))
                cut(path, 0)


def moment(seconds: float) -> str:
    """A time (seconds since 1970) as logs and status show it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
