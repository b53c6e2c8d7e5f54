"""Both halves of any algorithm of the library for a session: a client as a stack of one, and the server.

The machines of a session know arrays and messages only. What they leave to be learnt is done here, by the code of the
ordinary engines, so that a session has their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.clock.policy import Policy
from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting, State
from fedpareto.contract.learner import Learner, Pull
from fedpareto.contract.messages import Message, Parcels, Tasks, beginnings
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.reply_checks import refusal, too_large
from fedpareto.engines.single import ONE, Reply, Task, exchanged, only, stacked
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto_space.session.events import Answer, Arrays, Ask, Exchange

FURTHER = 20
"""Bits for the number of a round: a further local step in it draws its random numbers from round + step · 2^20."""


class Nearby(Learner):
    """A learner that stays near a point while it trains: ½·μ·‖θ − towards‖² is added to every loss."""

    def __init__(self, learner: Learner, mu: float) -> None:
        self.learner, self.mu = learner, mu
        self.towards: Tensor | None = None
        """The global model `[d]`; where the parameters that are trained are others, it is where these begin."""

    def _pull(self, start: Tensor, own: Pull | None) -> Pull | None:
        if not self.mu:
            return own
        fits = self.towards is not None and self.towards.shape == start.shape[1:]
        towards = self.towards.expand_as(start) if fits and self.towards is not None else start
        if own is None:
            return Pull(self.mu, towards)
        both = own.strength + self.mu
        return Pull(both, (own.strength * own.towards + self.mu * towards) / both)

    def train(self, clients: Any, model: Tensor, weights: Tensor, pull: Pull | None = None) -> Tensor:
        return self.learner.train(clients, model, weights, self._pull(model, pull))

    def train_watched(
        self, clients: Any, model: Tensor, weights: Tensor, pull: Pull | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.learner.train_watched(clients, model, weights, self._pull(model, pull))

    def minimise(self, clients: Any, start: Tensor, *rest: Any, pull: Pull | None = None, **options: Any) -> Tensor:
        return self.learner.minimise(clients, start, *rest, pull=self._pull(start, pull), **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.learner, name)

    def scalarised(self, losses: Tensor, weights: Tensor) -> Tensor:
        return self.learner.scalarised(losses, weights)

    def memory(self, problem: Any) -> Message:
        return self.learner.memory(problem)

    def gradients(self, clients: Any, model: Tensor) -> tuple[Tensor, Tensor]:
        return self.learner.gradients(clients, model)

    def loss(self, clients: Any, model: Tensor) -> Tensor:
        return self.learner.loss(clients, model)

    def bytes_per_client(self, clients: Any) -> int:
        return self.learner.bytes_per_client(clients)

    def probe(self) -> Learner:
        return self.learner.probe()


@dataclass
class ClientHalf:
    """One client of a run: its rows, its preference, its private state."""

    spec: Spec
    client: int
    mu: float = 0.0
    """Strength of a proximal term towards the global model (table 6.2, row 5)."""
    watches: bool = False
    """The training loss is measured after every step: a trigger may need it."""

    @cached_property
    def engine(self) -> LocalEngine:
        spec, seed = self.spec, self.spec.seeds[0]
        learner = Nearby(spec.learner, self.mu) if self.mu else spec.learner
        alone = only(spec.federation(seed), self.client)
        options, setting = spec.engine, settings_of(spec)[0]
        return LocalEngine(spec.algorithm, spec.problem, learner, [alone], [setting], options, choices=ONE)

    def train(self, ask: Ask, start: Arrays, further: int = 0) -> Answer:
        """One local step: the algorithm's client step from `start`. `further` counts those before it in this round."""
        engine, round_ = self.engine, ask.round + (further << FURTHER)
        message = tensors_of(start, engine)
        if isinstance(engine.learner, Nearby):
            engine.learner.towards = tensors_of(ask.tensors, engine).get("model")
        task = Task(self.client, round_, message, ask.step, ask.lane)
        kept = dict(engine.private.items())
        outcome = exchanged(engine, 0, [task.stacked()])
        for key, state in kept.items():  # Of lanes that this task does not name.
            if key not in engine.private:
                engine.private[key] = state
        if not len(outcome.replies):
            return Answer(ask, {}, failure=outcome.failures[0].reason)
        reply = {name: rows[0] for name, rows in outcome.replies.tensors.items()}
        loss = self._loss(message | reply) if self.watches else None
        return Answer(ask, arrays_of(reply), loss=loss)

    def _loss(self, message: Message) -> float | None:
        """The training loss under the client's own preference; None where training has none."""
        try:
            measured = self.engine.losses([self._parcel(message)])[0]
        except UserError:
            return None
        return float(measured[self.client])

    def model(self, solution: Arrays) -> np.ndarray:
        found = self.engine.models(0, self._parcel(tensors_of(solution, self.engine)))[self.client]
        return found.detach().cpu().numpy()

    def _parcel(self, message: Message) -> Parcels:
        return Parcels(np.array([self.client]), message)

    # -- what survives a reset -------------------------------------------------------------------------------------

    def saved(self) -> bytes:
        checkpoint = Checkpoint()
        checkpoint.put_private(self.engine.private)
        return checkpoint.to_bytes()

    def restore(self, saved: bytes) -> None:
        loaded = Checkpoint.from_bytes(saved, "the client's checkpoint") if saved else Checkpoint()
        self.engine.private = loaded.get_private(self.engine.device)


