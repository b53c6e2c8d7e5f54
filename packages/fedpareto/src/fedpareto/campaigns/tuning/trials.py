"""Candidates as runs: those of the same shape side by side in one stack, the others one by one.

A stack is one engine whose federations are all seeds of all candidates. The client half of all of them is one batched
program, with what differs, such as the step size, as a number of each client; every server half is the candidate's own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.campaigns.parallel import Stop
from fedpareto.campaigns.tuning import measures
from fedpareto.campaigns.tuning.measures import Measured
from fedpareto.config.errors import QuorumLost, UserError, in_words
from fedpareto.config.interrupts import Stopped
from fedpareto.config.parameters import to_plain
from fedpareto.contract.algorithm import State, overrides
from fedpareto.contract.messages import Outcome, Parcels, Tasks, traffic
from fedpareto.contract.solutions import chosen_on
from fedpareto.engines.faults import Faults
from fedpareto.engines.reply_checks import enforce_quorum
from fedpareto.record.recording import by_split
from fedpareto.runs import runner
from fedpareto.runs.result import Result
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.settings import begun_as, settings_of
from fedpareto.spec.spec import SWEEP, Spec

DIVERGED = "training diverged: a client's objectives are not finite numbers"
Look = Callable[[int, int, Measured], bool]
"""Called with a candidate's number, its rounds so far and their results; returns True to give the candidate up."""


@dataclass(frozen=True)
class Ended:
    """The result of a candidate."""

    values: dict[str, float]
    """Values by the name of the measure; empty if it failed."""
    bytes: float = 0.0
    """Bytes of its messages, of all seeds."""
    seconds: float = 0.0
    reason: str = ""
    """Reason of a failure."""
    pruned: bool = False


@dataclass(frozen=True)
class Piece:
    """Candidates that are done together, as plain values for another process."""

    specs: tuple[dict[str, Any], ...]
    judged_by: tuple[str, ...]


def shape(spec: Spec) -> str | None:
    """Return what candidates of one stack have in common; None: this one runs by itself.

    Time, noise, attacks and whatever else looks beyond one round of messages is the loop's own: see runner.
    """
    alone = (
        not spec.engine.in_process
        or spec.timed
        or spec.faults != Faults()
        or spec.stop_after
        or spec.measure_losses
        or spec.measure_contribution
        or spec.server_codec != "float32"
        or spec.preferences == SWEEP
        or any(kind != "none" for kind in (spec.privacy.kind, spec.secure_sum.kind, spec.attack.kind))
        or spec.defence.rule != "none"
    )
    if alone:
        return None
    found = spec.to_mapping()
    for key in ("participation", "rounds", "evaluate_every", "quorum"):
        del found[key]
    for section, names in (("learner", spec.learner.own), ("algorithm", spec.algorithm.of_server)):
        found[section] = {key: value for key, value in found[section].items() if key not in names}
    return json.dumps(found, sort_keys=True, default=str)


def do(out: Path, piece: Piece, stop: Stop) -> list[Ended]:
    specs = [Draft(values).finish() for values in piece.specs]
    return run_all(specs, piece.judged_by, stop)


def run_all(
    specs: Sequence[Spec],
    judged_by: Sequence[str],
    stop: Stop = lambda: False,
    look: Look | None = None,
    every: int = 0,
) -> list[Ended]:
    """Train candidates of one shape in one stack, or a single one."""
    if shape(specs[0]) is None:
        return [_alone(spec, judged_by, stop) for spec in specs]
    begun = time.perf_counter()
    try:
        found = _Trials(specs, stop, look, every).run()
    except (Stopped, KeyboardInterrupt):
        raise
    except Exception as problem:  # One candidate may spoil it for all: each by itself, then.
        if len(specs) == 1:
            return [_failed(problem)]
        one_by_one = (run_all([spec], judged_by, stop, _shifted(look, i), every) for i, spec in enumerate(specs))
        return [ended for some in one_by_one for ended in some]
    seconds = (time.perf_counter() - begun) / len(specs)
    return [
        _ended(spec, one, judged_by, spent, seconds, pruned) if not reason else Ended({}, spent, seconds, reason)
        for spec, (one, spent, pruned, reason) in zip(specs, found, strict=True)
    ]


