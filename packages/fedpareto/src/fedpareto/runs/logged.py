"""Reports on a run to other tools: figures of every round, the spec and how it ended. Never of a single client."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedpareto.config import plugins
from fedpareto.config.errors import UserError
from fedpareto.contract.problem import Objective
from fedpareto.moo import preferences
from fedpareto.record import columns
from fedpareto.record.recording import HYPERVOLUMES
from fedpareto.runs.callbacks import Callback, Ending, Run
from fedpareto.runs.result import Result
from fedpareto.spec.spec import Spec

log = logging.getLogger("fedpareto.run")

GROUP = "fedpareto.reports"
"""The entry points by which packages offer tools that runs are reported to, by name: subclasses of Log or Callback."""
NO_FIGURES = ("seed", "round", "at", columns.KEY)
"""Keys of a row whose number is a place or a time."""
WITHHELD = ("problem.file", "problem.sql", "problem.query", "engine.address")
"""Parameters that say where data are: an address may hold a password."""

Row = Mapping[str, Any]
"""A line of metrics.jsonl."""
Plain = str | int | float | bool


@dataclass(frozen=True)
class About:
    """A run, before anything is measured."""

    name: str
    """The run's folder, or without one its algorithm and problem."""
    problem: str
    seeds: tuple[int, ...]
    parameters: Mapping[str, Plain]
    """The spec, as `algorithm.top_ratio: 0.2`, without what belongs to clients or tells where data are."""
    folder: Path | None = None
    """Folder in which the run is kept, if it is."""


class Log(ABC):
    """A tool that keeps figures of runs: each seed is a run of its own there."""

    def __init__(self, about: About, where: str = "") -> None:
        """Raises UserError if the tool is not installed; `where` is what the user wrote behind `NAME:`."""
        self.about, self.where = about, where

    @abstractmethod
    def begin(self) -> None:
        """Begin once all is ready. A run that goes on is told from its beginning again: nothing may be kept twice."""

    @abstractmethod
    def figures(self, seed: int, round: int, at: float, values: Mapping[str, float]) -> None:
        """Log the figures of one row, which was written `at` so many seconds after 1970 began."""

    @abstractmethod
    def final(self, seed: int, round: int, values: Mapping[str, float]) -> None:
        """The indicators of the solutions that a seed leaves behind, and the round that they are of."""

    @abstractmethod
    def flush(self) -> None:
        """A round is over: what was told is to be seen."""

    @abstractmethod
    def end(self, how: Ending) -> None:
        """End the log: nothing more will come."""


def opened(log_to: str | Sequence[str], spec: Spec, folder: Path | None) -> list[Callback]:
    """The callbacks of these words, each `NAME` or `NAME:WHERE`: one tells all logs of the run.

    UserError if one is unknown or not installed.
    """
    words = [log_to] if isinstance(log_to, str) else log_to
    tools = [_opened(word, _about(spec, folder)) for word in words]
    logs = [tool for tool in tools if isinstance(tool, Log)]
    found = [tool for tool in tools if isinstance(tool, Callback)]
    return [*found, Teller(logs)] if logs else found


def _opened(word: str, about: About) -> Log | Callback:
    name, _, where = word.partition(":")
    for point in entry_points(group=GROUP, name=name):
        tool: Log | Callback = plugins.loaded(point)(about, where)
        return tool
    tools = " or ".join(sorted(point.name for point in entry_points(group=GROUP)))
    raise UserError(f"a run cannot be logged to '{word}'; it is {tools}, alone or as NAME:WHERE")


class Teller(Callback):
    """Tells logs what a run records. A log that fails is left alone from then on: a run never ends for its sake."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self.logs, self._told = list(logs), 0

    def on_begin(self, run: Run) -> None:
        self._each(lambda log: log.begin())

    def on_round(self, run: Run) -> None:
        """Tell what was recorded since the last time; at first all of it, of a run that goes on."""
        history = run.history
        new, self._told = history[self._told :], len(history)
        splits, objectives = run.splits, run.spec.problem.objectives
        rows = [
            (row["seed"], row["round"], row.get("at", time.time()), figures_of(row, splits, objectives)) for row in new
        ]

        def all_of_it(log: Log) -> None:
            for row in rows:
                log.figures(*row)
            log.flush()

        self._each(all_of_it)

    def on_end(self, run: Run, how: Ending, result: Result | None) -> None:
        """The indicators of each seed's solutions. No picture of them: every dot in it would be a client's."""
        if result is not None:
            self.on_round(run)
            self._finish(result)
        self._each(lambda log: log.end(how))

    def _finish(self, result: Result) -> None:
        last = [
            (seed, kept, _finite(solutions.indicators()))
            for seed, kept, solutions in zip(result.spec.seeds, result.kept, result.solutions, strict=True)
        ]

        def all_of_them(log: Log) -> None:
            for one in last:
                log.final(*one)

        self._each(all_of_them)

    def _each(self, act: Callable[[Log], None]) -> None:
        for one in list(self.logs):
            try:
                act(one)
            except Exception as problem:
                self.logs.remove(one)
                why = " ".join(str(problem).split()) or type(problem).__name__
                log.warning("no longer logged to %s: %s; the run goes on", type(one).__name__, why)


def figures_of(row: Row, splits: Sequence[str], objectives: Sequence[Objective]) -> dict[str, float]:
    """The plain numbers of a row by name, and means as `sent/test/accuracy`; nothing that is a list of clients."""
    found = {name: value for name, value in row.items() if name not in NO_FIGURES}
    for kind in HYPERVOLUMES:
        means = row.get(kind) or {}
        for split in splits:
            names = [f"{kind}/{split}/{objective.name}" for objective in objectives]
            found |= dict(zip(names, means.get(split) or (), strict=False))
    return _finite(found)


def parameters_of(spec: Spec) -> dict[str, Plain]:
    """A spec as `algorithm.top_ratio: 0.2`. Of preferences only the name of their distribution, if they have one."""
    found: dict[str, Plain] = {}
    for key, value in spec.to_mapping().items():
        for name, part in value.items() if isinstance(value, Mapping) else [("", value)]:
            place = f"{key}.{name}" if name else key
            if place not in (*WITHHELD, "preferences", "seeds"):
                found[place] = part if isinstance(part, str | int | float) else ",".join(map(str, part or ()))
    word = spec.preferences.partition(":")[0] if isinstance(spec.preferences, str) else ""
    return found | {"preferences": word if word in preferences.NAMES else "given"}


def _about(spec: Spec, folder: Path | None) -> About:
    name = f"{spec.algorithm.name}-{spec.problem.name}"
    if folder is not None:
        name = folder.resolve().name if folder.is_absolute() or ".." in folder.parts else folder.as_posix()
    return About(name, spec.problem.name, tuple(spec.seeds), parameters_of(spec), folder)


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
