"""The folder of a campaign, which many runs, cells or trials share: its lock, its stop file and its record."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedpareto.config.files import json_text, make_folder, write_atomically
from fedpareto.config.interrupts import either
from fedpareto.record.store import RunFolder

BETWEEN_WRITES = 1.0
"""Fewest seconds between two writes of a record: no more is lost if the process is killed."""


@contextmanager
def held(out: Path, stop: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """Make the folder and hold its lock; yield `stop`, which now also obeys a stop file in the folder."""
    make_folder(out)
    with RunFolder(out) as folder:
        folder.lock()
        yield either(stop, out)


class Ledger(ABC):
    """The record of what came of each piece of a campaign, in one JSON file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written, self._is_new = time.monotonic(), False

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return everything that the file holds."""

    def changed(self) -> None:
        """Note that there is something new, and write it unless the last write was a moment ago."""
        self._is_new = True
        self.catch_up()

    def catch_up(self) -> None:
        """Write what is new, some time after the last write."""
        if self._is_new and time.monotonic() - self._written >= BETWEEN_WRITES:
            self.write()

    def write(self) -> None:
        """Replace the file in one step."""
        write_atomically(self.path, json_text(self.record(), indent=1) + "\n")
        self._written, self._is_new = time.monotonic(), False
