"""Minibatch gradient descent for n clients at once, in real epochs.

Clients are independent, so the gradient of the *sum* of their losses with respect to the stacked parameters is each
client's own gradient. A client with fewer rows than its neighbours idles at the end of an epoch: its parameters and
its optimiser state stay untouched.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from types import FunctionType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import Count, Endless, NotNegative, Positive, Share, ShareBelowOne, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.learner import STEP_FACTOR, Learner, Loss, Pull
from fedpareto.contract.messages import Message
from fedpareto.contract.problem import ROWS_AT_ONCE, SupervisedProblem
from fedpareto.contract.stack import Stack
from fedpareto.learners.descent import ADDRESS, OWN, Descent, Make, RecordedTraining, Watch
from fedpareto.learners.gradients import (
    Autograd,
    ByHand,
    Gradient,
    flat_gradient,
    found_by_autograd,
    leaves,
    written_out,
)
from fedpareto.learners.minibatches import Outline, Plan, drawn
from fedpareto.learners.optimisers import Schedule
from fedpareto.learners.plain import PlainDescent, is_plain
from fedpareto.moo.scalarise import SCALARISATIONS
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch
from fedpareto.tensors.training import Training

SCALE, BIAS = "tampering scale", "tampering bias"
"""Names of what attackers do to their losses, among what a loss is given."""


@dataclass(frozen=True)
class Supervised(Learner):
    """Stochastic gradient descent on the scalarised losses of a problem."""

    own: ClassVar[tuple[str, ...]] = ("lr", "momentum", "weight_decay")

    lr: Positive = 0.05
    """Step size."""
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    """The optimiser, reset in every round, as in the papers."""
    momentum: ShareBelowOne = 0.0
    """Momentum of SGD."""
    weight_decay: NotNegative = 0.0
    """L2 penalty, added to the gradient; of `adamw`, decoupled from it: weights shrink by lr · weight_decay a step."""
    clip_gradient: Endless = math.inf
    """The largest norm of a client's gradient in a step; a longer one is shortened."""
    lr_schedule: Literal["constant", "step", "cosine"] = "constant"
    """Change of the step size over rounds: not at all; `lr_decay` times as large every `lr_period` rounds; or along
    half a cosine wave to `lr_decay` of it after `lr_period` rounds.
    """
    lr_period: Count = 100
    """Rounds of a schedule, as above."""
    lr_decay: Share = 0.1
    """Factor of a schedule, as above."""
    lr_warm_up: Whole = 0
    """Rounds over which the step size rises to its full length, linearly."""
    epochs: Count = 1
    """Passes over a client's data in one round."""
    steps: Whole = 0
    """Minibatch steps in one round instead of epochs (0: count epochs)."""
    batch_size: Count = 128
    """Rows in a minibatch; the last of an epoch may be smaller."""
    scalarisation: Literal["linear", "tchebycheff", "smooth-tchebycheff"] = "linear"
    """Function by which a preference turns several losses into one (linear: eq. 4.1 of the thesis)."""

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.lr_schedule, self.lr_period, self.lr_decay, self.lr_warm_up)

    def train(self, clients: Stack, model: Tensor, weights: Tensor, pull: Pull | None = None) -> Tensor:
        return self._train(clients, model, weights, pull, watched=False)[0]

    def train_watched(
        self, clients: Stack, model: Tensor, weights: Tensor, pull: Pull | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._train(clients, model, weights, pull)

    def _train(
        self, clients: Stack, model: Tensor, weights: Tensor, pull: Pull | None, watched: bool = True
    ) -> tuple[Tensor, Tensor]:
        problem = _supervised(clients)
        readout = problem.readout()

        def make(model: Tensor, given: Message) -> Gradient:
            scalarise, is_tampered = SCALARISATIONS[self.scalarisation], SCALE in given

            def scalarised(losses: Tensor) -> Tensor:
                found = scalarise(losses, given["weights"])
                return _tampered(found, given) if is_tampered else found

            if readout is None:

                def loss(own: Mapping[str, Tensor], batch: Batch) -> Tensor:
                    found = scalarise(problem.losses(own, batch), given["weights"])
                    return _tampered(found, given) if is_tampered else found

                return Autograd(problem.layout, model, loss)
            if readout.slopes is None or watched or self.scalarisation != "linear":
                losses_of = readout.losses
                of_outputs = found_by_autograd(lambda *given: scalarised(losses_of(*given)))
            else:
                of_outputs = written_out(readout.slopes, lambda: _weights(given))
            return ByHand(readout, model, of_outputs, clients.recordings.workspace)

        given = {"weights": weights}
        return self._descend(clients, model, problem.layout, make, given, pull, "batches", "train", watched)

    def minimise(
        self,
        clients: Stack,
        start: Tensor,
        layout: Layout,
        loss: Loss,
        given: Message | None = None,
        *,
        epochs: int | None = None,
        pull: Pull | None = None,
        purpose: str = "batches",
    ) -> Tensor:
        given = {} if given is None else given
        schedule = self if epochs is None else replace(self, epochs=epochs, steps=0)

        def make(model: Tensor, given: Message) -> Gradient:
            return Autograd(layout, model, lambda own, batch: _tampered(loss(own, batch, given), given))

        return schedule._descend(clients, start, layout, make, given, pull, purpose, identity_of(loss))[0]

    def _descend(
        self,
        clients: Stack,
        start: Tensor,
        layout: Layout,
        make: Make,
        given: Message,
        pull: Pull | None,
        purpose: str,
        identity: Hashable,
        watched: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Models after all minibatches of a round, and the mean loss of the last epoch if it is wanted.

        What the loss changed in `given` is in there afterwards. On a GPU it is done by a recording that the engine
        keeps, if the loss has an identity; only one with equal shapes and data can be used again.
        """
        rows, (outline, tensors) = clients.splits["train"], self._outline(clients)
        if not outline.steps:
            return start.clone(), start.new_zeros(len(start))
        inputs = given | _falsified(clients)
        if self._is_recorded(clients, start, identity, pull, purpose):
            key = self, id(rows), layout, start.shape, start.dtype, purpose, identity, pull is not None, watched
            if pull is not None:
                inputs |= {"towards": pull.towards, "strength": _column(pull.strength, start)}
                inputs |= {} if pull.slope is None else {"slope": pull.slope}
            inputs |= {OWN + name: tensor for name, tensor in clients.own.items()}
            inputs |= {"model": start, **{name: getattr(clients.addresses, name) for name in ADDRESS}}
            changed = frozenset({"model"} if identity == "train" else {"model", *given})

            def record() -> RecordedTraining:
                kept = _clones(inputs | tensors)
                return RecordedTraining(self, rows, layout, make, kept, outline, purpose, watched, changed)

            recording = clients.recordings.get((*key, frozenset(inputs), outline.form), record)
            model = recording.train(inputs, tensors)
            if recording.some_steps.refused:
                clients.recordings.refused[purpose] = recording.some_steps.refused
            given.update(_clones({name: recording.inputs[name] for name in given if name in changed}))
            return model, model if recording.watch is None else recording.watch.means
        model, kept, watch = start.clone(), _clones(inputs), Watch(start)
        gradient, factors = make(model, kept), kept.get(STEP_FACTOR)
        descent: Descent | PlainDescent
        if is_plain(gradient, self, pull, clients.own, factors, outline):
            descent = PlainDescent(self, gradient, pull, clients.recordings.compiled)
        else:
            descent = Descent(self, model, layout, gradient, pull, clients.addresses, purpose, factors, clients.own)
        plan = self._drawn(clients, outline, tensors, purpose, start.dtype)
        for step, (batch, active) in enumerate(plan.batches(rows, outline, clients.recordings.workspace)):
            losses = descent.step(batch, active)
            if watched:
                watch.see(losses, batch.mask, plan.last_epoch[:, step])
        for name in given:
            given[name] = kept[name]
        return descent.model, watch.means

    def _drawn(self, clients: Stack, outline: Outline, tensors: Message, purpose: str, dtype: torch.dtype) -> Plan:
        """The minibatches of a round, drawn once for all models that clients train on the same ones."""
        compiled = clients.recordings.compiled

        def draw() -> Plan:
            return drawn(outline, tensors, clients.addresses, purpose, dtype, compiled)

        return clients.recordings.again((outline, clients.addresses, purpose, dtype), draw)

    def _is_recorded(self, clients: Stack, start: Tensor, identity: Hashable, pull: Pull | None, purpose: str) -> bool:
        if not clients.recordings.are_made(start.device):
            return False
        if identity is None:
            clients.recordings.refused[purpose] = "its loss is a closure, which may refer to something else next time"
        elif not can_be_recorded(pull):
            clients.recordings.refused[purpose] = "its pull is of a class of its own, which may read anything"
        else:
            return True
        return False

    def gradients(self, clients: Stack, model: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of the plain losses, without weight decay."""
        problem = _supervised(clients)
        parameters = leaves(problem.layout, model)
        # A stream of its own: local training in the same round draws the same batches with or without this.
        batch = replace(self, steps=1).first_batch(clients, "gradients")
        assert batch is not None, "clients that train have rows"
        losses = clients.tampered(problem.losses(parameters, batch))
        gradients = [flat_gradient(loss.sum(), parameters, retain_graph=True) for loss in losses.unbind(dim=1)]
        return losses.detach(), torch.stack(gradients, dim=1)

    def reach(self, clients: Stack) -> Tensor:
        """With momentum β, step k of a constant gradient is (1 − β^k) / (1 − β) step sizes long."""
        if self.optimiser != "sgd":
            raise UserError(
                f"learner.optimiser is {self.optimiser}, whose steps do not tell a client's mean gradient, which this "
                "algorithm needs; take sgd"
            )
        steps = torch.as_tensor(self._outline(clients)[0].own_steps, device=clients.preferences.device)
        beta, lr = (self._of_each(clients, name) for name in ("momentum", "lr"))
        lengths = (steps - beta * (1 - beta**steps) / (1 - beta)) / (1 - beta)
        factors = lr * self.schedule(clients.addresses.round)
        lengths_in_all: Tensor = (lengths * factors).to(clients.preferences)
        return lengths_in_all

    def _of_each(self, clients: Stack, name: str) -> Any:
        """Value of a parameter: one number, or `[n]` where it differs."""
        return clients.own[name].squeeze(1) if name in clients.own else getattr(self, name)

    def loss(self, clients: Stack, model: Tensor) -> Tensor:
        """Loss without weight decay."""
        problem = _supervised(clients)
        parameters = problem.layout.unflatten(model)
        with torch.no_grad():
            losses = problem.over_rows(lambda batch: problem.losses(parameters, batch), clients, "train")
        return clients.tampered(self.scalarised(losses, clients.preferences))

    def scalarised(self, losses: Tensor, weights: Tensor) -> Tensor:
        return SCALARISATIONS[self.scalarisation](losses, weights)

    def _outline(self, clients: Stack) -> tuple[Outline, Message]:
        """Outline of the minibatches ahead of a round; looked up where it was made for the same clients."""
        rows, positions = clients.splits["train"], clients.positions

        def make() -> tuple[Outline, Message]:
            outline = Outline.of(rows, positions, self.batch_size, self.epochs, self.steps)
            return outline, outline.tensors(clients.preferences.device)

        return clients.recordings.noted((self, id(rows)), positions, make)

    def plan(self, clients: Stack, purpose: str = "batches") -> Plan:
        outline, tensors = self._outline(clients)
        return drawn(outline, tensors, clients.addresses, purpose, clients.preferences.dtype)

    def first_batch(self, clients: Stack, purpose: str = "batches") -> Batch | None:
        """The first minibatch of a round, as that of a training step; None where no client has rows."""
        outline, _ = self._outline(clients)
        found = next(self.plan(clients, purpose).batches(clients.splits["train"], outline), None)
        if found is None:
            return None
        first = torch.zeros((), dtype=torch.int64, device=clients.preferences.device)
        return replace(found[0], training=Training(found[0].mask, clients.addresses, first, purpose))

    def bytes_per_client(self, clients: Stack) -> int:
        """Training: eight model-sized tensors and three times what a forward pass keeps. Evaluation: all rows at
        once.
        """
        kept = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel() * tensor.element_size()
            return tensor

        problem = _supervised(clients)
        layout = problem.layout
        model = torch.zeros(1, layout.size, dtype=clients.preferences.dtype, device=clients.preferences.device)
        parameters = leaves(layout, model)
        batch = self.first_batch(clients)
        if batch is not None:
            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                problem.losses(parameters, batch).sum()
        training = 8 * layout.size * model.element_size() + 3 * kept
        longest = max(int(rows.counts[clients.positions].max()) for rows in clients.splits.values())
        evaluated = min(longest, ROWS_AT_ONCE) if problem.row_by_row else longest
        evaluation = layout.size * model.element_size() + kept * -(-evaluated // self.batch_size)
        return max(training, evaluation)

    def probe(self) -> Supervised:
        return replace(self, steps=3, epochs=1)

    def effort(self, counts: np.ndarray) -> np.ndarray:
        """Rows in all minibatches of a round, the same ones again in every epoch."""
        per_epoch = np.maximum(-(-counts // self.batch_size), 1)
        passes, rest = divmod(self.steps, per_epoch) if self.steps else (self.epochs, 0)
        return np.asarray(passes * counts + rest * self.batch_size * (counts > 0), dtype=np.float64)

    def countable(self, rows: int) -> tuple[Supervised, tuple[int, ...]]:
        """One full minibatch of rows, and two of them if there are as many."""
        # Of a single row, torch computes products of matrices as if they were none.
        size = min(max(self.batch_size, 2), max(rows // 2, 1))
        return replace(self, batch_size=size), tuple(times * size for times in (1, 2) if times * size <= rows)


def _weights(given: Message) -> Tensor:
    """Weights of the losses in a weighted sum, `[n, m]`, as far as attackers leave them."""
    return given[SCALE].unsqueeze(-1) * given["weights"] if SCALE in given else given["weights"]


def _tampered(loss: Tensor, given: Message) -> Tensor:
    """The attackers' falsified loss, where there are any among the clients."""
    return given[SCALE] * loss + given[BIAS] if SCALE in given else loss


def _falsified(clients: Stack) -> Message:
    if clients.tampering is None:
        return {}
    return {SCALE: clients.tampering.scale, BIAS: clients.tampering.bias}


def _clones(message: Message) -> Message:
    found = {}
    for name, tensor in message.items():
        found[name] = tensor.clone()
    return found


def identity_of(loss: Loss) -> Hashable:
    """Key of a recording of a loss: nothing but its arguments and this decides its values.

    A function of a module, or a method of a frozen dataclass, has one; a closure has none, since what it refers to may
    be another next time.
    """
    if isinstance(loss, FunctionType):
        return None if loss.__closure__ else loss
    owner, name = getattr(loss, "__self__", loss), getattr(loss, "__name__", "__call__")
    if not is_dataclass(owner) or not getattr(owner, "__dataclass_params__").frozen:  # noqa: B009 (not in its type)
        return None
    return type(owner), name, tuple(_named(getattr(owner, one.name)) for one in fields(owner))


def _named(value: object) -> Hashable:
    """A value, or which object it is where it cannot be compared."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def _column(strength: float | Tensor, model: Tensor) -> Tensor:
    return torch.as_tensor(strength, dtype=model.dtype, device=model.device).expand(len(model), 1)


def can_be_recorded(pull: Pull | None) -> bool:
    """True if a CUDA graph may hold this pull: its tensors are inputs; a subclass may read what is not."""
    return pull is None or type(pull) is Pull


def _supervised(clients: Stack) -> SupervisedProblem:
    if not isinstance(clients.problem, SupervisedProblem):
        raise UserError(f"the problem '{clients.problem.name}' has no losses on rows; it needs a learner of its own")
    return clients.problem
