"""A run's progress as the user sees it."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from fedpareto.record.units import TIME
from fedpareto.spec.spec import Spec

LINES_IN_A_RUN = 10
LONGEST_SILENCE = 60.0
"""Seconds after which a message is due although the next tenth of a run is not done."""


@dataclass(frozen=True)
class Progress:
    """The progress of a run, after each round."""

    round: int
    rounds: int
    measured: int
    """The round after which solutions were measured: the one before, whose solutions this round began with."""
    hypervolume: float
    """Hypervolume of the solutions that the server sends, mean over seeds; NaN in a round without an evaluation."""
    failures: int
    means: Mapping[str, float] = field(default_factory=dict)
    """Means by objective, over clients and seeds, of what the server sends; empty without an evaluation."""
    clock: float | None = None
    """Simulated seconds since the run began, mean over seeds; None without devices."""

    @property
    def headline(self) -> tuple[str, float]:
        """The summary measure and its value: the hypervolume, or of a single objective the clients' mean."""
        if len(self.means) == 1:
            ((name, mean),) = self.means.items()
            return f"mean {name}", mean
        return "hypervolume", self.hypervolume


OnRound = Callable[[Progress], None]
OnBegin = Callable[[int], None]
"""Called once all is ready, with the number of rounds that are over: 0, or more in a resumed run."""


class Shown:
    """A run's progress on stderr: a message at the start, then one now and then, which suits a log file."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        self.name = f"{spec.algorithm.name} on {spec.problem.name}"

    def begin(self, done: int) -> None:
        """Begin once all is ready: a run that cannot begin shows nothing but its error."""
        spec = self.spec
        seeds = f", {len(spec.seeds)} seeds" if len(spec.seeds) > 1 else ""
        going_on = f", going on after round {done}" if done else ""
        hours = f" or {spec.hours:g} simulated h" if spec.hours else ""
        what = f"{self.name}, {spec.clients} clients, {spec.rounds} rounds{hours}{seeds}"
        _print(f"{what}; kept in {self.folder}{going_on}")
        self.first = self.last = (done / spec.rounds, time.monotonic())

    def round(self, now: Progress) -> None:
        """Log after every round: a message for every tenth of a run, and at least one a minute."""
        moment = (self._share(now), time.monotonic())
        tenth = _tenths(moment[0]) > _tenths(self.last[0])
        if tenth or moment[1] - self.last[1] >= LONGEST_SILENCE:
            self.last = moment
            name, value = now.headline
            found = f", {name} {value:.4f} after round {now.measured}" if math.isfinite(value) else ""
            line = f"{self.name}: round {now.round} of {now.rounds}{_simulated(now)}{found}{_refused(now)}"
            _print(f"{line}{self._left(now, moment[1])}")

    def end(self) -> None:
        """End, however the run ended."""

    def _share(self, now: Progress) -> float:
        """Share of a run that is over, which ends by its rounds or by the clock."""
        by_rounds = now.round / now.rounds
        return max(by_rounds, _hours(now) / self.spec.hours) if self.spec.hours else by_rounds

    def _left(self, now: Progress, moment: float) -> str:
        share = self._share(now)
        if share >= 1 or share == self.first[0]:
            return ""
        seconds = (moment - self.first[1]) / (share - self.first[0]) * (1 - share)
        return f", {timedelta(seconds=round(seconds))} left"


class Pulse(Shown):
    """Pulse of a long training among others: one message a minute."""

    def begin(self, done: int) -> None:
        self.first = self.last = (done / self.spec.rounds, time.monotonic())

    def round(self, now: Progress) -> None:
        if time.monotonic() - self.last[1] >= LONGEST_SILENCE:
            super().round(now)


class ShownInTerminal(Shown):
    """A run's progress as a bar."""

    def begin(self, done: int) -> None:
        super().begin(done)
        self.bar = _bar()
        hours = self.spec.hours
        total, completed, noun = (hours, 0, "simulated h") if hours else (self.spec.rounds, done, "rounds")
        self.task = self.bar.add_task(self.name, total=total, completed=completed, noun=noun, found="", refused="")
        self.bar.start()

    def round(self, now: Progress) -> None:
        """Moves the bar."""
        by_the_clock = bool(self.spec.hours)
        self.bar.update(self.task, completed=_hours(now) if by_the_clock else now.round, refused=_refused(now))
        name, value = now.headline
        if math.isfinite(value):
            self.bar.update(self.task, found=f"  {name} {value:.4f} after round {now.measured}")
        if by_the_clock:
            self.bar.update(self.task, noun=f"simulated h, round {now.round}")
        elif now.clock is not None:
            self.bar.update(self.task, noun=f"rounds{_simulated(now)}")

    def end(self) -> None:
        """Leaves the terminal as it was."""
        if hasattr(self, "bar"):
            self.bar.stop()


