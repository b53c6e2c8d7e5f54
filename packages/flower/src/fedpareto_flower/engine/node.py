"""A node is a stack of one: the local engine with a single client runs a server's tasks."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from torch import Tensor

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.federation import Federation
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import ByClient, Evaluations, Failure, Message, Outcome, Parcels
from fedpareto.contract.problem import Problem
from fedpareto.contract.secure_sum import STEPS
from fedpareto.engines.coding import Coding, as_sent
from fedpareto.engines.faults import Faults
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.engines.single import ONE, Reply, Task, exchanged, single, stacked
from fedpareto.trust.secure_client import keys_of
from fedpareto_flower.engine import schema, wire
from fedpareto_flower.engine.budget import Budget, BudgetSpent
from fedpareto_flower.engine.packing import packed, unpacked
from fedpareto_flower.engine.private import AnsweredBefore, Ledger, Moment, PrivateStore, digest_of, entry_of

log = logging.getLogger("fedpareto.flower.privacy")

MODEL_FILE = "model.safetensors"
"""File that a finished run leaves with the node: for each seed, the client's model."""


ATTEMPTS = 2
"""Answers of a run for each round, with noise behind masks: a round that is begun again has new noise. Half of them
are for a server that was killed; each is charged.
"""
_MEASURED = "measured objectives"
"""Name of the trained model's objectives in the ledger; no tensor of a reply is called so."""

Keep = Callable[["Node", int, Message], None]
"""Keeps more than the model at the end of a run: for this node, a seed (by its index) and what it was sent."""


def nothing_more(node: Node, run: int, solution: Message) -> None:
    """Keeps the model alone."""


