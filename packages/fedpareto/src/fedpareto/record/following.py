"""A run folder read as it grows: only what was appended is read, and every line is checked once.

A run that is resumed cuts its files back to its last checkpoint and writes on from there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.record.columns import FILE, KEY, in_folder
from fedpareto.record.entries import Event, Line
from fedpareto.record.growing_file import EVERYTHING, Added, Growing, Kept, last_object, objects, signature
from fedpareto.record.lines import Lines
from fedpareto.record.parsing import (
    CENTRAL_FILE,
    central_of,
    event_of,
    line_of,
    run_of,
    solution_so_far,
    solutions_of,
    status_of,
)
from fedpareto.record.run_files import read_text
from fedpareto.record.run_record import Record

FINISHED = "finished"
Shape = tuple[int, tuple[str, ...], int]
"""Clients, splits and number of objectives, without which values cannot be read."""


class NoRoundsYet(UserError):
    """A run without anything to show yet."""


@dataclass(frozen=True)
class Change:
    """New content of a folder since it was last read."""

    lines: int = 0
    """Number of new rounds."""
    events: bool = False
    """True if there are other events."""
    again: bool = False
    """True if known lines were replaced: `epoch` is another."""
    status: bool = False
    about: bool = False
    """True if any other file is another."""

    def __bool__(self) -> bool:
        return bool(self.lines or self.events or self.again or self.status or self.about)


class Rounds:
    """The lines of metrics.jsonl."""

    def __init__(self, folder: Path, shape: Shape, epoch: int) -> None:
        self.shape, self.epoch, self.columns = shape, epoch, in_folder(folder, *shape)
        self._path, self._values = folder / "metrics.jsonl", str(folder / FILE)
        self.file = Growing(self._path)
        self.lines = Lines(self.columns)
        self.damage: UserError | None = None
        """The first damaged line; no line after it is read."""
        self.trouble: UserError | None = None
        """The reason why the file could not be read the last time."""
        self.waiting: list[tuple[dict[str, Any], str]] = []
        """Rows whose values are not whole yet, with their place in the file."""
        self._length = self._reached = 0

    def read(self, most: int) -> tuple[int, bool]:
        """Return the number of new lines, and whether known ones were replaced."""
        before, known, seen = self.epoch, len(self.lines), self.file.seen
        try:
            found = self.file.read(most)
            if not found.texts and not self.waiting and self.file.seen == seen:
                return 0, False
            # After the rows: values are written before the rows that say where they lie.
            values = signature(self._values)
            self._length = values[0] if values else 0
            if not found.again and self._reached > self._length:
                self.file = Growing(self._path)
                found = dataclasses.replace(self.file.read(most), again=True)
            self.trouble = None
        except UserError as problem:
            self.trouble = problem
            return 0, False
        if found.again:
            self.epoch += bool(self.lines)
            self.lines, self.waiting, self._reached, self.damage = Lines(self.columns), [], 0, None
        if self.damage is None:
            self._take_all(found)
        is_again = self.epoch != before
        return len(self.lines) - (0 if is_again else known), is_again

    def _take_all(self, found: Added) -> None:
        waiting, self.waiting = self.waiting, []
        try:
            for data, where in (*waiting, *objects(found, self._path)):
                self._take(data, where)
        except UserError as problem:
            self.damage = problem

    def _take(self, data: dict[str, Any], where: str) -> None:
        data[KEY] = self.columns.blocks(data)
        reach = max((block.end for block in data[KEY].values()), default=0)
        if reach > self._length:
            self.waiting.append((data, where))
            return
        line = line_of(data, where, self.columns)
        self._reached = max(self._reached, reach)
        place = self.lines.place_of(line.seed, line.round)
        if place is None:
            self.lines.append(line)
        else:
            # A resumed run writes the round it was stopped in again; the later row counts.
            self.lines.replace(place, line)
            self.epoch += 1

    def check(self, is_over: bool) -> None:
        """Raises what is wrong; after a power cut the values of the last rows of a run under way may be missing."""
        if (problem := self.damage or self.trouble) is not None:
            raise problem
        if is_over and self.waiting and not self.file.left:
            reach = self.columns.reaches(self.waiting[0][0])
            raise DamagedFile(f"{self._values} is damaged: {self._length} bytes are left of {reach}")
        if is_over and not self.lines and not self.file.left:
            raise DamagedFile(f"{self._path} is damaged: the run is finished, but it holds no round")


class Following:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder = Path(folder)
        self.about = Kept(folder / "run.json", lambda path: run_of(path.parent))
        self.status = Kept(folder / "status.json", status_of)
        self.spec = Kept(folder / "spec.yaml", read_text)
        self.solutions = Kept(folder / "solutions.json", lambda path: solutions_of(self.about.value, path))
        self.central = Kept(folder / CENTRAL_FILE, lambda path: central_of(path, len(self.about.value.objectives)))
        self.events: list[Event] = []
        self._rounds: Rounds | None = None
        self._log = Growing(folder / "events.jsonl")
        self._log_problem: UserError | None = None
        self._version = 0

    @property
    def epoch(self) -> int:
        """Counter of how often known lines were replaced."""
        return self._rounds.epoch if self._rounds else 0

    @property
    def lines(self) -> Sequence[Line]:
        return self._rounds.lines if self._rounds else ()

    @property
    def kept(self) -> Lines | None:
        """The lines as they are stored; None until run.json could be read."""
        return self._rounds.lines if self._rounds else None

    @property
    def left(self) -> int:
        return self._log.left + (self._rounds.file.left if self._rounds else 0)

    def glimpse(self) -> dict[str, Any]:
        """Return the last row, unchecked, of a folder that is still to be read."""
        return last_object(self.folder / "metrics.jsonl")

    @property
    def done(self) -> int:
        return self._log.offset + (self._rounds.file.offset if self._rounds else 0)

    @property
    def version(self) -> int:
        """Counter of all changes."""
        return self._version

    @property
    def changed(self) -> float:
        """Time of the last write, in seconds since 1970."""
        seen = [self.about.seen, self.status.seen, self.spec.seen, self.solutions.seen, self._log.seen]
        seen += [self._rounds.file.seen] if self._rounds else []
        return max((one[1] for one in seen if one is not None), default=0) / 1e9

    @property
    def problem(self) -> UserError | None:
        """The first problem of lines or events, if any."""
        return (self._rounds.damage or self._rounds.trouble if self._rounds else None) or self._log_problem

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, most: int = EVERYTHING) -> Change:
        """Read what was appended, not many more than `most` bytes of it."""
        # First the status: once it says that a run is finished, everything else has been written.
        problem = self.problem
        status, about = self.status.look(), self.about.look()
        self._understand()
        lines, again = self._rounds.read(most) if self._rounds else (0, False)
        events = self._read_events(most)
        others = [kept.look() for kept in (self.spec, self.solutions, self.central)]
        change = Change(lines, events, again, status, about or any(others) or self.problem is not problem)
        self._version += bool(change)
        return change

    def _understand(self) -> None:
        """Read lines again if run.json changed what they mean."""
        try:
            run = self.about.value
        except UserError:
            return
        shape = run.clients, run.splits, len(run.objectives)
        if self._rounds is None or self._rounds.shape != shape:
            self._rounds = Rounds(self.folder, shape, self.epoch + bool(self.lines))

    def _read_events(self, most: int) -> bool:
        """Return True if there are other events."""
        try:
            found = self._log.read(most)
            if found.again:
                self.events, self._log_problem = [], None
            if self._log_problem is None:
                self.events += [event_of(data, where) for data, where in objects(found, self._log.path)]
        except UserError as problem:
            self._log_problem = problem
            return False
        return bool(found.again or found.texts)

    # -- what is there ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what is wrong with the folder, as far as it was read; that there is no round yet is not."""
        _ = self.about.value, self.solutions.value
        if self._rounds:
            self._rounds.check(self.status.value.name == FINISHED)
        if self._log_problem is not None:
            raise self._log_problem

    def record(self) -> Record:
        """Return the run as read so far; `UserError` says in one line why it cannot be shown."""
        run, status = self.about.value, self.status.value
        if self._rounds:
            self._rounds.check(status.name == FINISHED)
        lines = self._rounds.lines.ordered() if self._rounds else ()
        record = dataclasses.replace(run, status=status, lines=lines)
        if not record.started:
            reason = f": {status.message}" if status.message else ""
            raise NoRoundsYet(f"{self.folder}: no rounds yet (status: {status.name}{reason})")
        if self._log_problem is not None:
            raise self._log_problem
        record = dataclasses.replace(
            record, events=tuple(self.events), spec=self.spec.value, central=self.central.value
        )
        known = self.solutions.value
        found = (known.get(seed) or solution_so_far(record, seed) for seed in record.started)
        return dataclasses.replace(record, solutions=tuple(found))
