"""What is on the shelf besides runs: matrices, sweeps, tuning studies, missions and deployments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpareto.config.errors import UserError, reading
from fedpareto.config.files import Lock, quoted, read_object
from fedpareto.record.growing_file import Kept

OTHERS = {
    "matrix.json": "matrix",
    "sweep.json": "sweep",
    "tuning.json": "tuning",
    "mission.json": "mission",
    "deployment.json": "deployment",
}
"""What a folder is, by the file that tells."""
FILES = {kind: file for file, kind in OTHERS.items()}


class Other:
    """One of them, followed by the file that grows."""

    def __init__(self, id: str, kind: str, name: str, folder: Path) -> None:
        self.id, self.kind, self.name, self.folder = id, kind, name, folder
        self.file = folder / FILES[kind]
        self.content = Kept(self.file, read_object)
        """What the file holds."""
        self._server = Kept(folder / "server" / "status.json", lambda path: read_object(path) if path.is_file() else {})
        self._lock = Lock((folder / "server" if kind == "deployment" else folder) / ".lock")
        self.busy = False
        """Whether a process is at work on it."""

    def look(self) -> bool:
        """Whether anything changed."""
        before, self.busy = self.busy, self.kind != "mission" and self._lock.is_held()
        is_new = self.content.look() | self._server.look()
        return is_new or before != self.busy

    def is_deployment_of(self, run: Path) -> bool:
        """Whether a run is this deployment's."""
        return self.kind == "deployment" and run == self.folder / "run"

    @property
    def plain(self) -> dict[str, Any]:
        """For the shelf."""
        look = f"fedpareto space look {quoted(self.folder)}" if self.kind == "mission" else None
        found = {"id": self.id, "kind": self.kind, "name": self.name, "command": look}
        try:
            with reading(str(self.file)):
                return found | {"status": self._status(), "error": None}
        except UserError as problem:
            return found | {"status": "damaged", "error": " ".join(str(problem).split())}

    def _status(self) -> str:
        """In a few words."""
        content = self.content.value
        if self.kind == "deployment":
            state = str(self._server.value.get("state", "not started"))
            return state if self.busy or state in ("finished", "stopped", "failed", "not started") else "killed"
        if self.kind == "matrix":
            rows, columns, panels = (len(content["labels"][axis]) for axis in ("algorithm", "attack", "defence"))
            done = sum(cell["at"] is not None for cell in content["cells"])
            return self._progress(done, rows * columns * panels, "cells")
        if self.kind == "sweep":
            return self._progress(
                sum(run["status"] != "waiting" for run in content["runs"]), len(content["runs"]), "runs"
            )
        return ""

    def _progress(self, done: int, of: int, what: str) -> str:
        if done == of:
            return "finished"
        return f"{done} of {of} {what}" + (", running" if self.busy else "")