@dataclass
class ServerHalf:
    """The server of a run: asks, and learns from what came back."""

    spec: Spec
    policy: Policy = field(default_factory=Policy)
    """For whom a round waits, and what a late update counts."""
    lr: float = 1.0
    """Factor of the aggregated movement."""
    state: State = field(init=False)

    def __post_init__(self) -> None:
        if not Codec.parse(self.spec.server_codec).plain:
            raise UserError(
                f"server_codec is {self.spec.server_codec}, but in a session the server sends differences without "
                "loss; leave it out"
            )
        self.policy.must_fit(self.spec.algorithm, self.spec.clients)
        self.state = self.spec.algorithm.begin(self.setting)
        self._exchanges = 0
        if self.lr != 1 and not isinstance(getattr(self.state, "model", None), Tensor):
            raise UserError(f"server-lr is {self.lr:g}; {self.spec.algorithm.name} has no one global model to move")

    @cached_property
    def setting(self) -> Setting:
        setting = settings_of(self.spec)[0]
        participation = setting.participation if self.policy.waits else 1.0
        initial = setting.initial.to(self.spec.engine.dtype)
        return replace(setting, initial=initial, participation=participation, waits=self.policy.waits)

    @property
    def over(self) -> bool:
        return self.state.round >= self.spec.rounds

    def ask(self) -> Exchange:
        with one_thread():
            if self.over:
                parcels = self.spec.algorithm.solutions(self.state)
                asks = [Ask(client, self.state.round, "", 0, arrays_of(parcels[client])) for client in parcels]
            else:
                asks = [ask for tasks in self.spec.algorithm.ask(self.state) for ask in _asks(tasks)]
        return Exchange(self._exchanges, self.state.round + (not self.over), tuple(asks), self.over)

    def refusal(self, answer: Answer) -> str | None:
        """Why an update does not count, or None: it must be what the algorithm declared."""
        message = tensors_of(answer.tensors, self.spec.engine)
        shapes = self.spec.algorithm.reply_shapes(self.setting)
        if answer.ask.step not in shapes:
            return f"there is no step '{answer.ask.step}'"
        why = refusal(message, self.spec.algorithm, self.setting, answer.ask.step, self.spec.engine.dtype)
        return why or too_large(message)

    def shapes(self, step: str) -> Mapping[str, tuple[int, ...]]:
        return self.spec.algorithm.reply_shapes(self.setting).get(step, {})

    def tell(self, answers: Sequence[Answer]) -> Exchange:
        with one_thread():
            now = {(ask.client, ask.lane): ask for ask in self.ask().asks}
            replies = [self._reply(answer, now) for answer in answers]
            if replies:
                self.state = self._moved(self.spec.algorithm.tell(self.state, stacked(replies)))
        self._exchanges += 1
        return self.ask()

    def _moved(self, state: State) -> State:
        """The state, with its model moved further or less far than the rule does."""
        if self.lr == 1:
            return state
        before, after = vars(self.state)["model"], vars(state)["model"]
        return replace(state, **{"model": before + self.lr * (after - before)})

    def _reply(self, answer: Answer, now: Mapping[tuple[int, int], Ask]) -> Reply:
        """An update as a reply; a late one is brought to this round (see fleet.staleness)."""
        ask = answer.ask
        message = tensors_of(answer.tensors, self.spec.engine)
        current = now.get((ask.client, ask.lane))
        if current is not None and current.round > ask.round and current.step == ask.step:
            rows = {name: tensor[None] for name, tensor in message.items()}
            weights = torch.as_tensor(self.policy.weights(np.array([current.round - ask.round])) * answer.weight)
            begun, at = self._beginning(ask, rows), self._beginning(current, rows)
            fresh = self.spec.algorithm.refreshed(rows, begun, at, weights)
            message = {name: tensor[0] for name, tensor in fresh.items()}
        round_ = ask.round if current is None else current.round
        return Reply(ask.client, round_, message, ask.step, ask.lane)

    def _beginning(self, ask: Ask, rows: Message) -> Message:
        return beginnings(stacked_task(ask, self.spec.engine), rows)

    # -- what survives a reset, or goes to a stand-by --------------------------------------------------------------

    def saved(self) -> bytes:
        checkpoint = Checkpoint(values={"exchanges": self._exchanges})
        checkpoint.put_state(self.state, "state")
        return checkpoint.to_bytes()

    def restore(self, saved: bytes) -> Exchange:
        checkpoint = Checkpoint.from_bytes(saved, "the server's checkpoint")
        self.state = checkpoint.get_state(self.spec.algorithm.begin(self.setting), "state")
        self._exchanges = int(checkpoint.values["exchanges"])
        return self.ask()


def _asks(tasks: Tasks) -> Iterator[Ask]:
    begun = [{name: rows[row] for name, rows in tasks.begun.items()} for row in range(len(tasks))]
    for row, client in enumerate(tasks.clients.tolist()):
        yield Ask(client, tasks.round, tasks.step, tasks.lane, arrays_of(tasks[client]), arrays_of(begun[row]))


def stacked_task(ask: Ask, options: Any) -> Tasks:
    task = Task(ask.client, ask.round, tensors_of(ask.tensors, options), ask.step, ask.lane).stacked()
    return replace(task, begun={name: one[None] for name, one in tensors_of(ask.begun, options).items()})


def arrays_of(message: Message) -> dict[str, np.ndarray]:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in message.items()}


def tensors_of(arrays: Arrays, place: Any) -> Message:
    """The other way, in the precision of an engine or of its options."""
    dtype = place.options.dtype if isinstance(place, LocalEngine) else place.dtype
    found = {name: torch.as_tensor(np.array(array)) for name, array in arrays.items()}
    return {name: one.to(dtype) if one.is_floating_point() else one for name, one in found.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums of a server are the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
