"""What an operator reads: a line for each event, or a JSON object for each with --log-format json."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]
KEPT = 20
"""Warnings that `status` shows."""


class _Json(logging.Formatter):
    """One object a line, for other programs."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging."""
        return json.dumps(
            {
                "time": _moment(record.created),
                "level": record.levelname.lower(),
                "part": record.name.removeprefix("fedpareto."),
                "message": record.getMessage(),
            },
            ensure_ascii=False,
        )


class _Text(logging.Formatter):
    """For people."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging."""
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return f"{_moment(record.created)} {mark}{record.getMessage()}"


class Memory(logging.Handler):
    """Keeps the last warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[dict[str, str]] = deque(maxlen=KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        """See logging."""
        self.lines.append({"time": _moment(record.created), "message": record.getMessage()})


def begin(log_format: LogFormat) -> Memory:
    """Sends this process's log to stderr; gives back what remembers its warnings.

    Only our own parts are heard: their messages hold no data, preferences or keys, and others' might.
    """
    ours = logging.getLogger("fedpareto")
    ours.setLevel(logging.INFO)
    ours.propagate = False
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(_Json() if log_format == "json" else _Text())
    memory = Memory()
    ours.handlers = [shown, memory]
    return memory


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
