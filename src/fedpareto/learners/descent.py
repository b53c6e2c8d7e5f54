"""Gradient descent of a stack of clients, step by step; on a CUDA device recorded once and replayed from then on.

A step of a small model is many small kernels, and launching them takes longer than running them. A CUDA graph launches
them all at once. A step therefore works on tensors that keep their addresses from round to round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedpareto.core.layout import Layout
from fedpareto.core.learner import Loss, Pull
from fedpareto.core.problem import Batch, Rows
from fedpareto.core.replay import Replayed
from fedpareto.learners.optimisers import OPTIMISERS

if TYPE_CHECKING:
    from fedpareto.learners.supervised import Supervised


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

    def __init__(self, learner: Supervised, model: Tensor, layout: Layout, loss: Loss, pull: Pull | None) -> None:
        self.model, self.loss, self.pull, self.weight_decay = model, loss, pull, learner.weight_decay
        # The leaves are views of the flat model: the optimiser moves the flat tensor, the leaves follow.
        self.leaves = {name: view.detach() for name, view in layout.unflatten(model).items()}
        for leaf in self.leaves.values():
            leaf.requires_grad_()
        self.optimiser = OPTIMISERS[learner.optimiser](model, learner.lr, learner.momentum)

    def step(self, batch: Batch, active: Tensor | None) -> Tensor:
        """One step of the clients that are `active` (`[n, 1]`; None: all); the losses before it, `[n]`."""
        losses = self.loss(self.leaves, batch)
        gradients = torch.autograd.grad(losses.sum(), list(self.leaves.values()), materialize_grads=True)
        with torch.no_grad():
            gradient = torch.cat([part.flatten(1) for part in gradients], dim=1)
            if self.pull is not None:
                gradient += self.pull(self.model)
            if self.weight_decay:
                gradient.add_(self.model, alpha=self.weight_decay)
            self.optimiser.step(gradient, active)
        return losses.detach()


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
        """`inputs` are tensors whose values change from round to round: "model" `[n, d]`, what `loss` reads, and
        "towards" and "strength" of a pull where there is one."""
        self.inputs = inputs
        self.model = self.inputs["model"]
        n, device = len(self.model), self.model.device
        self.index = torch.zeros(n, learner.batch_size, dtype=torch.int32, device=device)
        self.mask = self.model.new_zeros(n, learner.batch_size)
        self.counts = self.model.new_zeros(n)
        self.rows, self.watch = rows, Watch(self.model)
        pull = Pull(inputs["strength"], inputs["towards"]) if "towards" in inputs else None
        self.descent = Descent(learner, self.model, layout, loss, pull)
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
        self.descent.optimiser.reset()
        self.watch.reset()
        for index, mask, counts in _by_step(plan.index, plan.mask, plan.last_epoch):
            self.index.copy_(index)
            self.mask.copy_(mask)
            self.counts.copy_(counts)
            self.replayed()
        return self.model.clone()


def _by_step(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    return zip(*(tensor.unbind(dim=1) for tensor in tensors), strict=True)
