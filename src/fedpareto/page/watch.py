"""The shelf: which runs there are below some folders, and what changed in them since they were last looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpareto.errors import UserError


class Unknown(UserError):
    """There is nothing of this id, or not any more."""


class Shelf:
    """The runs, deployments, matrices, sweeps and missions below some folders."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self.busy = False
        """Whether anything is running: then ask ten times a second what changed, else once."""

    def poll(self) -> list[dict[str, Any]]:
        """Reads what was appended, not too much at once; the events that tell of it.

        Each has "event": "changed" with run, lines, epoch and status, "shelf", or "other" with id.
        """
        return []

    def run(self, id: str) -> Any:
        """The run with this id; Unknown if there is none."""
        raise Unknown(f"there is no run '{id}'")
