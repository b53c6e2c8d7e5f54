"""One run on the shelf: its folder as it grows, whether a process is at work on it, and what it looks like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.config.errors import UserError
from fedpareto.config.files import Lock
from fedpareto.moo.fairness import LOW_SHARE, shares_improved
from fedpareto.record.chunked_array import Pieces
from fedpareto.record.entries import EVALUATIONS, Line, Status
from fedpareto.record.following import FINISHED, Following
from fedpareto.record.growing_file import Kept
from fedpareto.record.lines import NUMBERS, Lines
from fedpareto.record.run_record import Record
from fedpareto.spec import yaml_file

Array = NDArray[np.float64]

LEFT_OUT = ("over",)
"""Numbers of a line that the page has no use for."""
PRIVATE = "private"
"""Preferences, in the spec of a deployment."""
MOST_TOLD = 100
"""New lines whose numbers an event has: a page asks for more of them itself."""
EVALUATED = tuple(f"{name}." for name in EVALUATIONS)
"""Beginnings of the names of columns that follow from clients' values."""
MODELS = ("models.safetensors", "conditioned.safetensors")


class Series:
    """Columns with a number for each line, NaN where not known; what follows from clients' values is kept here."""

    def __init__(self) -> None:
        self.epoch = 0
        self._begin()

    def _begin(self) -> None:
        self.total = 0
        self._columns: dict[str, Pieces] = {}
        self._losses: dict[int, tuple[int, Array, NDArray[np.int64]]] = {}

    def follow(self, about: Record, lines: Lines, epoch: int) -> None:
        """Takes lines into account that were not there before; in another epoch, all anew."""
        if epoch != self.epoch or len(lines) < self.total:
            self.epoch = epoch
            self._begin()
        count = len(lines) - self.total
        if not count:
            return
        for name, values in self._derived(about, lines):
            column = self._columns.setdefault(name, Pieces(1, "<f8"))
            column.extend(np.full((self.total - len(column), 1), np.nan))
            column.extend(np.asarray(values, dtype=np.float64)[:, None])
        self.total += count
        for column in self._columns.values():
            column.extend(np.full((self.total - len(column), 1), np.nan))

    def since(self, about: Record, lines: Lines, since: int) -> dict[str, Array]:
        numbers = lines.numbers(since)
        found = {name: numbers[:, i] for i, name in enumerate(NUMBERS) if name not in LEFT_OUT}
        averages = lines.averages(numbers)
        for e, evaluation in enumerate(EVALUATIONS):
            for s, split in enumerate(about.splits):
                for j in range(len(about.objectives)):
                    found[f"{evaluation}.{split}.{j}"] = averages[:, e, s, j]
        return found | {name: column.since(since)[:, 0] for name, column in self._columns.items()}

    def _derived(self, about: Record, lines: Lines) -> Iterator[tuple[str, Array]]:
        places, own = range(self.total, len(lines)), about.splits.index(about.own_split)
        points = values_of(lines, places, "sent", own)
        for j, objective in enumerate(about.objectives):
            worst, nine = low_ends(points[:, j], objective.maximise)
            yield f"sent.worst.{j}", worst
            yield f"sent.nine.{j}", nine
        yield "improved", np.array([self._improved(lines, place) for place in places])
        rest = lines.rest(self.total)
        for name in dict.fromkeys(name for one in rest for name, value in one.items() if _is_number(value)):
            values = (one.get(name) for one in rest)
            yield name, np.array([value if _is_number(value) else np.nan for value in values], dtype=np.float64)

    def _improved(self, lines: Lines, place: int) -> float:
        """The share of the participants whose loss did not rise in a round; NaN where losses were not measured."""
        if not lines.has_block(place, "losses"):
            return float("nan")
        line = lines[place]
        losses, before = line.losses, self._losses.get(line.seed)
        assert losses is not None
        now = self._losses[line.seed] = line.round, losses, line.columns.participants(line.row)
        return shares_improved([before, now]).get(line.round, np.nan) if before is not None else np.nan


def values_of(lines: Lines, places: Sequence[int], evaluation: str, split: int) -> Array:
    """Values `[k, m, n]` of clients by line and objective; NaN where not known."""
    return lines.columns.stacked(lines.rows_with(evaluation, places), evaluation, split)


