"""Minibatch gradient descent for n clients at once, in real epochs.

Clients are independent, so the gradient of the *sum* of their losses with respect to the stacked parameters is each
client's own gradient. A client with fewer rows than its neighbours idles at the end of an epoch: its parameters and
its optimiser state stay untouched.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.clients import Clients
from fedpareto.core.layout import Layout
from fedpareto.core.learner import Learner, Loss, Pull
from fedpareto.core.problem import ROWS_AT_ONCE, Batch, SupervisedProblem
from fedpareto.errors import UserError
from fedpareto.learners.descent import ADDRESS, Descent, Plan, RecordedTraining, Watch, flat_gradient, leaves
from fedpareto.learners.optimisers import Schedule
from fedpareto.moo.scalarise import SCALARISATIONS
from fedpareto.networks.training import Training


@dataclass(frozen=True)
class Supervised(Learner):
    """Stochastic gradient descent on the scalarised losses of a problem."""

    lr: float = 0.05
    """Step size."""
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    """The optimiser, reset in every round, as in the papers."""
    momentum: float = 0.0
    """Of SGD."""
    weight_decay: float = 0.0
    """L2 penalty, added to the gradient; of `adamw`, decoupled from it: weights shrink by lr · weight_decay a step."""
    clip_gradient: float = math.inf
    """The largest norm of a client's gradient in a step; a longer one is shortened."""
    lr_schedule: Literal["constant", "step", "cosine"] = "constant"
    """How the step size changes over rounds: not at all; `lr_decay` times as large every `lr_period` rounds; or along
    half a cosine wave to `lr_decay` of it after `lr_period` rounds.
    """
    lr_period: int = 100
    """Rounds of a schedule, as above."""
    lr_decay: float = 0.1
    """Factor of a schedule, as above."""
    lr_warm_up: int = 0
    """Rounds over which the step size rises to its full length, linearly."""
    epochs: int = 1
    """Passes over a client's data in one round."""
    steps: int = 0
    """Minibatch steps in one round instead of epochs (0: count epochs)."""
    batch_size: int = 128
    """Rows in a minibatch; the last of an epoch may be smaller."""
    scalarisation: Literal["linear", "tchebycheff", "smooth-tchebycheff"] = "linear"
    """How a preference turns several losses into one (linear: eq. 4.1 of the thesis)."""

    def __post_init__(self) -> None:
        if not 0 < self.lr < math.inf:
            raise UserError(f"lr is {self.lr}; a step size is a positive number, for example 0.05")
        if not 0 <= self.momentum < 1:
            raise UserError(f"momentum is {self.momentum}; it is at least 0 and below 1, for example 0.9")
        if not 0 <= self.weight_decay < math.inf:
            raise UserError(f"weight_decay is {self.weight_decay}; it is not negative, for example 1e-4")
        if not self.clip_gradient > 0:
            raise UserError(f"clip_gradient is {self.clip_gradient}; it is a positive norm, for example 1, or inf")
        if self.lr_period < 1 or self.lr_warm_up < 0 or not 0 <= self.lr_decay <= 1:
            raise UserError(
                f"lr_period, lr_warm_up and lr_decay are {self.lr_period}, {self.lr_warm_up} and {self.lr_decay:g}; "
                "they are rounds (at least 1 and 0) and a share from 0 to 1"
            )
        if self.epochs < 1 or self.batch_size < 1 or self.steps < 0:
            raise UserError("epochs and batch_size are at least 1, steps at least 0")

    @property
    def schedule(self) -> Schedule:
        """What the step size of a round is multiplied by."""
        return Schedule(self.lr_schedule, self.lr_period, self.lr_decay, self.lr_warm_up)

    def train(self, clients: Clients, model: Tensor, weights: Tensor, pull: Pull | None = None) -> Tensor:
        """See Learner.train."""
        return self._train(clients, model, weights, pull)[0]

    def train_watched(
        self, clients: Clients, model: Tensor, weights: Tensor, pull: Pull | None = None
    ) -> tuple[Tensor, Tensor]:
        """See Learner.train_watched."""
        return self._train(clients, model, weights, pull)

    def _train(self, clients: Clients, model: Tensor, weights: Tensor, pull: Pull | None) -> tuple[Tensor, Tensor]:
        """New models, and the mean loss of the last epoch."""
        problem, plan = _supervised(clients), self.plan(clients)
        if model.is_cuda and can_be_recorded(pull):
            return self._train_recorded(problem, clients, model, weights, pull, plan)

        def loss(parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
            return clients.tampered(self.scalarised(problem.losses(parameters, batch), weights))

        return self._descend(clients, model, problem.layout, loss, pull, plan)

    def _train_recorded(
        self,
        problem: SupervisedProblem,
        clients: Clients,
        model: Tensor,
        weights: Tensor,
        pull: Pull | None,
        plan: Plan,
    ) -> tuple[Tensor, Tensor]:
        """The same by a recording that the engine keeps: only one with equal shapes and data can be reused."""
        rows = clients.splits["train"]
        ones = model.new_ones(len(model))
        inputs = {"model": model, "weights": weights, "scale": ones, "bias": torch.zeros_like(ones)}
        addresses = _addresses(clients)
        inputs |= {name: getattr(addresses, name) for name in ADDRESS}
        if clients.tampering is not None:
            inputs |= {"scale": clients.tampering.scale, "bias": clients.tampering.bias}
        if pull is not None:
            inputs |= {"towards": pull.towards, "strength": _column(pull.strength, model)}
        key = (self, id(rows), model.shape, model.dtype, pull is not None)

        def record() -> RecordedTraining:
            kept = {name: tensor.clone() for name, tensor in inputs.items()}

            def loss(parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
                value = self.scalarised(problem.losses(parameters, batch), kept["weights"])
                return kept["scale"] * value + kept["bias"]

            return RecordedTraining(self, rows, problem.layout, loss, kept)

        recording = clients.recordings.get(key, record)
        return recording.train(inputs, plan), recording.watch.means

    def minimise(
        self,
        clients: Clients,
        start: Tensor,
        layout: Layout,
        loss: Loss,
        *,
        epochs: int | None = None,
        pull: Pull | None = None,
        purpose: str = "batches",
    ) -> Tensor:
        """See Learner.minimise."""
        schedule = self if epochs is None else replace(self, epochs=epochs, steps=0)

        def tampered(parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
            return clients.tampered(loss(parameters, batch))

        return self._descend(clients, start, layout, tampered, pull, schedule.plan(clients, purpose), purpose)[0]

    def _descend(
        self,
        clients: Clients,
        start: Tensor,
        layout: Layout,
        loss: Loss,
        pull: Pull | None,
        plan: Plan,
        purpose: str = "batches",
    ) -> tuple[Tensor, Tensor]:
        """Models after all minibatches of `plan`, and the mean loss of the last epoch."""
        descent = Descent(self, start.clone(), layout, loss, pull, _addresses(clients), purpose)
        watch = Watch(start)
        for step, (batch, active) in enumerate(plan.batches(clients.splits["train"])):
            watch.see(descent.step(batch, active), batch.mask, plan.last_epoch[:, step])
        return descent.model, watch.means

    def gradients(self, clients: Clients, model: Tensor) -> tuple[Tensor, Tensor]:
        """See Learner.gradients; of the plain losses, without weight decay."""
        problem = _supervised(clients)
        parameters = leaves(problem.layout, model)
        # A stream of its own: local training in the same round draws the same batches with or without this.
        batch, _ = next(replace(self, steps=1).plan(clients, "gradients").batches(clients.splits["train"]))
        losses = clients.tampered(problem.losses(parameters, _to_train_on(batch, clients, "gradients")))
        gradients = [flat_gradient(loss.sum(), parameters, retain_graph=True) for loss in losses.unbind(dim=1)]
        return losses.detach(), torch.stack(gradients, dim=1)

    def loss(self, clients: Clients, model: Tensor) -> Tensor:
        """See Learner.loss; without weight decay."""
        problem = _supervised(clients)
        parameters = problem.layout.unflatten(model)
        with torch.no_grad():
            losses = problem.over_rows(lambda batch: problem.losses(parameters, batch), clients, "train")
        return clients.tampered(self.scalarised(losses, clients.preferences))

    def scalarised(self, losses: Tensor, weights: Tensor) -> Tensor:
        """See Learner.scalarised."""
        return SCALARISATIONS[self.scalarisation](losses, weights)

    def plan(self, clients: Clients, purpose: str = "batches") -> Plan:
        """The minibatches of one round."""
        rows = clients.splits["train"]
        counts = rows.counts[clients.positions]
        index = self._rows(counts, rows.starts[clients.positions], clients, purpose)
        real = index >= 0
        per_epoch, steps = -(-counts // self.batch_size), np.arange(index.shape[1])
        own_steps = self.steps or self.epochs * per_epoch
        late = (steps >= (own_steps - per_epoch)[:, None]) & (steps < np.reshape(own_steps, (-1, 1)))
        return Plan(
            index=clients.tensor(np.maximum(index, 0)),
            mask=clients.tensor(real).to(clients.preferences.dtype),
            everyone_full=np.atleast_1d(real.all(axis=(0, 2))).tolist(),
            someone_idle=np.atleast_1d((~real.any(axis=2)).any(axis=0)).tolist(),
            last_epoch=clients.tensor(late).to(clients.preferences.dtype),
        )

    def _rows(self, counts: np.ndarray, starts: np.ndarray, clients: Clients, purpose: str) -> np.ndarray:
        """The rows of all minibatches, `[n, steps, batch]`, −1 where there is none.

        Each epoch of a client is a new permutation of its rows, cut into batches of which the last may be smaller.
        """
        per_epoch = -(-counts // self.batch_size)
        epochs = -(-self.steps // np.maximum(per_epoch, 1)) if self.steps else np.full(len(counts), self.epochs)
        steps = self.steps or int((epochs * per_epoch).max())
        plan = np.full((len(counts), steps * self.batch_size), -1, dtype=np.int32)
        for row, count, start, length, passes, stream in zip(
            plan, counts, starts, per_epoch * self.batch_size, epochs, clients.generators(purpose), strict=True
        ):
            for begin in range(0, passes * length, length) if count else ():
                place = row[begin : begin + count]
                place[:] = (stream.permutation(count) + start)[: len(place)]
        return plan.reshape(len(counts), steps, self.batch_size)

    def bytes_per_client(self, clients: Clients) -> int:
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
        batch = next(self.plan(clients).batches(clients.splits["train"]), None)
        if batch is not None:
            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                problem.losses(parameters, _to_train_on(batch[0], clients)).sum()
        training = 8 * layout.size * model.element_size() + 3 * kept
        longest = max(int(rows.counts[clients.positions].max()) for rows in clients.splits.values())
        evaluated = min(longest, ROWS_AT_ONCE) if problem.row_by_row else longest
        evaluation = layout.size * model.element_size() + kept * -(-evaluated // self.batch_size)
        return max(training, evaluation)

    def probe(self) -> Supervised:
        """Three steps."""
        return replace(self, steps=3, epochs=1)


def _addresses(clients: Clients) -> rng.Addresses:
    """Whose streams are drawn from, where the models are."""
    return rng.Addresses.of(clients.addresses, clients.preferences.device)


def _to_train_on(batch: Batch, clients: Clients, purpose: str = "batches") -> Batch:
    """A minibatch as that of the first step of a round."""
    first = torch.zeros((), dtype=torch.int64, device=batch.mask.device)
    return replace(batch, training=Training(batch.mask, _addresses(clients), first, purpose))


def _column(strength: float | Tensor, model: Tensor) -> Tensor:
    """A pull's strength as `[n, 1]`."""
    return torch.as_tensor(strength, dtype=model.dtype, device=model.device).expand(len(model), 1)


def can_be_recorded(pull: Pull | None) -> bool:
    """Whether a CUDA graph may hold this pull: its two tensors are inputs; a subclass may read what is not."""
    return pull is None or type(pull) is Pull


def _supervised(clients: Clients) -> SupervisedProblem:
    if not isinstance(clients.problem, SupervisedProblem):
        raise UserError(f"the problem '{clients.problem.name}' has no losses on rows; it needs a learner of its own")
    return clients.problem
