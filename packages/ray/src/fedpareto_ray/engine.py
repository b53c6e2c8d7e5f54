"""The driver's half of a federation on Ray: it scatters tasks over its workers and puts their answers together."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.client_state import Kept
from fedpareto.contract.messages import ByClient, Evaluations, Failure, Message, Outcome, Parcels, Replies, Tasks
from fedpareto.engines.reply_checks import Screening, enforce_quorum
from fedpareto.moo.tested import Tested
from fedpareto_ray import merge, packing
from fedpareto_ray.crew import Crew
from fedpareto_ray.options import RayOptions
from fedpareto_ray.packing import Parts, Plain, Shards
from fedpareto_ray.replies import Far, RemoteReplies

log = logging.getLogger("fedpareto.ray")

MOST_REPEATED = 8
"""Exchanges that a replacement does again at most: then clients' private state is saved here."""


@dataclass
class RayEngine:
    """Runs the client half of `algorithm` on a crew of workers that have begun; see Engine."""

    crew: Crew
    shards: Shards
    algorithm: Algorithm[Any]
    settings: Sequence[Setting]
    options: RayOptions
    split_names: list[str]
    chosen: dict[str, Any]
    screening: Screening | None = None
    """Checks replies here, where attackers on several workers collude; else each worker checks its own."""
    forges: bool = False
    """True if attackers forge replies, for which workers need to know where clients begin."""
    quorum: float = 0.0
    tested: tuple[Tested, ...] = ()
    remote: ClassVar[bool] = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        self._exchange = 0
        self._kept = 0
        """Amount of private state that clients had after the last exchange."""
        self._has_told = False
        self.not_recorded: dict[str, str] = {}

    @contextmanager
    def threads(self) -> Iterator[None]:
        """The server's own work is as it is."""
        yield

    # -- work ------------------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Tasks], evaluate: Parcels | None = None) -> Outcome:
        """Run the tasks of the first (usually only) federation."""
        return self.run_all([tasks], [evaluate])[0]

    def run_all(self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]) -> list[Outcome]:
        """Run one exchange of every federation."""
        self._save_if_much_would_be_repeated()
        self._exchange += 1
        what = "exchange" if self.screening is None else "work"
        work = packing.taken_apart(tasks, self.shards, begun=self.forges)
        measured = self._apart(evaluate)
        nothing = Parts([None] * len(evaluate), [[None] * len(evaluate)] * len(self.shards))
        shared, solutions = self._shared(work.shared), self._shared(measured.shared)
        self.crew.down += packing.size(work.own) + packing.size(measured.own)
        calls = [(self._exchange, shared, work.own[s], solutions, measured.own[s]) for s in range(len(self.shards))]
        again = [(self._exchange, shared, work.own[s], *_of(nothing, s)) for s in range(len(self.shards))]
        answers = self.crew.each(what, calls)
        if any(tasks):
            self.crew.note([(what, call) for call in again])
        self._kept = sum(answer["kept"] for answer in answers)
        for answer in answers:
            self.not_recorded |= answer["not_recorded"]
        if self.screening is None:
            outcomes = [self._together(run, [answer["runs"][run] for answer in answers]) for run in range(len(tasks))]
        else:
            flags = [solutions is not None for solutions in evaluate]
            done = merge.gathered(tasks, [part for answer in answers for part in answer["done"]])
            sent = [packing.all_measured([answer["sent"][run] for answer in answers]) for run in range(len(tasks))]
            outcomes = self.screening.outcomes(sent, done, flags)
        for run, outcome in enumerate(outcomes):
            enforce_quorum(self.quorum, outcome.replies, outcome.failures, run)
        return outcomes

    def _together(self, run: int, parts: Sequence[dict[str, Plain]]) -> Outcome:
        """Put what the workers told of one federation together, as one outcome."""
        failures = [Failure(*one) for part in parts for one in part["failures"]]
        failures.sort(key=lambda one: (one.lane, one.client))
        sent, trained = (packing.all_measured([part[name] for part in parts]) for name in ("sent", "trained"))
        return Outcome(self._replies(run, parts), failures, Evaluations(sent, trained))

    def _replies(self, run: int, parts: Sequence[dict[str, Plain]]) -> Replies:
        some = [part for part in parts if len(part["clients"])]
        if not some:
            return Replies(np.empty(0, dtype=np.int64))
        clients, lanes, rounds = (
            np.concatenate([part[name] for part in some]) for name in ("clients", "lanes", "rounds")
        )
        order = np.lexsort((clients, lanes))
        small = {
            name: torch.from_numpy(np.concatenate([part["small"][name] for part in some])[order])
            for name in some[0]["small"]
        }
        told = (clients[order], small, some[0]["step"], lanes[order], rounds[order])
        if not some[0]["large"]:
            return Replies(*told)
        large = {name: (shape, getattr(torch, dtype)) for name, (shape, dtype) in some[0]["large"].items()}
        far = Far(self.crew, self._exchange, run, large, self._tell_what_rows_cost)
        counts = [len(part["clients"]) for part in parts]
        shards = np.repeat(np.arange(len(parts)), counts)[order]
        return RemoteReplies(*told, far, shards, np.concatenate([np.arange(count) for count in counts])[order])

    def _tell_what_rows_cost(self, size: int) -> None:
        if not self._has_told:
            name, megabytes = self.algorithm.name, size / 1e6
            log.warning("%s reads every client's reply: %.3g MB come to this process in a round", name, megabytes)
        self._has_told = True

    def losses(self, solutions: Sequence[Parcels]) -> list[ByClient]:
        found = self._called("losses", self._apart(solutions))
        return [packing.all_measured([part[run] for part in found]) for run in range(len(solutions))]

    def models(self, run: int, solutions: Parcels) -> ByClient:
        return packing.all_measured(self._called("models", self._apart([solutions]), run))

    def model_parts(self, run: int, solutions: Parcels) -> dict[int, Message]:
        if self.algorithm.anatomy(self.settings[0].layout, len(self.settings[0].objectives)) is None:
            return {}
        found = self._called("model_parts", self._apart([solutions]), run)
        return {client: packing.tensors(part) for parts in found for client, part in parts.items()}

    def _called(self, what: str, parts: Parts, *first: Any) -> list[Any]:
        shared = self._shared(parts.shared)
        self.crew.down += packing.size(parts.own)
        return self.crew.each(what, [(*first, shared, own) for own in parts.own])

    def _apart(self, solutions: Sequence[Parcels | None]) -> Parts:
        return packing.taken_apart([None if one is None else [one] for one in solutions], self.shards)

    def _shared(self, plain: Plain) -> Any:
        """Share what all workers get; it travels once for each of them."""
        self.crew.down += packing.size(plain) * len(self.crew)
        return self.crew.share(plain)

    # -- what clients keep -----------------------------------------------------------------------------------------

    @property
    def private(self) -> Kept:
        """The clients' private state, gathered from the workers. From here on a replacement begins with it."""
        found = self.crew.each("private", [()] * len(self.crew))
        self.crew.forget(found)
        return packing.unpacked([part for parts in found for part in parts])

    @private.setter
    def private(self, private: Kept) -> None:
        parts = [packing.for_shard(private, self.shards, shard) for shard in range(len(self.shards))]
        self.crew.each("restore", [(part,) for part in parts])
        self.crew.forget(parts)
        self._kept = len(private)

    def _save_if_much_would_be_repeated(self) -> None:
        if not self._kept:
            self.crew.forget()
        elif self.crew.noted >= MOST_REPEATED:
            self.crew.forget(self.crew.each("private", [()] * len(self.crew)))


def _of(parts: Parts, shard: int) -> tuple[Any, Any]:
    return parts.shared, parts.own[shard]