def _shifted(look: Look | None, by: int) -> Look | None:
    return None if look is None else lambda number, rounds, found: look(number + by, rounds, found)


def _alone(spec: Spec, judged_by: Sequence[str], stop: Stop) -> Ended:
    begun = time.perf_counter()
    try:
        result = runner.start(spec, None, stop=stop, keep_models=False)
    except (Stopped, KeyboardInterrupt):
        raise
    except Exception as problem:  # Whatever is wrong with one candidate is no reason to give up the others.
        return _failed(problem)
    spent = float(sum(row.get("bytes_down", 0) + row.get("bytes_up", 0) for row in result.history))
    return _ended(spec, _of_result(result, spent), judged_by, spent, time.perf_counter() - begun)


def _failed(problem: Exception) -> Ended:
    what = "" if isinstance(problem, UserError) else f"{type(problem).__name__}: "
    return Ended({}, reason=what + in_words(problem))


def _ended(
    spec: Spec, found: Measured, judged_by: Sequence[str], spent: float, seconds: float, pruned: bool = False
) -> Ended:
    if not all(len(points) and np.isfinite(points).all() for points in found.points):
        return Ended({}, spent, seconds, DIVERGED)
    values = {name: measures.named(spec, name, name).of(found) for name in judged_by}
    return Ended(values, spent, seconds, pruned=pruned)


def _of_result(result: Result, spent: float) -> Measured:
    """Measure a run by itself. A client that has no solution counts as a row of NaN."""
    spec, points = result.spec, []
    for solutions in result.solutions:
        found = np.asarray(solutions.values[chosen_on(list(solutions.values))], dtype=float)
        is_whole = len(found) == spec.clients or overrides(spec.algorithm, "found")
        points.append(found if is_whole else np.full((1, len(spec.problem.objectives)), np.nan))
    others = {}
    if spec.simulates:
        last = {row["seed"]: row for row in result.history}.values()
        others["seconds"] = float(np.mean([row.get("over", row["clock"]) for row in last]))
        others["joules"] = float(np.mean([row["joules"] for row in last]))
    if (epsilon := result.epsilon) is not None:
        others["epsilon"] = epsilon
    preferences = [solutions.preferences for solutions in result.solutions]
    return Measured(points, preferences, spent / len(spec.seeds), others)


# -- a stack -------------------------------------------------------------------------------------------------------


