"""Gradient descent of a stack of clients, step by step; on a CUDA device recorded once and replayed from then on.

A step of a small model is many small kernels, and launching them takes longer than running them. A CUDA graph launches
them all at once. A step therefore works on tensors that keep their addresses from round to round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.layout import Layout
from fedpareto.core.learner import Loss, Pull
from fedpareto.core.problem import Batch, Rows
from fedpareto.core.replay import Replayed
from fedpareto.errors import UserError
from fedpareto.learners.optimisers import SGD, Adam, Optimiser, clip_
from fedpareto.networks.training import Training

if TYPE_CHECKING:
    from fedpareto.learners.supervised import Supervised

ADDRESS = ("seed", "client", "round", "lane")
"""The parts of clients' addresses by name."""


@dataclass(frozen=True)
class Plan:
    """The minibatches of one round."""

    index: Tensor
    """Rows of all minibatches, absolute, `[n, steps, batch]`; 0 where there is none."""
    mask: Tensor
    """1 where there is a row, `[n, steps, batch]`."""
    everyone_full: list[bool]
    """By step, whether there is a row in every place."""
    someone_idle: list[bool]
    """By step, whether a client has no rows left."""
    last_epoch: Tensor
    """1 in the steps of a client's last epoch, `[n, steps]`."""

    def batches(self, rows: Rows) -> Iterator[tuple[Batch, Tensor | None]]:
        """The minibatches, and which clients take part in each (`[n, 1]`; None: all)."""
        ones = torch.ones_like(self.mask[:, 0]) if self.mask.numel() else self.mask
        for step, (full, idle) in enumerate(zip(self.everyone_full, self.someone_idle, strict=True)):
            here = ones if full else self.mask[:, step]
            active = (here.amax(dim=1, keepdim=True) > 0) if idle else None
            yield rows.take(self.index[:, step], here), active


class Descent:
    """Steps of n models `[n, d]` down a loss."""

    def __init__(
        self,
        learner: Supervised,
        model: Tensor,
        layout: Layout,
        loss: Loss,
        pull: Pull | None,
        addresses: rng.Addresses,
        purpose: str = "batches",
    ) -> None:
        self.learner, self.model, self.layout, self.loss, self.pull = learner, model, layout, loss, pull
        self.addresses, self.purpose = addresses, purpose
        self.leaves = leaves(layout, model)
        self.steps = torch.zeros((), dtype=torch.int64, device=model.device)
        self.trained = (~layout.marked(layout.buffers)).to(model) if layout.buffers else None
        self.lr = learner.lr if learner.schedule.is_constant else model.new_empty(len(model), 1)
        decay = learner.weight_decay if self.trained is None else learner.weight_decay * self.trained
        self.decay = decay if learner.weight_decay and learner.optimiser != "adamw" else None
        self.optimiser: Optimiser
        if learner.optimiser == "sgd":
            self.optimiser = SGD(model, self.lr, learner.momentum)
        else:
            self.optimiser = Adam(model, self.lr, decay if learner.optimiser == "adamw" else 0.0)
        self.begin()

    def begin(self) -> None:
        """Everything as before the first step of a round."""
        self.optimiser.reset()
        self.steps.zero_()
        if isinstance(self.lr, Tensor):
            factors = self.learner.schedule(self.addresses.round)
            self.lr.copy_((self.learner.lr * factors).unsqueeze(1))

    def step(self, batch: Batch, active: Tensor | None) -> Tensor:
        """One step of the clients that are `active` (`[n, 1]`; None: all); the losses before it, `[n]`."""
        training = Training(batch.mask, self.addresses, self.steps, self.purpose)
        losses = self.loss(self.leaves, replace(batch, training=training))
        gradient = flat_gradient(losses.sum(), self.leaves)
        with torch.no_grad():
            if self.pull is not None:
                pulled = self.pull(self.model)
                gradient += pulled if self.trained is None else pulled * self.trained
            if self.learner.clip_gradient < math.inf:
                clip_(gradient, self.learner.clip_gradient)
            if self.decay is not None:
                gradient += self.model * self.decay
            self.optimiser.step(gradient, active)
            self._write(training, active)
            self.steps += 1
        return losses.detach()

    def _write(self, training: Training, active: Tensor | None) -> None:
        """The new statistics of active clients; no gradient has moved the old ones."""
        if self.layout.buffers and not training.was_read:
            raise UserError(
                "the network keeps statistics of rows, but the problem's losses do not call it with batch.training: "
                "they would stay as they are"
            )
        for name, new in training.buffers.items():
            old = self.leaves.get(name)
            if old is not None:
                old.copy_(new if active is None else torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old))