@dataclass
class Node:
    """One client of a federation, with one `Federation` of one client for each seed.

    `settings` are the federation's own, which list all clients. What the node keeps is in `folder`.
    """

    federation: str
    """The federation's name; a node answers no other."""
    client: int
    algorithm: Algorithm[Any]
    problem: Problem
    learner: Learner
    federations: Sequence[Federation]
    settings: Sequence[Setting]
    folder: Path
    options: EngineOptions = LocalOptions()
    faults: Faults = Faults()
    limits: wire.Limits = wire.GENEROUS
    keep: Keep = nothing_more
    codec: Codec = Codec()
    budget: float = math.inf
    """The largest ε that its owner allows; that of the federation counts too."""
    _last: tuple[str, RecordDict] | None = field(default=None, repr=False)
    """The last nonce and its answer, for a server that did not get it the first time."""

    def __post_init__(self) -> None:
        if self.budget < math.inf:  # A privacy loss that cannot be counted is refused now, not in the first round.
            self.account.privacy.must_be_countable()

    @cached_property
    def engine(self) -> LocalEngine:
        """The engine of one."""
        return LocalEngine(
            self.algorithm,
            self.problem,
            self.learner,
            self.federations,
            self.settings,
            options=self.options,
            faults=self.faults,
            choices=ONE,
            coding=Coding(self.codec, writes=True),
        )

    @cached_property
    def store(self) -> PrivateStore:
        """Store of the private state between rounds."""
        return PrivateStore(self.folder / "private" / f"client{self.client}")

    @cached_property
    def ledger(self) -> Ledger:
        """Ledger of what was answered under local privacy."""
        return Ledger(self.folder / "private" / f"client{self.client}-answered")

    @cached_property
    def account(self) -> Budget:
        """Account of what was spent of its privacy."""
        place = self.folder / "private" / f"client{self.client}-answered"
        return Budget(place, self.client, self.algorithm.channel.privacy, self.budget)

    def hello(self, question: RecordDict) -> RecordDict:
        """Say who this is; neither data nor preference is in it."""
        federation, nonce = wire.decode_greeting(question)
        self._must_be_ours(federation)
        fingerprints = schema.agreement(self.algorithm, self.learner, self.engine.settings, self.codec)
        fingerprints |= schema.columns(self.federations[0].splits)
        parts = tuple(self.engine.split_names)
        return wire.encode_hello(wire.Hello(self.federation, self.client, nonce, parts, fingerprints))

    def exchange(self, content: RecordDict) -> RecordDict:
        """Answers an envelope; both as they travel, with small tensors in the header's record."""
        return packed(self.answer(unpacked(content)))

    def answer(self, content: RecordDict) -> RecordDict:
        """Runs the tasks of an envelope. The same envelope again gets the same answer."""
        envelope = wire.decode_envelope(content, self.limits)
        self._must_be_ours(envelope.federation)
        if envelope.client != self.client:
            raise UserError(f"this node is client {self.client}; the message is for client {envelope.client}")
        if self._last is not None and self._last[0] == envelope.nonce:
            return self._last[1]
        for job in envelope.jobs:
            self._must_be_planned(job)
        results = tuple(self._do(job) for job in envelope.jobs)
        if envelope.final:
            self._keep_models(envelope.jobs)
        answer = wire.encode_answer(wire.Answer(self.federation, self.client, envelope.nonce, results))
        self._last = envelope.nonce, answer
        return answer

    def _must_be_ours(self, federation: str) -> None:
        if federation != self.federation:
            raise UserError(f"this node belongs to the federation {self.federation}, not to {federation}")

    def _must_be_planned(self, job: wire.Job) -> None:
        """Raises UserError if a job is none of this federation's: before anything that the server names is called."""
        if job.run >= len(self.federations):
            raise UserError(f"the message is for run {job.run}; this federation has {len(self.federations)}")
        setting = self.settings[job.run]
        steps = self.algorithm.reply_shapes(setting)
        lanes = self.algorithm.lanes
        lanes = lanes * setting.rounds if lanes > 1 else 1  # A search may number its candidates throughout.
        for task in job.tasks:
            if task.step not in steps:
                raise UserError(f"the message names the step '{wire.printable(task.step)}', not {', '.join(steps)}")
            if task.lane >= lanes:
                raise UserError(f"the message is for lane {task.lane}; this federation has {lanes} at the most")
        if len({task.lane for task in job.tasks}) < len(job.tasks):
            raise UserError("the message has two tasks for one lane; a client does one at a time")
        only_measures = not job.tasks and job.round == wire.LARGEST_NUMBER
        if not (1 <= job.round <= setting.rounds or only_measures):
            raise UserError(f"the message is for round {job.round}; this federation has {setting.rounds}")
        if job.exchange >= len(steps):
            raise UserError(
                f"the message is for exchange {job.exchange + 1} of a round; a round has {len(steps)} at the most"
            )

    def _do(self, job: wire.Job) -> wire.Result:
        moment = Moment(job.round, job.exchange)
        lanes = {0, *(task.lane for task in job.tasks)}  # Solutions are measured with the state of lane 0.
        self.engine.letters.clear()
        self._restore(job.run, lanes, moment, job.since)
        sent = None if job.solution is None else self._reported(job, job.solution)
        outcome = self._answered(job, moment)
        return wire.Result(
            run=job.run,
            replies=tuple(self._coded(job.run, reply) for reply in single(outcome.replies)),
            failures=tuple(_discreet(failure) for failure in outcome.failures),
            sent=sent,
            trained=outcome.evaluations.trained.get(self.client),
        )

    def _coded(self, run: int, reply: Reply) -> Reply:
        """Return the reply as it travels; what was answered before, under local privacy, as it is."""
        letter = self.engine.letters.get((run, reply.client, reply.lane, reply.step, reply.round), {})
        return replace(reply, message=as_sent(reply.message, letter))

    def _reported(self, job: wire.Job, solution: Message) -> Tensor | None:
        """The objectives of what was sent, as far as this node tells them: with noise once, and within its budget."""
        privacy = self.algorithm.channel.privacy
        if privacy.objectives == "withheld":
            return None
        if privacy.objectives != "noised":
            return exchanged(self.engine, job.run, [], self._sent(solution)).evaluations.sent.get(self.client)
        question = Task(self.client, job.round, solution, _MEASURED.replace(" ", "-"), job.exchange)
        try:
            known = self.ledger.recall(job.run, question)
            if known is not None:
                return known[_MEASURED]
            setting = self.settings[job.run]
            self._must_be_due(job.run, question.step, 1 + math.ceil(setting.rounds / setting.evaluate_every))
            self.account.charge(entry_of(job.run, question), digest_of(solution), privacy.report_cost)
        except (BudgetSpent, AnsweredBefore) as refused:
            log.warning("the objectives of round %d are not reported: %s", job.round, refused)
            return None
        told = exchanged(self.engine, job.run, [], self._sent(solution)).evaluations.sent[self.client]
        self.ledger.keep(job.run, question, {_MEASURED: told})
        return told

    def _must_be_due(self, run: int, step: str, most: int, round_: int | None = None) -> None:
        """Raises AnsweredBefore if a step was answered as often as was agreed on."""
        if self.ledger.answered(run, step, round_) >= most:
            where = "" if round_ is None else f" in round {round_}"
            raise AnsweredBefore(f"'{step}' was answered as often as was agreed on{where}, {most} times")

    def _affordable(self, job: wire.Job, task: Task) -> Failure | None:
        """Counts the answer to a task, and the report of what is trained in it; a failure if that is too much."""
        privacy, replies = self.algorithm.channel.privacy, self.algorithm.method.reply_shapes(self.settings[job.run])
        # Other messages, the keys of a secure sum, say nothing about rows.
        if privacy.kind == "none" or not replies.get(task.step):
            return None
        reports = self._measures(job) and task.step == "train" and privacy.objectives == "noised"
        cost = privacy.reply_cost + (privacy.report_cost if reports else 0.0)
        try:
            if self._masks and privacy.kind != "central":
                self._must_be_due(job.run, task.step, ATTEMPTS * self.settings[job.run].rounds)
            elif privacy.kind == "local":
                self._must_be_due(job.run, task.step, self.algorithm.lanes, job.round)
            self.account.charge(entry_of(job.run, task, self._keys(job, task)), digest_of(task.message), cost)
        except (BudgetSpent, AnsweredBefore) as refused:
            log.warning("round %d: %s", task.round, refused)
            return Failure(self.client, task.round, str(refused), task.step, task.lane)
        return None

    @property
    def _masks(self) -> bool:
        return self.algorithm.channel.secure_sum.kind != "none"

    def _keys(self, job: wire.Job, task: Task) -> str:
        """Digest by which the client's keys for this task are known again; each attempt at a round has others."""
        state = self.engine.private.get((job.run, task.lane, self.client))
        return keys_of(state) if self._masks and state is not None else ""

    def _is_kept(self, task: Task) -> bool:
        """True if its answer is given once, as it or a report beside it has noise or masks; keys are new each time."""
        privacy = self.algorithm.channel.privacy
        return task.step != STEPS[0] if self._masks else privacy.kind == "local" or privacy.objectives == "noised"

    def _measures(self, job: wire.Job) -> bool:
        """Check whether what is trained is measured: reports with noise only as often as was agreed on."""
        is_due = (job.round - 1) % self.settings[job.run].evaluate_every == 0
        return job.measure and (is_due or self.algorithm.channel.privacy.objectives != "noised")

    def _answered(self, job: wire.Job, moment: Moment) -> Outcome:
        """The outcome of a job's tasks, as far as the budget lasts; what was answered before is answered alike, or
        refused. All that an answer depends on later is on the disk before it leaves.
        """
        measure = Parcels(np.empty(0)) if self._measures(job) else None
        keys = [self._keys(job, task) for task in job.tasks]
        found = [
            self.ledger.recall(job.run, task, own) if self._is_kept(task) else None
            for task, own in zip(job.tasks, keys, strict=True)
        ]
        new = [task for task, known in zip(job.tasks, found, strict=True) if known is None]
        refused = [self._affordable(job, task) for task in new]
        new = [task for task, failure in zip(new, refused, strict=True) if failure is None]
        outcome = exchanged(self.engine, job.run, [task.stacked() for task in new], measure)
        outcome = replace(outcome, failures=[*outcome.failures, *filter(None, refused)])
        # This is kept also if a reply is refused: the client has been trained.
        self._commit(job.run, {task.lane for task in new}, moment, job.since)
        trained, replies = dict(outcome.evaluations.trained), list(single(outcome.replies))
        measured = {_MEASURED: trained[self.client]} if self.client in trained else {}
        for task, own, known in zip(job.tasks, keys, found, strict=True):
            if known is not None:
                if _MEASURED in known and measure is not None:
                    trained[self.client] = known[_MEASURED]
                message = {name: tensor for name, tensor in known.items() if name != _MEASURED}
                replies.append(Reply(self.client, task.round, message, task.step, task.lane))
                continue
            for reply in replies if self._is_kept(task) else ():
                if (reply.step, reply.lane) == (task.step, task.lane) and reply.message:  # An empty one costs nothing.
                    self.ledger.keep(job.run, task, {**reply.message, **measured}, own)
        own_trained = ByClient(np.array([self.client]), trained[self.client][None]) if trained else ByClient.none()
        return Outcome(stacked(replies), outcome.failures, Evaluations(outcome.evaluations.sent, own_trained))

    def _sent(self, solution: Message) -> Parcels:
        return Parcels(np.array([self.client]), solution)

    def _restore(self, run: int, lanes: set[int], moment: Moment, since: int) -> None:
        for lane in lanes:
            state = self.store.before(run, lane, moment, since)
            key = run, lane, self.client
            if state is None:
                self.engine.private.pop(key, None)
            else:
                self.engine.private[key] = {name: tensor.to(self.engine.device) for name, tensor in state.items()}

    def _commit(self, run: int, lanes: set[int], moment: Moment, since: int) -> None:
        for lane in lanes:
            state = self.engine.private.get((run, lane, self.client))
            if state is not None:
                self.store.keep(run, lane, moment, state, since)

    def _keep_models(self, jobs: Sequence[wire.Job]) -> None:
        """The client's models in a separate file: what it was sent, joined with what it keeps; then `keep`."""
        from safetensors.torch import save

        solutions = {job.run: job.solution for job in jobs if job.solution is not None}
        models = {}
        for run, solution in solutions.items():
            model = self.engine.models(run, self._sent(solution))[self.client]
            models[f"seed{self.settings[run].seed}"] = model.detach().cpu().contiguous().clone()
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / MODEL_FILE, save(models))
        for run, solution in solutions.items():
            self.keep(self, run, solution)


def _discreet(failure: Failure) -> Failure:
    """Leave out the text of an exception, which may contain a value of a row; its type is enough for the server."""
    kind, _, _ = failure.reason.partition(": ")
    return replace(failure, reason=kind) if kind.startswith("raised ") else failure
