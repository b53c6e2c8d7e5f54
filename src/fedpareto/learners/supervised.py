"""Minibatch gradient descent for n clients at once, in real epochs.

Clients are independent, so the gradient of the *sum* of their losses with respect to the stacked parameters is each
client's own gradient. A client with fewer rows than its neighbours idles at the end of an epoch: its parameters and
its optimiser state stay untouched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.core.clients import Clients
from fedpareto.core.layout import Layout
from fedpareto.core.learner import Learner, Loss, Pull
from fedpareto.core.problem import Batch, SupervisedProblem
from fedpareto.errors import UserError
from fedpareto.learners.optimisers import OPTIMISERS
from fedpareto.moo.scalarise import SCALARISATIONS


@dataclass(frozen=True)
class Supervised(Learner):
    """Stochastic gradient descent on the scalarised losses of a problem."""

    lr: float = 0.05
    """Step size."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """Fresh in every round, as in the papers."""
    momentum: float = 0.0
    """Of SGD."""
    weight_decay: float = 0.0
    """L2 penalty, added to the gradient."""
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
        if self.epochs < 1 or self.batch_size < 1 or self.steps < 0:
            raise UserError("epochs and batch_size are at least 1, steps at least 0")

    def train(self, clients: Clients, model: Tensor, weights: Tensor, pull: Pull | None = None) -> Tensor:
        """See Learner.train."""
        problem = _supervised(clients)
        scalarise = SCALARISATIONS[self.scalarisation]

        def loss(parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
            return scalarise(problem.losses(parameters, batch), weights)

        return self.minimise(clients, model, problem.layout, loss, pull=pull)

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
        model = start.clone()
        # The leaves are views of the flat model: the optimiser moves the flat tensor, the leaves follow.
        leaves = {name: view.detach() for name, view in layout.unflatten(model).items()}
        for leaf in leaves.values():
            leaf.requires_grad_()
        optimiser = OPTIMISERS[self.optimiser](model, self.lr, self.momentum)
        schedule = self if epochs is None else replace(self, epochs=epochs, steps=0)
        for batch, active in schedule.batches(clients, purpose):
            total = loss(leaves, batch).sum()
            gradients = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
            with torch.no_grad():
                gradient = torch.cat([part.flatten(1) for part in gradients], dim=1)
                if pull is not None:
                    gradient += pull(model)
                if self.weight_decay:
                    gradient.add_(model, alpha=self.weight_decay)
                optimiser.step(gradient, active)
        return model

    def gradients(self, clients: Clients, model: Tensor) -> tuple[Tensor, Tensor]:
        """See Learner.gradients; of the plain losses, without weight decay."""
        problem = _supervised(clients)
        leaves = {name: view.detach() for name, view in problem.layout.unflatten(model).items()}
        for leaf in leaves.values():
            leaf.requires_grad_()
        # A stream of its own: local training in the same round draws the same batches with or without this.
        batch, _ = next(replace(self, steps=1).batches(clients, "gradients"))
        losses = problem.losses(leaves, batch)
        parts = [
            torch.autograd.grad(loss.sum(), list(leaves.values()), retain_graph=True, materialize_grads=True)
            for loss in losses.unbind(dim=1)
        ]
        gradients = [torch.cat([part.flatten(1) for part in of_objective], dim=1) for of_objective in parts]
        return losses.detach(), torch.stack(gradients, dim=1)

    def loss(self, clients: Clients, model: Tensor) -> Tensor:
        """See Learner.loss; without weight decay."""
        problem = _supervised(clients)
        with torch.no_grad():
            losses = problem.losses(problem.layout.unflatten(model), clients.all_rows("train"))
        return SCALARISATIONS[self.scalarisation](losses, clients.preferences)

    def batches(self, clients: Clients, purpose: str = "batches") -> Iterator[tuple[Batch, Tensor | None]]:
        """The minibatches of one round, and which clients take part in each (`[n, 1]`; None: everyone)."""
        rows = clients.splits["train"]
        plan = self._plan(rows.counts[clients.positions], rows.starts[clients.positions], clients, purpose)
        real = plan >= 0
        everything_real = np.atleast_1d(real.all(axis=(0, 2)))
        anyone_idle = np.atleast_1d((~real.any(axis=2)).any(axis=0))
        index = clients.tensor(np.maximum(plan, 0))
        mask = clients.tensor(real).to(clients.preferences.dtype)
        ones = torch.ones_like(mask[:, 0]) if plan.size else mask
        for step in range(plan.shape[1]):
            here = ones if everything_real[step] else mask[:, step]
            active = (here.amax(dim=1, keepdim=True) > 0) if anyone_idle[step] else None
            yield rows.take(index[:, step], here), active

    def _plan(self, counts: np.ndarray, starts: np.ndarray, clients: Clients, purpose: str = "batches") -> np.ndarray:
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
        """Training: eight model-sized tensors and thrice what a forward pass keeps. Evaluation: all rows at once."""
        kept = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel() * tensor.element_size()
            return tensor

        problem = _supervised(clients)
        layout = problem.layout
        model = torch.zeros(1, layout.size, dtype=clients.preferences.dtype, device=clients.preferences.device)
        leaves = {name: view.requires_grad_() for name, view in layout.unflatten(model).items()}
        batch = next(self.batches(clients), None)
        if batch is not None:
            with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
                problem.losses(leaves, batch[0]).sum()
        training = 8 * layout.size * model.element_size() + 3 * kept
        longest = max(int(rows.counts[clients.positions].max()) for rows in clients.splits.values())
        evaluation = layout.size * model.element_size() + kept * -(-longest // self.batch_size)
        return max(training, evaluation)

    def probe(self) -> Supervised:
        """Three steps."""
        return replace(self, steps=3, epochs=1)


def _supervised(clients: Clients) -> SupervisedProblem:
    if not isinstance(clients.problem, SupervisedProblem):
        raise UserError(f"the problem '{clients.problem.name}' has no losses on rows; it needs a learner of its own")
    return clients.problem
