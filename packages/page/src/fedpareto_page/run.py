"""One run on the shelf: its folder as it grows, whether a process is at work on it, and what it looks like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.config.files import Lock
from fedpareto.record.entries import EVALUATIONS, Line, Status
from fedpareto.record.following import FINISHED, Following
from fedpareto.record.growing_file import Kept
from fedpareto.record.run_record import Record
from fedpareto.spec import yaml_file
from fedpareto_page.series import Series

PRIVATE = "private"
"""Preferences, in the spec of a deployment."""
MOST_TOLD = 100
"""New lines whose numbers an event has: a page asks for more of them itself."""
EVALUATED = tuple(f"{name}." for name in EVALUATIONS)
"""What the names of columns begin with that follow from clients' values."""
MODELS = ("models.safetensors", "conditioned.safetensors")


class Run:
    """One run's folder, followed."""

    def __init__(self, id: str, name: str, folder: Path) -> None:
        self.id, self.name, self.folder = id, name, folder
        self.following = Following(folder)
        self.busy = False
        """Whether a process is at work on it."""
        self.seen_as: Callable[[Record], Record] = lambda record: record
        """Who asks for a record gets this of it, such as one without outliers."""
        self.series = Series()
        self.sums: tuple[int, object] | None = None
        """What follows from all lines together, and the version of which it does."""
        self._spec = Kept(folder / "spec.yaml", _flat_spec)
        self._lock = Lock(folder / ".lock")
        self._is_new = True

    @property
    def is_due(self) -> bool:
        """Whether it is worth looking at it each time."""
        return self._is_new or self.busy or self.following.left > 0

    def look(self, most: int) -> bool:
        """Reads what was appended, about `most` bytes of it; whether anything changed."""
        before, self._is_new = self.busy, False
        self.busy = self.status.name != FINISHED and self._lock.is_held()
        change = self.following.read(most)
        if change.about:
            self._spec.look()
        return bool(change) or self.busy != before

    @property
    def status(self) -> Status:
        """What the run wrote last; unknown where that cannot be read."""
        try:
            return self.following.status.value
        except UserError:
            return Status()

    @property
    def about(self) -> Record:
        """What run.json says, without any round; raises what is wrong with the folder."""
        return self.following.about.value

    @property
    def record(self) -> Record:
        """All that was read of it."""
        return self.seen_as(self.following.record())

    @property
    def latest(self) -> Record:
        """The same, or before its first round what run.json says."""
        try:
            return self.record
        except UserError:
            return self.about

    @property
    def lines(self) -> Sequence[Line]:
        """Those that were read, as they were written."""
        return self.following.lines

    @property
    def is_starting(self) -> bool:
        """Whether a process is at work on it that has not come to its first round."""
        return self.busy and self.following.about.seen is None

    @property
    def error(self) -> str | None:
        """What is wrong with the folder, in one line."""
        try:
            self.following.check()
        except UserError as problem:
            return " ".join(str(problem).split())
        return None

    @property
    def news(self) -> dict[str, Any]:
        """What an event tells of it."""
        lines, epoch = len(self.lines), self.following.epoch
        return {"run": self.id, "lines": lines, "epoch": epoch, "status": self.plain_status}

    @property
    def plain_status(self) -> dict[str, Any]:
        """For the page."""
        status = self.status
        return {
            "name": status.name,
            "round": status.round,
            "seconds": status.seconds,
            "message": status.message,
            "busy": self.busy,
            "process": None if status.process is None else asdict(status.process),
        }

    @property
    def spec(self) -> dict[str, Any]:
        """Every parameter by its key, such as "algorithm.top_ratio"; empty where the spec cannot be read."""
        try:
            return self._spec.value
        except UserError:
            return {}

    @property
    def is_private(self) -> bool:
        """Whether preferences stay with the nodes; a spec that cannot be read may have said so."""
        try:
            return self._spec.value.get("preferences") == PRIVATE
        except UserError:
            return True

    @property
    def is_servable(self) -> bool:
        """Whether its models can be asked."""
        return any((self.folder / name).is_file() for name in MODELS) and (self.folder / "inputs.json").is_file()

    def told_since(self, since: int, epoch: int) -> dict[str, Any]:
        """Of lines from this one on, those numbers that are known, for an event; none if nobody has those before."""
        is_followed = since > 0 and (self.series.total, self.series.epoch) == (since, epoch)
        are_few = epoch == self.following.epoch and 0 < len(self.lines) - since <= MOST_TOLD
        if not is_followed or not are_few or self.error is not None:
            return {}
        known = {name: column for name, column in self.numbers(since).items() if np.isfinite(column).any()}
        told = {name: [one if math.isfinite(one) else None for one in _short(name, known[name])] for name in known}
        return {"since": since, "numbers": told}

    def numbers(self, since: int) -> dict[str, np.ndarray]:
        """By name, of each line from this one on that was read."""
        lines = self.following.kept
        if lines is None:
            return {}
        self.series.follow(self.about, lines, self.following.epoch)
        return self.series.since(self.about, lines, since)

    def at(self, since: int, epoch: int) -> int:
        """From which line on an answer goes: those before are known to whoever asks, unless they changed since."""
        return since if epoch == self.following.epoch and 0 <= since <= len(self.lines) else 0


def _short(name: str, column: np.ndarray) -> list[float]:
    """Numbers in no more digits than a page keeps: what follows from clients' values is of single precision."""
    is_single = name.startswith(EVALUATED)
    return [float(str(one)) for one in column.astype(np.float32)] if is_single else column.tolist()


def _flat_spec(path: Path) -> dict[str, Any]:
    return dict(_flat(yaml_file.read(path)[0])) if path.is_file() else {}


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _plain(value)


def _plain(value: Any) -> Any:
    """As JSON can have it: no infinite numbers, no dates."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    is_plain = value is None or isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)