def low_ends(values: Array, maximise: bool) -> tuple[Array, Array]:
    """The worst of each row of values `[k, n]`, and what nine of ten have at least; NaN without any."""
    ordered = np.sort(values if maximise else -values, axis=1)  # NaN comes last.
    known = np.isfinite(ordered).sum(axis=1)
    place = np.maximum(known - 1, 0) * (LOW_SHARE / 100)
    low = np.floor(place).astype(np.int64)
    rows = np.arange(len(ordered))
    at, above = ordered[rows, low], ordered[rows, np.minimum(low + 1, np.maximum(known - 1, 0))]
    nine = at + (above - at) * (place - low)
    sign = 1.0 if maximise else -1.0
    return sign * ordered[:, 0], sign * nine


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Run:
    """One run's folder, followed."""

    def __init__(self, id: str, name: str, folder: Path) -> None:
        self.id, self.name, self.folder = id, name, folder
        self.following = Following(folder)
        self.busy = False
        self.seen_as: Callable[[Record], Record] = lambda record: record
        """A view of its record for whoever asks, such as one without outliers."""
        self.series = Series()
        self.sums: tuple[int, object] | None = None
        """Figures that follow from all lines, and the version of the lines."""
        self._spec = Kept(folder / "spec.yaml", _flat_spec)
        self._lock = Lock(folder / ".lock")
        self._is_new = True

    @property
    def is_due(self) -> bool:
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
        """The state that the run wrote last; unknown where that cannot be read."""
        try:
            return self.following.status.value
        except UserError:
            return Status()

    @property
    def about(self) -> Record:
        """The record without any round; raises what is wrong with the folder."""
        return self.following.about.value

    @property
    def record(self) -> Record:
        return self.seen_as(self.following.record())

    @property
    def latest(self) -> Record:
        """Record with the rounds, or before the first round what run.json says."""
        try:
            return self.record
        except UserError:
            return self.about

    @property
    def lines(self) -> Sequence[Line]:
        return self.following.lines

    @property
    def is_starting(self) -> bool:
        """Return whether a process is at work on it that has not come to its first round."""
        return self.busy and self.following.about.seen is None

    @property
    def error(self) -> str | None:
        """The fault of the folder, in one line."""
        try:
            self.following.check()
        except UserError as problem:
            return " ".join(str(problem).split())
        return None

    @property
    def news(self) -> dict[str, Any]:
        lines, epoch = len(self.lines), self.following.epoch
        return {"run": self.id, "lines": lines, "epoch": epoch, "status": self.plain_status}

    @property
    def plain_status(self) -> dict[str, Any]:
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
        """Return whether preferences stay with the nodes; a spec that cannot be read may have said so."""
        try:
            return self._spec.value.get("preferences") == PRIVATE
        except UserError:
            return True

    @property
    def is_servable(self) -> bool:
        return any((self.folder / name).is_file() for name in MODELS) and (self.folder / "inputs.json").is_file()

    def told_since(self, since: int, epoch: int) -> dict[str, Any]:
        """The known numbers of lines from this one on, for an event; empty if nobody has those before."""
        is_followed = since > 0 and (self.series.total, self.series.epoch) == (since, epoch)
        are_few = epoch == self.following.epoch and 0 < len(self.lines) - since <= MOST_TOLD
        if not is_followed or not are_few or self.error is not None:
            return {}
        known = {name: column for name, column in self.numbers(since).items() if np.isfinite(column).any()}
        told = {name: [one if math.isfinite(one) else None for one in _short(name, known[name])] for name in known}
        return {"since": since, "numbers": told}

    def numbers(self, since: int) -> dict[str, np.ndarray]:
        """The numbers of each line from this one on that was read, by name."""
        lines = self.following.kept
        if lines is None:
            return {}
        self.series.follow(self.about, lines, self.following.epoch)
        return self.series.since(self.about, lines, since)

    def at(self, since: int, epoch: int) -> int:
        """First line of an answer: those before are known to whoever asks, unless they changed since."""
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
    """Make a value such as JSON can hold: no infinite numbers, no dates."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    is_plain = value is None or isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else str(value)