class _Trials:
    """Candidates of one shape, all seeds of all of them in one engine."""

    def __init__(self, specs: Sequence[Spec], stop: Stop, look: Look | None, every: int) -> None:
        self.specs, self.stop, self.look, self.every = specs, stop, look, every
        self.of = [number for number, spec in enumerate(specs) for _ in spec.seeds]
        """The candidate of each run of the engine."""
        first = specs[0]
        federations = [first.federation(seed) for seed in first.seeds]
        settings = [setting for spec in specs for setting in settings_of(spec)]
        own = {
            name: torch.tensor([to_plain(specs[number].learner)[name] for number in self.of], dtype=torch.float64)
            for name in first.learner.own
            if len({to_plain(spec.learner)[name] for spec in specs}) > 1
        }
        self.engine = backends.local(first, None, federations * len(specs), settings, own)
        begun = [begun_as(specs[number], one) for number, one in zip(self.of, self.engine.settings, strict=True)]
        self.states: list[State] = [
            specs[number].algorithm.begin(one) for number, one in zip(self.of, begun, strict=True)
        ]
        self.spent = [0.0] * len(self.of)
        self.pruned: set[int] = set()
        self.lost: dict[int, str] = {}
        """Candidates whose clients gave no valid reply, and why."""

    def run(self) -> list[tuple[Measured, float, bool, str]]:
        """Return each candidate's results, bytes, whether it was given up, and the reason of a failure."""
        with self.engine.threads():
            while going := self._going():
                if self.stop():
                    raise Stopped("stopped in the middle of a stack of candidates")
                self._round(going)
                self._give_up(going)
            measured = self._measured(range(len(self.specs)))
        return [
            (one, self._bytes(number), number in self.pruned, self.lost.get(number, ""))
            for number, one in enumerate(measured)
        ]

    def _bytes(self, number: int) -> float:
        return sum(spent for of, spent in zip(self.of, self.spent, strict=True) if of == number)

    def _going(self) -> list[int]:
        return [
            run
            for run, number in enumerate(self.of)
            if number not in self.pruned
            and number not in self.lost
            and self.states[run].round < self.specs[number].rounds
        ]

    def _round(self, going: Sequence[int]) -> None:
        """All exchanges of the next round of these runs; one whose round took fewer waits for the others."""
        before = {run: self.states[run].round for run in going}
        while waiting := [run for run in self._of_good(going) if self.states[run].round == before[run]]:
            tasks: list[list[Tasks]] = [[] for _ in self.of]
            for run in waiting:
                tasks[run] = self.specs[self.of[run]].algorithm.ask(self.states[run])
            outcomes = self.engine.exchange(tasks, [None] * len(self.of))
            for run in waiting:
                replies, spec = outcomes[run].replies, self.specs[self.of[run]]
                try:
                    enforce_quorum(spec.quorum, replies, outcomes[run].failures, run)
                except QuorumLost as lost:
                    self.lost[self.of[run]] = str(lost)
                everyone = self.states[run].setting.clients
                cost = traffic(tasks[run], replies, spec.algorithm.neighbours(len(everyone)), everyone)
                self.spent[run] += float(cost.both_ways.sum())
                if self.of[run] not in self.lost:
                    self.states[run] = spec.algorithm.tell(self.states[run], replies)

    def _of_good(self, runs: Sequence[int]) -> list[int]:
        return [run for run in runs if self.of[run] not in self.lost]

    def _give_up(self, going: Sequence[int]) -> None:
        """Give up the candidates that `look` does not want to see any further."""
        numbers = sorted({self.of[run] for run in self._of_good(going)})
        rounds = {number: self.states[self.of.index(number)].round for number in numbers}
        due = [n for n in numbers if self.every and rounds[n] % self.every == 0 and rounds[n] < self.specs[n].rounds]
        if self.look is None or not due:
            return
        for number, found in zip(due, self._measured(due), strict=True):
            if self.look(number, rounds[number], found):
                self.pruned.add(number)

    def _measured(self, numbers: Sequence[int]) -> list[Measured]:
        wanted: list[Parcels | None] = [
            self.specs[number].algorithm.solutions(self.states[run]) if number in numbers else None
            for run, number in enumerate(self.of)
        ]
        outcomes = self.engine.run_all([[] for _ in self.of], wanted)
        return [self._one(number, outcomes) for number in numbers]

    def _one(self, number: int, outcomes: Sequence[Outcome]) -> Measured:
        spec, names = self.specs[number], self.engine.split_names
        points: list[np.ndarray] = []
        preferences: list[np.ndarray | None] = []
        runs = [run for run, of in enumerate(self.of) if of == number]
        for seed, run in zip(spec.seeds, runs, strict=True):
            found = spec.algorithm.found(self.states[run])
            if found is not None and len(found.models):
                points.append(found.values[:, 1].double().cpu().numpy())
                preferences.append(found.weights.double().cpu().numpy())
                continue
            clients = self.states[run].setting.clients
            values = by_split(outcomes[run].evaluations.sent, clients, names, len(spec.problem.objectives))
            points.append(values[chosen_on(names)])
            preferences.append(spec.preferences_of(seed))
        return Measured(points, preferences, self._bytes(number) / len(spec.seeds))
