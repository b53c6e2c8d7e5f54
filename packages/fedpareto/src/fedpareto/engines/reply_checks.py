"""Between the clients' work and the algorithm: attackers' forgeries, injected faults, and the check of every reply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.errors import QuorumLost, UserError
from fedpareto.contract.algorithm import ABOVE_ZERO, Algorithm, Setting
from fedpareto.contract.messages import (
    FARTHEST,
    LARGEST,
    ByClient,
    Evaluations,
    Failure,
    Message,
    Outcome,
    Replies,
    Tasks,
    beginnings,
    places,
    take_rows,
    taken,
)
from fedpareto.contract.problem import Objective
from fedpareto.engines.faults import DAMAGES, Faults, damaged, fates
from fedpareto.engines.work import Work, in_order
from fedpareto.moo import robust
from fedpareto.tensors import rng
from fedpareto.trust.attacks import Raid

ROUNDING = 1e-3
"""Tolerance by which a mean of rounded numbers may lie outside an objective's range."""


class Part(NamedTuple):
    """Results of a chunk of some work."""

    rows: np.ndarray
    """The rows whose clients replied …"""
    message: Message
    """… with what, `[n, ...]` …"""
    values: Tensor | None
    """… and the trained models' objectives, where they were measured."""
    sizes: np.ndarray
    """Bytes of each reply, where they are coded; else empty."""


@dataclass
class Done:
    """Results of some work, until replies are checked."""

    work: Work
    part: Part
    """Results whose rows are in ascending order."""
    failures: dict[int, Failure] = field(default_factory=dict)
    """The others, by row."""

    @classmethod
    def of(cls, work: Work, parts: Sequence[Part], failures: dict[int, Failure]) -> Done:
        """Put all chunks together."""
        nothing = np.empty(0, dtype=np.int64)
        if len(parts) < 2:
            return cls(work, parts[0] if parts else Part(nothing, {}, None, nothing), failures)
        rows = np.concatenate([one.rows for one in parts])
        order = np.argsort(rows, kind="stable")
        message = {name: in_order([one.message[name] for one in parts], order) for name in parts[0].message}
        values = [one.values for one in parts if one.values is not None]
        sizes = np.concatenate([one.sizes for one in parts])
        measured = in_order(values, order) if values else None
        return cls(work, Part(rows[order], message, measured, sizes[order] if len(sizes) else sizes), failures)


