"""The engine on the server: tasks go to nodes as Flower messages; replies are not trusted.

The engine has no data. It knows which node is which client because the nodes say so, checks every answer against its
request, and continues without nodes that fail, as long as the quorum holds.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from flwr.app import RecordDict
from flwr.serverapp import Grid
from torch import Tensor

from fedpareto.core.algorithm import Algorithm, Setting
from fedpareto.core.kept import Kept
from fedpareto.core.learner import Learner
from fedpareto.core.messages import ByClient, Evaluations, Failure, Message, Outcome, Parcels, Tasks
from fedpareto.engines.checks import enforce_quorum, impossible, refusal, too_far, too_large
from fedpareto.engines.flower import schema, wire
from fedpareto.engines.flower.members import Members
from fedpareto.engines.flower.options import FlowerOptions
from fedpareto.engines.flower.post import EXCHANGE, Lost, Post
from fedpareto.engines.flower.rows import Reply, Task, stacked
from fedpareto.engines.machine import LocalOptions
from fedpareto.errors import UserError
from fedpareto.moo.tested import Tested

END_OF_TIME = wire.LARGEST_NUMBER
"""The round of an exchange that only measures: after all training."""

log = logging.getLogger("fedpareto.flower")


@dataclass
class _Pending:
    """A node with an outstanding answer."""

    client: int
    node: int
    content: RecordDict
    deadline: float
    messages: list[str]
    attempts: int = 1


@dataclass(frozen=True)
class Bytes:
    """What went to a node and came from it."""

    down: int = 0
    up: int = 0

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.down + other.down, self.up + other.up)


@dataclass
class FlowerEngine:
    """See core.engine.Engine. Runs the client half of `algorithm` on the nodes that `grid` reaches."""

    grid: Grid
    algorithm: Algorithm[Any]
    learner: Learner
    settings: Sequence[Setting]
    federation: str
    """The federation's name, which every message carries."""
    options: LocalOptions = LocalOptions()
    flower: FlowerOptions = FlowerOptions()
    quorum: float = 0.0
    expected: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints that nodes must match beside those that the server computes, such as that of the data's columns."""
    owners: Mapping[int, int] = field(default_factory=dict)
    """Which client each node id is, where node keys were registered; others are refused then."""
    private: Kept = field(default_factory=Kept)
    """Always empty: private state stays on the nodes."""
    remote: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.device = torch.device("cpu")
        self.settings = [self.place(setting) for setting in self.settings]
        self.traffic: dict[int, Bytes] = {}
        """Of the last exchange, by client; without Flower's own framing."""
        self._post = Post(self.grid)
        agreed = schema.agreement(self.algorithm, self.learner, self.settings) | dict(self.expected)
        self._members = Members(self._post, self.federation, self.clients, agreed, self.owners, self.flower)
        self._begun = False
        self._moments: dict[int, tuple[int, int]] = {}

    def place(self, setting: Setting) -> Setting:
        """The setting with its initial model in this engine's precision."""
        return replace(setting, initial=setting.initial.to(self.device, self.options.dtype))

    @property
    def clients(self) -> tuple[int, ...]:
        """All clients of the federation."""
        return tuple(self.settings[0].clients.tolist())

    @property
    def split_names(self) -> list[str]:
        """The parts of the data, in the order of the evaluations. Only the nodes know them, so this waits for nodes."""
        if not self._members.parts:
            self._gather()
        return list(self._members.parts)

    def _gather(self) -> None:
        """Waits for the nodes before the first exchange; later ones use the nodes that are connected."""
        if self._begun:
            self._members.meet()
        else:
            self._members.gather(self.quorum)
            self._begun = True

    @property
    def chosen(self) -> dict[str, Any]:
        """The federation's name, by which nodes find their private state again."""
        return {"federation": self.federation}

    @property
    def tested(self) -> tuple[Tested, ...]:
        """The rows are the nodes' own."""
        return ()

    @property
    def not_recorded(self) -> dict[str, str]:
        """Nothing is known of it here: training is on the nodes."""
        return {}

    def threads(self) -> AbstractContextManager[None]:
        """Leaves torch on the server unchanged: training is on the nodes."""
        return nullcontext()

    # -- work ------------------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Tasks], evaluate: Parcels | None = None) -> Outcome:
        """See Engine.run; for the first (usually only) federation."""
        return self.run_all([tasks], [evaluate])[0]

    def run_all(self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]) -> list[Outcome]:
        """One exchange of every seed: one message to each node with all its tasks."""
        envelopes = self._envelopes(tasks, evaluate)
        self.traffic = {}
        self._gather()
        answers, lost = self._exchange(envelopes)
        return [self._outcome(run, tasks[run], answers, lost) for run in range(len(tasks))]

    def losses(self, solutions: Sequence[Parcels]) -> list[ByClient]:
        """Refused: beside its objectives, a client's loss would give its preference away."""
        raise UserError("measure_losses works with the local engine only: on Flower, clients' losses stay with them")

    def models(self, run: int, solutions: Parcels) -> ByClient:
        """The clients' models, `[d]` each, where the server knows them; one with a private part stays on its node."""
        if self.algorithm.private_state(self.settings[run]):
            return ByClient.none()
        message = solutions.stacked()
        return ByClient(solutions.clients, message["model"]) if "model" in message else ByClient.none()

    def model_parts(self, run: int, solutions: Parcels) -> dict[int, Message]:
        """Nothing: what clients keep stays on their nodes."""
        return {}

    def _envelopes(
        self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> dict[int, wire.Envelope]:
        """What each node gets; nothing for a node without tasks."""
        jobs: dict[int, list[wire.Job]] = {}
        for run, (asked, solutions) in enumerate(zip(tasks, evaluate, strict=True)):
            round_, exchange = self._moment(run, asked)
            for client in sorted({client for some in asked for client in some} | set(solutions or ())):
                job = wire.Job(
                    run=run,
                    round=round_,
                    exchange=exchange,
                    tasks=tuple(Task.of(some, client) for some in asked if client in some),
                    solution=None if solutions is None else solutions.get(client),
                    measure=solutions is not None,
                )
                jobs.setdefault(client, []).append(job)
        final = not any(tasks)
        return {
            client: wire.Envelope(self.federation, client, secrets.token_hex(16), tuple(own), final)
            for client, own in jobs.items()
        }

    def _moment(self, run: int, tasks: Sequence[Tasks]) -> tuple[int, int]:
        """Round and exchange of these tasks; exchanges are counted from 0 in every round."""
        if not tasks:
            return END_OF_TIME, 0
        before = self._moments.get(run, (0, 0))
        now = tasks[0].round
        self._moments[run] = (now, before[1] + 1 if before[0] == now else 0)
        return self._moments[run]

    def _outcome(
        self, run: int, tasks: Sequence[Tasks], answers: Mapping[int, wire.Answer], lost: Mapping[int, str]
    ) -> Outcome:
        """One seed's share of the answers."""
        results = {
            client: result for client, answer in answers.items() for result in answer.results if result.run == run
        }
        asked = [Task.of(some, client) for some in tasks for client in some]
        judged = [self._judge(run, task, results.get(task.client), lost.get(task.client)) for task in asked]
        replies = stacked([one for one in judged if isinstance(one, Reply)])
        failures = [one for one in judged if isinstance(one, Failure)]
        far = too_far(tasks, replies)
        for row, why in far.items():
            client, round_, lane = (int(of[row]) for of in (replies.clients, replies.rounds, replies.lanes))
            failures.append(Failure(client, round_, f"refused: {why}", replies.step, lane))
        replies = replies.only(np.setdiff1d(np.arange(len(replies)), list(far)))
        for failure in failures:
            if failure.client not in lost:  # Those were named when they were given up.
                log.warning("%s", failure)
        enforce_quorum(self.quorum, replies, failures, run)
        refused = set(lost).union(failure.client for failure in failures)
        sent, false = self._measured(run, {client: result.sent for client, result in results.items()})
        others = {client: result.trained for client, result in results.items() if client not in refused}
        trained, also_false = self._measured(run, others)
        for failure in [*false, *also_false]:
            log.warning("%s", failure)
        return Outcome(replies, [*failures, *false, *also_false], Evaluations(sent, trained))

    def _measured(self, run: int, values: Mapping[int, Tensor | None]) -> tuple[ByClient, list[Failure]]:
        """The objectives that clients reported, as far as these are possible; the others as failures, which cost
        nobody the quorum: the models are judged by themselves.
        """
        found: dict[int, Tensor] = {}
        failures: list[Failure] = []
        round_ = self._moments.get(run, (0, 0))[0]
        for client, reported in sorted(values.items()):
            if reported is None:
                continue
            why = impossible(reported, self.settings[run].objectives)
            if why is None:
                found[client] = reported
            else:
                failures.append(Failure(client, round_, f"refused: {why}", "evaluate"))
        if not found:
            return ByClient.none(), failures
        return ByClient(np.array(list(found)), torch.stack(list(found.values()))), failures

    def _judge(self, run: int, task: Task, result: wire.Result | None, lost: str | None) -> Reply | Failure:
        """The reply to a task, or why there is none."""

        def failure(reason: str) -> Failure:
            return Failure(task.client, task.round, reason, task.step, task.lane)

        if lost is not None or result is None:
            return failure(lost or "its answer omits this task")
        key = task.round, task.step, task.lane
        for said in result.failures:
            if (said.round, said.step, said.lane) == key:
                return failure(said.reason)
        found = [reply for reply in result.replies if (reply.round, reply.step, reply.lane) == key]
        if len(found) != 1:
            return failure(f"refused: its answer holds {len(found)} replies to this task")
        message = found[0].message
        why = refusal(message, self.algorithm, self.settings[run], task.step, self.options.dtype) or too_large(message)
        return found[0] if why is None else failure(f"refused: {why}")

    # -- messages --------------------------------------------------------------------------------------------------

    def _exchange(self, envelopes: Mapping[int, wire.Envelope]) -> tuple[dict[int, wire.Answer], dict[int, str]]:
        """Answers by client, and for the others why there is none."""
        answers: dict[int, wire.Answer] = {}
        self._post.expect(max((self._limits(envelope).bytes for envelope in envelopes.values()), default=0))
        lost = dict.fromkeys(envelopes, "no node is connected for this client")
        pending = [
            self._send(client, wire.encode_envelope(envelope))
            for client, envelope in envelopes.items()
            if client in self._members.nodes
        ]
        while pending:
            for owed in list(pending):
                came = self._look(owed, envelopes[owed.client])
                if came is None or (isinstance(came, Lost) and self._ask_again(owed, came)):
                    continue
                pending.remove(owed)
                if isinstance(came, wire.Answer):
                    answers[owed.client] = came
                else:
                    self._give_up(owed.client, came, lost)
            if pending:
                time.sleep(self.flower.poll)
        return answers, {client: reason for client, reason in lost.items() if client not in answers}

    def _send(self, client: int, content: RecordDict) -> _Pending:
        node = self._members.nodes[client]
        message = self._post.push(node, EXCHANGE, content, self.flower.timeout)
        self._count(client, down=wire.size(content))
        return _Pending(client, node, content, time.monotonic() + self.flower.timeout, [message])

    def _look(self, owed: _Pending, envelope: wire.Envelope) -> wire.Answer | str | None:
        """An answer, or why there will be none, or None while there is still time."""
        for message in list(owed.messages):
            reply = self._post.pull(message, owed.node)
            if reply is None:
                continue
            owed.messages.remove(message)
            if isinstance(reply, str):
                return reply
            self._count(owed.client, up=wire.size(reply))
            try:
                answer = wire.decode_answer(reply, self._limits(envelope))
            except wire.Malformed as problem:
                return f"refused: {problem}"
            return self._wrong(answer, envelope) or answer
        return Lost(f"no answer within {self.flower.timeout:g} s") if time.monotonic() > owed.deadline else None

    def _ask_again(self, owed: _Pending, reason: str) -> bool:
        """Sends the same envelope again, if a connected node may still answer."""
        if owed.attempts > self.flower.retries:
            return False
        self._members.meet()
        if owed.client not in self._members.nodes:
            return False
        log.info("client %d: %s; sending it again", owed.client, reason)
        again = self._send(owed.client, owed.content)
        if again.node != owed.node:
            owed.messages = []
        owed.node, owed.deadline, owed.attempts = again.node, again.deadline, owed.attempts + 1
        owed.messages += again.messages
        return True

    def _give_up(self, client: int, reason: str, lost: dict[int, str]) -> None:
        lost[client] = reason
        log.warning("client %d: %s", client, reason)
        if isinstance(reason, Lost):
            self._members.forget(client)

    def _wrong(self, answer: wire.Answer, envelope: wire.Envelope) -> str | None:
        """Why a well-formed answer does not fit this envelope."""
        if answer.federation != self.federation:
            return "refused: it belongs to another federation"
        if answer.client != envelope.client:
            return f"refused: it claims to come from client {answer.client}"
        if answer.nonce != envelope.nonce:
            return "refused: it answers an earlier message (a replay)"
        if sorted(result.run for result in answer.results) != sorted(job.run for job in envelope.jobs):
            return "refused: it answers for other seeds than requested"
        shape = self._objectives_shape
        for result in answer.results:
            for values in (result.sent, result.trained):
                if values is not None and tuple(values.shape) != shape:
                    return f"refused: its objectives have the shape {list(values.shape)}, not {list(shape)}"
        return None

    @property
    def _objectives_shape(self) -> tuple[int, int]:
        return len(self._members.parts), len(self.settings[0].objectives)

    def _limits(self, envelope: wire.Envelope) -> wire.Limits:
        """Size of the largest honest answer."""
        width = self.options.dtype.itemsize
        tensors, numbers = 0, 0
        for job in envelope.jobs:
            tensors, numbers = tensors + 2, numbers + 2 * math.prod(self._objectives_shape)
            shapes = self.algorithm.reply_shapes(self.settings[job.run])
            for task in job.tasks:
                tensors += len(shapes[task.step])
                numbers += sum(math.prod(shape) for shape in shapes[task.step].values())
        return wire.Limits(tensors, numbers * width)

    def _count(self, client: int, down: int = 0, up: int = 0) -> None:
        self.traffic[client] = self.traffic.get(client, Bytes()) + Bytes(down, up)
