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

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, Setting
from fedpareto.contract.client_state import Kept
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import ByClient, Evaluations, Failure, Message, Outcome, Parcels, Tasks, places
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.engines.reply_checks import enforce_quorum, required_replies, too_far
from fedpareto.engines.single import Reply, Task, stacked
from fedpareto.moo.tested import Tested
from fedpareto_flower.engine import schema, wire
from fedpareto_flower.engine.answer_checks import Judge
from fedpareto_flower.engine.in_flight import Airmail
from fedpareto_flower.engine.members import Members
from fedpareto_flower.engine.options import FlowerOptions
from fedpareto_flower.engine.pauses import Pauses
from fedpareto_flower.engine.post import EXCHANGE, Away, Lost, Post

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
    """Bytes that went to a node and came from it."""

    down: int = 0
    up: int = 0

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(self.down + other.down, self.up + other.up)


@dataclass
class FlowerEngine:
    """Engine that runs the client half of `algorithm` on the nodes that `grid` reaches."""

    grid: Grid
    algorithm: Algorithm[Any]
    learner: Learner
    settings: Sequence[Setting]
    federation: str
    """The federation's name, which every message carries."""
    options: EngineOptions = LocalOptions()
    flower: FlowerOptions = FlowerOptions()
    quorum: float = 0.0
    expected: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints that nodes must match beside those that the server computes, such as that of the data's columns."""
    owners: Mapping[int, int] = field(default_factory=dict)
    """Client of each node id, where node keys were registered; others are refused then."""
    waits: bool = True
    """Rounds wait for everybody (see fedpareto.clock.policy); otherwise a run also begins without those away."""
    codec: Codec = Codec()
    """Codec of the replies."""
    private: Kept = field(default_factory=Kept)
    """Always empty: private state stays on the nodes."""
    remote: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.device = torch.device("cpu")
        self.settings = [self.place(setting) for setting in self.settings]
        self.traffic: dict[int, Bytes] = {}
        """Bytes of the last exchange, by client; without Flower's own framing."""
        self._post = Post(self.grid)
        agreed = schema.agreement(self.algorithm, self.learner, self.settings, self.codec) | dict(self.expected)
        self._members = Members(self._post, self.federation, self.clients, agreed, self.owners, self.flower)
        self._judge = Judge(
            self.algorithm, self.settings, self.federation, self.options.dtype, self._members, self.codec
        )
        self._begun = False
        self._moments: dict[int, tuple[int, int]] = {}
        self._airs: dict[int, Airmail] = {}

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
            self._members.gather(bool(self.quorum) or not self.waits, soon=not self.waits)
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
        """No reasons: nothing is known of it here, since training is on the nodes."""
        return {}

    def threads(self) -> AbstractContextManager[None]:
        """Leaves torch on the server unchanged: training is on the nodes."""
        return nullcontext()

    # -- work ------------------------------------------------------------------------------------------------------

    def run(self, tasks: Sequence[Tasks], evaluate: Parcels | None = None) -> Outcome:
        """Run the tasks of the first (usually only) federation."""
        return self.run_all([tasks], [evaluate])[0]

    def run_all(self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]) -> list[Outcome]:
        """Run one exchange of every seed: one message to each node with all its tasks."""
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
        if self.algorithm.personal_state(self.settings[run]):
            return ByClient.none()
        message = solutions.stacked()
        return ByClient(solutions.clients, message["model"]) if "model" in message else ByClient.none()

    def model_parts(self, run: int, solutions: Parcels) -> dict[int, Message]:
        """No parts: what clients keep stays on their nodes."""
        return {}

    def air(self, run: int) -> Airmail:
        """Tasks of one seed and their replies, for policies that do not wait for everybody."""
        self._airs[run] = Airmail(
            self.settings[run], run, self._post, self._members, self._judge, self.flower, self._count
        )
        return self._airs[run]

    def at_work(self) -> dict[int, tuple[int, float]]:
        """Clients that have a task now: its round, and for how many seconds its client has had it."""
        return {client: about for air in list(self._airs.values()) for client, about in air.at_work().items()}

    def _envelopes(
        self, tasks: Sequence[Sequence[Tasks]], evaluate: Sequence[Parcels | None]
    ) -> dict[int, wire.Envelope]:
        """Make the envelope of each node; none for a node without tasks."""
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
                    since=self._since(run, client),
                )
                jobs.setdefault(client, []).append(job)
        final = not any(tasks)
        return {
            client: wire.Envelope(self.federation, client, secrets.token_hex(16), tuple(own), final)
            for client, own in jobs.items()
        }

    def _since(self, run: int, client: int) -> int:
        """Last round up to which a client's private state counts, where rounds do not wait for it."""
        if self.waits or run not in self._airs:
            return END_OF_TIME
        air = self._airs[run]
        return int(air.since[places(air.setting.clients, np.array([client]))[0]])

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
        """Make one seed's outcome from the answers."""
        results = {
            client: result for client, answer in answers.items() for result in answer.results if result.run == run
        }
        asked = [Task.of(some, client) for some in tasks for client in some]
        judged = [self._judge.reply(run, task, results.get(task.client), lost.get(task.client)) for task in asked]
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
        if run in self._airs:
            self._airs[run].landed(replies)
        refused = set(lost).union(failure.client for failure in failures)
        round_ = self._moments.get(run, (0, 0))[0]
        sent, false = self._judge.measured(run, round_, {client: result.sent for client, result in results.items()})
        others = {client: result.trained for client, result in results.items() if client not in refused}
        trained, also_false = self._judge.measured(run, round_, others)
        for failure in [*false, *also_false]:
            log.warning("%s", failure)
        return Outcome(replies, [*failures, *false, *also_false], Evaluations(sent, trained))

    # -- messages --------------------------------------------------------------------------------------------------

    def _exchange(self, envelopes: Mapping[int, wire.Envelope]) -> tuple[dict[int, wire.Answer], dict[int, str]]:
        """Answers by client, and for the others why there is none.

        Where the quorum is lost without those who are away, they have as long to come back as an exchange may take.
        """
        answers: dict[int, wire.Answer] = {}
        lost: dict[int, str] = dict.fromkeys(envelopes, Away("no node is connected for this client"))
        self._post.expect(max((self._judge.limits(envelope).bytes for envelope in envelopes.values()), default=0))
        pauses, until = Pauses(self.flower.poll), math.inf
        while True:
            here = [client for client in _away(lost) if client in self._members.nodes]
            self._collect({client: envelopes[client] for client in here}, answers, lost)
            away = _away(lost)
            hopeless = self._is_short(envelopes, {*answers, *away})
            if hopeless or not self._is_short(envelopes, set(answers)) or time.monotonic() > until:
                return answers, lost
            if until == math.inf:
                until = time.monotonic() + self.flower.timeout
                who = ", ".join(map(str, away))
                log.warning("too few answers for the quorum: waiting %g s for client %s", self.flower.timeout, who)
            pauses.sleep()
            self._members.meet()

    def _is_short(self, envelopes: Mapping[int, wire.Envelope], answered: set[int]) -> bool:
        """True if a seed has too few answers for the quorum; of an exchange that only measures, all answers count."""
        asked: dict[int, set[int]] = {}
        for client, envelope in envelopes.items():
            for job in envelope.jobs:
                if job.tasks or envelope.final:
                    asked.setdefault(job.run, set()).add(client)
        return any(len(some & answered) < required_replies(self.quorum, len(some)) for some in asked.values())

    def _collect(
        self, envelopes: Mapping[int, wire.Envelope], answers: dict[int, wire.Answer], lost: dict[int, str]
    ) -> None:
        """Asks clients whose nodes are connected, and moves those who answer from `lost` to `answers`."""
        pending = [self._send(client, wire.encode_envelope(envelope)) for client, envelope in envelopes.items()]
        pauses = Pauses(self.flower.poll)
        while pending:
            for owed in list(pending):
                came = self._look(owed, envelopes[owed.client])
                if came is None or (isinstance(came, Lost) and self._ask_again(owed, came)):
                    continue
                pending.remove(owed)
                if isinstance(came, wire.Answer):
                    answers[owed.client] = came
                    del lost[owed.client]
                else:
                    self._give_up(owed.client, came, lost)
            if pending:
                pauses.sleep()

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
            return self._judge.opened(reply, envelope)
        return Away(f"no answer within {self.flower.timeout:g} s") if time.monotonic() > owed.deadline else None

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

    def _count(self, client: int, down: int = 0, up: int = 0) -> None:
        self.traffic[client] = self.traffic.get(client, Bytes()) + Bytes(down, up)


def _away(lost: Mapping[int, str]) -> list[int]:
    """Clients that may come back and answer."""
    return [client for client, reason in lost.items() if isinstance(reason, Away)]