@dataclass(frozen=True)
class Screening:
    """Decision on which replies count, the same wherever clients work."""

    algorithm: Algorithm[Any]
    settings: Sequence[Setting]
    dtype: torch.dtype
    device: torch.device
    faults: Faults = Faults()
    raid: Raid | None = None

    @cached_property
    def _are_faulty(self) -> bool:
        """True if clients drop out, are late or send something broken."""
        return self.faults.happen

    def awake(self, work: Work) -> tuple[np.ndarray, dict[int, Failure]]:
        """The rows whose clients do any work, and the failures of the others."""
        if not self._are_faulty and self.raid is None:
            return work.everything, {}
        failures: dict[int, Failure] = {}
        asleep = np.zeros(len(work), dtype=bool)
        for is_asleep, reason in self._sleepers(work):
            failures |= {row: failure(work, row, reason) for row in _where(is_asleep)}
            asleep |= is_asleep
        return (np.flatnonzero(~asleep) if failures else work.everything), failures

    def _sleepers(self, work: Work) -> Iterator[tuple[np.ndarray, str]]:
        """Yield masks of the rows whose clients do nothing, `[n]`, and why."""
        if self._are_faulty:
            yield fates(self.faults, self._addresses(work)).drops_out, "dropped out (injected fault)"
        if self.raid is not None and self.raid.attack.kind == "seldom":
            silent = np.zeros(len(work), dtype=bool)
            for run, tasks, rows in work.parts():
                assert isinstance(tasks, Tasks), "only tasks are answered"
                silent[rows] = self.raid.silent(run, work.client[rows], tasks.round)
            yield silent, "said nothing (it seldom replies)"

    def outcomes(self, sent: Sequence[ByClient], done: Sequence[Done], measured: Sequence[bool]) -> list[Outcome]:
        """Make the outcome of each federation, from what was measured of its solutions and from all its work.

        `measured`: whose trained models were measured.
        """
        found: list[Outcome | None] = [None] * len(sent)
        for one in done:
            self._add(one, sent, measured, found)
        outcomes = []
        for run, outcome in enumerate(found):
            outcomes.append(Outcome(Replies(_NOBODY), [], Evaluations(sent[run])) if outcome is None else outcome)
        return outcomes

    def _add(self, done: Done, sent: Sequence[ByClient], measured: Sequence[bool], found: list[Outcome | None]) -> None:
        """Adds the replies to some work that count, and why the others do not."""
        work, (rows, message, values, sizes), failures = done.work, done.part, dict(done.failures)
        if self.raid is not None and self.raid.forges and message:
            message = self._forged(self.raid, work.only(rows), message)
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
        good = work.only(rows)
        run, client, lane = good.run, good.client, good.lane
        for number in sorted(set(work.runs)):
            rows, tensors = good.everything, message
            if len(work.parcels) > 1 or not (client[1:] > client[:-1]).all():
                rows = np.flatnonzero(run == number)
                rows = rows[np.lexsort((client[rows], lane[rows]))]
                tensors = taken(message, rows)
            coded = sizes[rows] if len(sizes) else sizes
            replies = Replies(client[rows], tensors, work.step, lane[rows], good.round[rows], coded=coded)
            trained = None
            if values is not None and measured[number]:
                trained = ByClient(client[rows], take_rows(values, rows))
            failed = []
            if failures:
                failed = [one for row, one in sorted(failures.items()) if work.run[row] == number]
            if (known := found[number]) is not None:
                failed = [*known.failures, *failed]
                replies = Replies.cat([known.replies, replies])
                if len(known.evaluations.trained):
                    trained = known.evaluations.trained
            evaluations = Evaluations(sent[number]) if trained is None else Evaluations(sent[number], trained)
            found[number] = Outcome(replies, failed, evaluations)

    def _refused(self, work: Work, rows: np.ndarray, message: Message) -> dict[int, str]:
        """Reasons, by place among `rows`, why a reply does not count. The few that fail are looked at one by one."""
        reasons: dict[int, str] = {}
        passed = sound(message, self.algorithm)
        suspects = [] if passed is None else _where(~passed)
        for place in suspects:
            why = self._refusal(work, rows[place], {name: tensor[place] for name, tensor in message.items()})
            if why is not None:
                reasons[place] = f"refused: {why}"
        if not self._are_faulty:
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

    def _forged(self, raid: Raid, work: Work, message: Message) -> Message:
        """The replies, with those of attackers replaced: these may collude."""
        addresses, parts = self._addresses(work), []
        for run, tasks, rows in work.parts():
            assert isinstance(tasks, Tasks), "only tasks are answered"
            own = taken(message, rows)
            lies = raid.lies(run, work.client[rows], tasks.round)
            parts.append((rows, raid.forged(tasks.only(work.row[rows]), addresses[rows], own, lies)))
        order = np.argsort(np.concatenate([rows for rows, _ in parts]), kind="stable")
        return {name: in_order([part[name] for _, part in parts], order) for name in message}

    def _addresses(self, work: Work) -> rng.Addresses:
        return work.addresses([setting.seed for setting in self.settings], self.device)


_NOBODY = np.empty(0, dtype=np.int64)


def failure(work: Work, row: int, reason: str) -> Failure:
    """Make the failure of the client in a row of some work."""
    return Failure(int(work.client[row]), int(work.round[row]), reason, work.step, int(work.lane[row]))


