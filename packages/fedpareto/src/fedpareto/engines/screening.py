"""Between the clients' work and the algorithm: attackers' forgeries, injected faults, and the check of every reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.messages import (
    ByClient,
    Evaluations,
    Failure,
    Message,
    Outcome,
    Replies,
    Tasks,
    take_rows,
    taken,
)
from fedpareto.engines.checks import misfit, refusal, sound
from fedpareto.engines.faults import DAMAGES, Faults, damaged, fates
from fedpareto.engines.work import Work, in_order
from fedpareto.tensors import rng
from fedpareto.trust.attacks import Raid


class Judged(NamedTuple):
    """What came of some work for one federation."""

    run: int
    replies: Replies
    failures: list[Failure]
    trained: ByClient | None
    """Objectives of the trained models, where they were measured."""


@dataclass
class Done:
    """What came of some work, until it is judged."""

    work: Work
    rows: np.ndarray
    """The rows of it whose clients replied, in ascending order …"""
    message: Message
    """… with what, `[n, ...]` …"""
    values: Tensor | None
    """… and the trained models' objectives, where they were measured."""
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Bytes of each reply, where they are coded."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """The others, by row."""


@dataclass(frozen=True)
class Judge:
    """Decides which replies count, the same wherever clients work."""

    algorithm: Algorithm[Any]
    settings: Sequence[Setting]
    dtype: torch.dtype
    device: torch.device
    faults: Faults = Faults()
    raid: Raid | None = None

    def awake(self, work: Work) -> tuple[np.ndarray, dict[int, Failure]]:
        """The rows whose clients do any work, and the failures of the others."""
        failures: dict[int, Failure] = {}
        asleep = np.zeros(len(work), dtype=bool)
        for is_asleep, reason in self._sleepers(work):
            failures |= {row: failure(work, row, reason) for row in _where(is_asleep)}
            asleep |= is_asleep
        return (np.flatnonzero(~asleep) if failures else work.everything), failures

    def _sleepers(self, work: Work) -> Iterator[tuple[np.ndarray, str]]:
        """Which rows' clients do nothing, `[n]`, and why."""
        if self.faults.happen:
            yield fates(self.faults, self._addresses(work)).drops_out, "dropped out (injected fault)"
        if self.raid is not None and self.raid.attack.kind == "seldom":
            silent = np.zeros(len(work), dtype=bool)
            for run, tasks, rows in work.parts():
                assert isinstance(tasks, Tasks), "only tasks are answered"
                silent[rows] = self.raid.silent(run, work.client[rows], tasks.round)
            yield silent, "said nothing (it seldom replies)"

    def judged(self, done: Done, measured: Sequence[bool]) -> list[Judged]:
        """By federation the replies that count and the failures; `measured`: whose trained models were measured."""
        work, rows, values, failures, sizes = done.work, done.rows, done.values, dict(done.failures), done.sizes
        message = self._forged(work.only(rows), done.message)
        setting = self.settings[work.runs[0]]
        why = misfit(message, self.algorithm, setting, work.step, self.dtype, len(rows)) if len(rows) else None
        if why is None:
            refused = self._refused(work, rows, message)
        else:
            refused = dict.fromkeys(range(len(rows)), f"refused: {why}")
        if refused:
            failures |= {rows[place]: failure(work, rows[place], reason) for place, reason in refused.items()}
            kept = np.setdiff1d(np.arange(len(rows)), list(refused))
            rows, message = rows[kept], taken(message, kept)
            values = None if values is None else take_rows(values, kept)
            sizes = sizes[kept] if len(sizes) else sizes
        return _by_run(work.only(rows), message, values, failures, work, measured, sizes)

    def _refused(self, work: Work, rows: np.ndarray, message: Message) -> dict[int, str]:
        """By place among `rows`, why a reply does not count. The few that fail are looked at one by one."""
        reasons: dict[int, str] = {}
        passed = sound(message, self.algorithm)
        suspects = [] if passed is None else _where(~passed)
        for place in suspects:
            why = self._refusal(work, rows[place], {name: tensor[place] for name, tensor in message.items()})
            if why is not None:
                reasons[place] = f"refused: {why}"
        if not self.faults.happen:
            return reasons
        fate = fates(self.faults, self._addresses(work))
        for place in _where(fate.damage[rows] > 0) if message else []:
            broken = {name: tensor[place] for name, tensor in message.items()}
            broken = damaged(broken, DAMAGES[fate.damage[rows[place]] - 1])
            reasons[place] = f"refused: {self._refusal(work, rows[place], broken)} (injected fault)"
        late = _where(fate.straggles[rows])
        return reasons | dict.fromkeys(late, "answered after the round was over (injected straggler)")

    def _refusal(self, work: Work, row: int, message: Message) -> str | None:
        setting = self.settings[int(work.run[row])]
        return refusal(message, self.algorithm, setting, work.step, self.dtype)

    def _forged(self, work: Work, message: Message) -> Message:
        """The replies, with those of attackers replaced: these may collude."""
        if self.raid is None or not self.raid.forges or not message:
            return message
        addresses, parts = self._addresses(work), []
        for run, tasks, rows in work.parts():
            assert isinstance(tasks, Tasks), "only tasks are answered"
            own = taken(message, rows)
            lies = self.raid.lies(run, work.client[rows], tasks.round)
            parts.append((rows, self.raid.forged(tasks.only(work.row[rows]), addresses[rows], own, lies)))
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        return {name: in_order([part[name] for _, part in parts], order) for name in message}

    def _addresses(self, work: Work) -> rng.Addresses:
        return work.addresses([setting.seed for setting in self.settings], self.device)


def together(sent: Sequence[ByClient], judged: Sequence[Judged]) -> list[Outcome]:
    """One outcome for each federation, from what was measured of its solutions and from all its work."""
    outcomes = []
    for run, measured in enumerate(sent):
        own = [part for part in judged if part.run == run]
        failures = [failure for part in own for failure in part.failures]
        trained = [part.trained for part in own if part.trained is not None]
        replies = Replies.cat([part.replies for part in own])
        outcomes.append(Outcome(replies, failures, Evaluations(measured, *trained[:1])))
    return outcomes


def failure(work: Work, row: int, reason: str) -> Failure:
    """Of the client in a row of some work."""
    one = work.only(np.array([row]))
    return Failure(int(one.client[0]), int(one.round[0]), reason, work.step, int(one.lane[0]))


def _by_run(
    done: Work,
    message: Message,
    values: Tensor | None,
    failures: dict[int, Failure],
    asked: Work,
    measured: Sequence[bool],
    sizes: np.ndarray,
) -> list[Judged]:
    found = []
    run, client, lane, round_, of_asked = done.run, done.client, done.lane, done.round, asked.run
    for number in sorted(set(asked.runs)):
        rows = done.everything
        if len(asked.parcels) > 1 or not (client[1:] > client[:-1]).all():
            rows = np.flatnonzero(run == number)
            rows = rows[np.lexsort((client[rows], lane[rows]))]
        coded = sizes[rows] if len(sizes) else sizes
        replies = Replies(client[rows], taken(message, rows), done.step, lane[rows], round_[rows], coded=coded)
        own = [failure for row, failure in sorted(failures.items()) if of_asked[row] == number]
        trained = None if values is None or not measured[number] else ByClient(client[rows], take_rows(values, rows))
        found.append(Judged(number, replies, own, trained))
    return found


def _where(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()
