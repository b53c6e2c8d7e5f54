"""Access log: time, client address, path and duration of each request. Never the content of rows, never a token."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedpareto.config.errors import UserError

STDERR = "-"


class LogFormat(StrEnum):
    """The format of a line."""

    TEXT = "text"
    JSON = "json"


class AccessLog:
    """On stderr or at the end of a file. Each line is one write, so that several processes can share the file."""

    def __init__(self, target: str, form: LogFormat) -> None:
        self.form = form
        if target == STDERR:
            self._file = sys.stderr.fileno()
            return
        try:
            self._file = os.open(Path(target), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
        except OSError as problem:
            raise UserError(f"the access log {target} cannot be written: {problem.strerror or problem}") from None

    def write(self, scope: Mapping[str, Any], status: int, seconds: float, rows: int) -> None:
        """Write the line of one request. A full disk does not stop the service."""
        entry = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "address": (scope.get("client") or ("-",))[0],
            "method": str(scope["method"]),
            # Escaped, so that no path can forge another line; without the query, which may contain anything.
            "path": quote(str(scope["path"]), errors="replace"),
            "status": status,
            "ms": round(seconds * 1e3, 3),
            "rows": rows,
        }
        line = json.dumps(entry) if self.form is LogFormat.JSON else " ".join(map(str, entry.values()))
        try:
            os.write(self._file, f"{line}\n".encode())
        except OSError:
            return