def _where(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


# -- the check of a reply ------------------------------------------------------------------------------------------


def sound(replies: Message, algorithm: Algorithm[Any]) -> np.ndarray | None:
    """Find which of a stack of replies `{name: [n, ...]}` surely pass, `[n]`; None if all do.

    Of healthy replies one number says so: a look at each would make a GPU wait.
    """
    if not replies:
        return None
    limits = algorithm.reply_limits
    found: list[Tensor] = []
    least: list[float] = []
    most: list[float] = []
    for name, tensor in replies.items():
        numbers = torch.aminmax(tensor) if name in limits else (tensor.sum(),)
        smallest, largest = limits.get(name, (-math.inf, math.inf))
        found += numbers
        least += [smallest] * len(numbers)
        most += [largest] * len(numbers)
    values = np.array(torch.stack(found).tolist())
    if (np.isfinite(values) & (values >= least) & (values <= most)).all():
        return None
    passed = []
    for name, tensor in replies.items():
        rows = tensor.reshape(len(tensor), -1)
        passed.append(rows.sum(1).isfinite())
        if name in limits:
            smallest, largest = limits[name]
            passed.append(((rows >= smallest) & (rows <= largest)).all(1))
    rows_passed: np.ndarray = torch.stack(passed).all(0).cpu().numpy()
    return rows_passed


def rows_missing(replies: Message, clients: int) -> str | None:
    """Why a client step's result cannot be a stack of this many replies; or None."""
    for name, tensor in replies.items():
        if tensor.shape[:1] != (clients,):
            return f"'{name}' has the shape {list(tensor.shape)}, not a row for each client ({clients})"
    return None


def refusal(
    message: Message,
    algorithm: Algorithm[Any],
    setting: Setting,
    step: str,
    dtype: torch.dtype,
) -> str | None:
    """Why a reply is refused, or None: names, shapes, type and values must be what the algorithm declared."""
    why = misfit(message, algorithm, setting, step, dtype)
    if why is not None:
        return why
    limits = algorithm.reply_limits
    for name, tensor in message.items():
        if not _finite(tensor):
            bad = int((~tensor.isfinite()).sum())
            return f"'{name}' holds {bad} values that are not finite"
        if name in limits and (strange := _outside(tensor, *limits[name])) is not None:
            return f"'{name}' holds {strange:g}; honest values are {_range(*limits[name])}"
    return None


def misfit(
    message: Message,
    algorithm: Algorithm[Any],
    setting: Setting,
    step: str,
    dtype: torch.dtype,
    rows: int | None = None,
) -> str | None:
    """Why names, shapes and types of a reply, or of a stack of `rows` replies, are not those that were declared."""
    shapes, ahead = algorithm.reply_shapes(setting)[step], () if rows is None else (rows,)
    if message.keys() != shapes.keys():
        return f"the reply holds {sorted(message)}, not {sorted(shapes)}"
    for name, shape in shapes.items():
        tensor = message[name]
        if tuple(tensor.shape) != (*ahead, *shape):
            return f"'{name}' has the shape {list(tensor.shape[len(ahead) :])}, not {list(shape)}"
        wanted = algorithm.reply_types.get(name, dtype)
        if tensor.dtype != wanted:
            return f"'{name}' is of type {tensor.dtype}, not {wanted}"
    return None


# -- replies from other machines -----------------------------------------------------------------------------------


def too_large(message: Message) -> str | None:
    """Why a finite reply is refused that no honest client can have sent, whatever the others sent; or None."""
    numbers = {name: tensor for name, tensor in message.items() if tensor.is_floating_point()}
    for name, tensor in numbers.items():
        if tensor.numel() and (largest := float(tensor.abs().max())) > LARGEST:
            return f"'{name}' holds values up to {largest:g}; at most {LARGEST:g} is accepted"
    return None


def too_far(tasks: Sequence[Tasks], replies: Replies) -> dict[int, str]:
    """The rows of replies whose updates are far longer than the others', and why each is refused.

    The median is over the clients with the same work (of an even number the smaller of the middle two: of two clients
    the one that moved further is suspected). Where it is 0 nothing can be said, and an update that is no longer than
    the model that it began from is never refused.
    """
    found: dict[int, str] = {}
    for some in tasks:
        rows = np.flatnonzero(replies.lanes == some.lane)
        own = replies.only(rows)
        if not len(own):
            continue
        begun = beginnings(some.only(places(some.clients, own.clients)), own.tensors)
        for name, origins in begun.items():
            lengths = robust.lengths(own[name], origins)
            found |= {int(rows[row]): why for row, why in far(name, lengths, lengths, origins).items()}
    return found


def far(name: str, lengths: Tensor, known: Tensor, origins: Tensor) -> dict[int, str]:
    """The rows of updates of a tensor with these `lengths` `[k, ...]` that are refused, and why (see too_far).

    `known` `[n, ...]` are those that they are compared with, NaN where there are none; `origins` is where they began.
    """
    middle = known.nanmedian(dim=0).values
    limits = torch.maximum(FARTHEST * middle, origins.double().norm(dim=-1))
    is_far = ((lengths > limits) & (middle > 0)).view(len(lengths), -1).any(1)
    return {
        row: f"its update of '{name}' is {float(lengths[row].max()):.3g} long; "
        f"the median of the round is {float(middle.max()):.3g}"
        for row in torch.nonzero(is_far).flatten().tolist()
    }


def impossible(values: Tensor, objectives: Sequence[Objective]) -> str | None:
    """Why reported objectives `[parts, m]` are refused, or None: numbers in the range of each objective pass."""
    for objective, column in zip(objectives, values.double().unbind(-1), strict=True):
        least = -LARGEST if objective.lowest is None else objective.lowest - ROUNDING
        most = LARGEST if objective.highest is None else objective.highest + ROUNDING
        if bool((outside := ~((column >= least) & (column <= most))).any()):
            return f"its '{objective.name}' is {float(column[outside][0]):g}, not {_numbers(objective)}"
    return None


def _numbers(objective: Objective) -> str:
    """Describe which values an objective may have."""
    if objective.lowest is not None and objective.highest is not None:
        return _range(objective.lowest, objective.highest)
    ends = {"at least": objective.lowest, "at most": objective.highest}
    words = [f"{word} {end:g}" for word, end in ends.items() if end is not None]
    return " and ".join(["a finite number", *words])


def _finite(tensor: Tensor) -> bool:
    # A sum reads the tensor once and makes no copy; only if it is not finite is a second check needed.
    return math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


def _outside(tensor: Tensor, least: float, most: float) -> float | None:
    """A value that is not between the two, or None."""
    found = tensor[(tensor < least) | (tensor > most)]
    return float(found[0]) if len(found) else None


def _range(least: float, most: float) -> str:
    if math.isinf(most):
        return "above 0" if least == ABOVE_ZERO else f"at least {least:g}"
    return f"from {least:g} to {most:g}"


def required_replies(quorum: float, asked: int) -> int:
    """Number of the selected clients that must reply: a quorum below 1 is a share, from 1 on a number of clients."""
    if quorum < 0:
        raise UserError(f"quorum is {quorum}; it is a share below 1 or a number of clients")
    wanted = math.ceil(quorum * asked) if quorum < 1 else min(round(quorum), asked)
    return max(1, wanted)


def enforce_quorum(quorum: float, replies: Replies, failures: Sequence[Failure], run: int = 0) -> None:
    """Raises QuorumLost when too few clients gave a valid reply, however many tasks each of them had."""
    if not failures:
        return
    answered = len(np.unique(replies.clients))
    asked = len(np.union1d(replies.clients, [failure.client for failure in failures]))
    if not asked or answered >= required_replies(quorum, asked):
        return
    firsts = list({failure.client: str(failure) for failure in reversed(failures)}.values())[::-1]
    first = "; ".join(firsts[:3])
    more = f"; and {len(firsts) - 3} more" if len(firsts) > 3 else ""
    raise QuorumLost(
        f"round {failures[0].round}: only {answered} of {asked} clients gave a valid reply, "
        f"the quorum is {required_replies(quorum, asked)} ({first}{more})",
        failures,
        run,
    )