def leaves(layout: Layout, model: Tensor) -> dict[str, Tensor]:
    """Views of the flat models `[n, d]`, of which gradients are taken but for buffers: if the model moves, they do."""
    views = {name: view.detach() for name, view in layout.unflatten(model).items()}
    for name in views.keys() - set(layout.buffers):
        views[name].requires_grad_()
    return views


def flat_gradient(loss: Tensor, leaves: Mapping[str, Tensor], retain_graph: bool = False) -> Tensor:
    """The gradient of `loss` with respect to all leaves, `[n, d]`; 0 for buffers."""
    weights = [leaf for leaf in leaves.values() if leaf.requires_grad]
    found = iter(torch.autograd.grad(loss, weights, retain_graph=retain_graph, materialize_grads=True))
    parts = (next(found) if leaf.requires_grad else torch.zeros_like(leaf) for leaf in leaves.values())
    return torch.cat([part.flatten(1) for part in parts], dim=1)


class Watch:
    """The mean loss over a client's last epoch, as the model changes: what published code often reports as its loss."""

    def __init__(self, like: Tensor) -> None:
        self.sums, self.rows = like.new_zeros(len(like)), like.new_zeros(len(like))

    def reset(self) -> None:
        """Resets the sums."""
        self.sums.zero_()
        self.rows.zero_()

    def see(self, losses: Tensor, mask: Tensor, counts: Tensor) -> None:
        """Losses `[n]` of a step on the rows of `mask` `[n, b]`; `counts` `[n]` is 1 for clients in their last
        epoch.
        """
        rows = mask.sum(1) * counts
        self.sums += losses * rows
        self.rows += rows

    @property
    def means(self) -> Tensor:
        """`[n]`; 0 for a client without rows."""
        return self.sums / self.rows.clamp_min(1)


class RecordedTraining:
    """Training of stacks of one size, kept by an engine from round to round."""

    def __init__(
        self, learner: Supervised, rows: Rows, layout: Layout, loss: Loss, inputs: Mapping[str, Tensor]
    ) -> None:
        """`inputs` are tensors whose values change from round to round: "model" `[n, d]`, ADDRESS, what `loss` reads,
        and "towards" and "strength" of a pull where there is one."""
        self.inputs = inputs
        self.model = self.inputs["model"]
        n, device = len(self.model), self.model.device
        self.index = torch.zeros(n, learner.batch_size, dtype=torch.int32, device=device)
        self.mask = self.model.new_zeros(n, learner.batch_size)
        self.counts = self.model.new_zeros(n)
        self.rows, self.watch = rows, Watch(self.model)
        pull = Pull(inputs["strength"], inputs["towards"]) if "towards" in inputs else None
        addresses = rng.Addresses(*(inputs[name] for name in ADDRESS))
        self.descent = Descent(learner, self.model, layout, loss, pull, addresses)
        # Problems may be third-party code that reads a value on the host.
        self.replayed = Replayed(self._step, device, or_called=True)

    def _step(self) -> None:
        batch = self.rows.take(self.index, self.mask)
        active = self.mask.amax(dim=1, keepdim=True) > 0
        self.watch.see(self.descent.step(batch, active), self.mask, self.counts)

    def train(self, inputs: Mapping[str, Tensor], plan: Plan) -> Tensor:
        """New models `[n, d]`; `inputs` as at construction, with new values."""
        for name, tensor in inputs.items():
            self.inputs[name].copy_(tensor)
        self.descent.begin()
        self.watch.reset()
        for index, mask, counts in _by_step(plan.index, plan.mask, plan.last_epoch):
            self.index.copy_(index)
            self.mask.copy_(mask)
            self.counts.copy_(counts)
            self.replayed()
        return self.model.clone()


def _by_step(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    return zip(*(tensor.unbind(dim=1) for tensor in tensors), strict=True)