class ShownNowhere(Shown):
    """Quiet."""

    def begin(self, done: int) -> None:
        """Do nothing."""

    def round(self, now: Progress) -> None:
        """Do nothing."""


class Tally:
    """The progress of many runs: a message now and then, with an estimate of the time left."""

    BETWEEN = 5.0
    """Fewest seconds between two messages."""
    ENOUGH = 10
    """Runs after which the time left is estimated; the first ones also wait for the processes to start."""

    def __init__(self, noun: str, total: int, say: Callable[[str], None]) -> None:
        self.noun, self.total, self.say = noun, total, say
        self.done = self.failed = 0
        self.begun = self.last = time.monotonic()

    def one_more(self, failed: bool = False) -> None:
        """Count one more run."""
        self.done += 1
        self.failed += failed
        now = time.monotonic()
        if now - self.last >= self.BETWEEN or self.done == self.total:
            left = (now - self.begun) / self.done * (self.total - self.done)
            told = f", about {timedelta(seconds=round(left))} left" if left and self.done >= self.ENOUGH else ""
            self.last = now
            self.say(f"{self.done} of {self.total} {self.noun}{self._bad}{told}")

    @property
    def _bad(self) -> str:
        return f", {self.failed} failed" if self.failed else ""

    def end(self) -> None:
        """End, however it ended."""


class TallyInTerminal(Tally):
    """Tally shown as a bar."""

    def __init__(self, noun: str, total: int, say: Callable[[str], None]) -> None:
        super().__init__(noun, total, say)
        self.bar = _bar()
        self.task = self.bar.add_task("", total=total, noun=noun, found="", refused="")
        self.bar.start()

    def one_more(self, failed: bool = False) -> None:
        """Moves the bar."""
        self.done += 1
        self.failed += failed
        self.bar.update(self.task, completed=self.done, refused=self._bad)

    def end(self) -> None:
        """Leaves the terminal as it was."""
        self.bar.stop()


def tallied(noun: str, total: int, quiet: bool = False) -> Tally:
    """The kind of progress that fits where stderr goes."""
    if quiet:
        return Tally(noun, total, lambda line: None)
    return (TallyInTerminal if sys.stderr.isatty() else Tally)(noun, total, _print)


def shown(spec: Spec, folder: Path, quiet: bool = False) -> Shown:
    """The kind of progress that fits where stderr goes."""
    if quiet:
        return ShownNowhere(spec, folder)
    return (ShownInTerminal if sys.stderr.isatty() else Shown)(spec, folder)


def _bar() -> Any:
    """Make a bar with rounds, the current quality of the solutions and the time left."""
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[noun]}{task.fields[found]}{task.fields[refused]}"),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )


def _print(line: str) -> None:
    # A closed pipe (run | head) must not end the run.
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def _simulated(now: Progress) -> str:
    return "" if now.clock is None else f", simulated {TIME.text(now.clock)}"


def _hours(now: Progress) -> float:
    return (now.clock or 0.0) / 3600


def _tenths(share: float) -> int:
    return int(share * LINES_IN_A_RUN + 1e-9)  # Three times a third counts as all.


def _refused(now: Progress) -> str:
    return f", {now.failures} without reply" if now.failures else ""
