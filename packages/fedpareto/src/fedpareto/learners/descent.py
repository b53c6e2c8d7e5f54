"""Gradient descent of a stack of clients, step by step; on a CUDA device recorded once and replayed from then on.

A step of a small model is many small kernels, and launching them takes longer than running them. A CUDA graph launches
them all at once. A step therefore works on tensors that keep their addresses from round to round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.contract.learner import STEP_FACTOR, Pull
from fedpareto.contract.messages import Message
from fedpareto.learners.gradients import Gradient, Losses
from fedpareto.learners.minibatches import Outline, drawn
from fedpareto.learners.optimisers import SGD, Adam, Optimiser, Schedule, clip_
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.replay import Replayed
from fedpareto.tensors.rows import Batch, Rows, shares_of
from fedpareto.tensors.training import Training

ADDRESS = ("seed", "client", "round", "lane")
"""The parts of clients' addresses by name."""
OWN = "own "
"""Prefix of the names of parameters that each client has for itself."""
STEPS_AT_ONCE = 32
"""Steps that are recorded as one, at the most."""
Make = Callable[[Tensor, Message], Gradient]
"""The gradient of models `[n, d]`, given other tensors `[n, ...]`; both may change in place."""


class Steps(Protocol):
    """Hyper-parameters of a step, as those of `Supervised`."""

    @property
    def lr(self) -> float: ...
    @property
    def optimiser(self) -> str: ...
    @property
    def momentum(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def clip_gradient(self) -> float: ...
    @property
    def schedule(self) -> Schedule: ...


class Descent:
    """Steps of n models `[n, d]` down a loss."""

    def __init__(
        self,
        how: Steps,
        model: Tensor,
        layout: Layout,
        gradient: Gradient,
        pull: Pull | None,
        addresses: rng.Addresses,
        purpose: str = "batches",
        factors: Tensor | None = None,
        own: Message | None = None,
    ) -> None:
        """Prepare the steps; `own` are parts of `how` that each model has for itself, `[n, 1]` by name."""
        self.how, self.model, self.layout, self.gradient, self.pull = how, model, layout, gradient, pull
        self.addresses, self.purpose, self.factors, self.own = addresses, purpose, factors, own or {}
        self.buffers = {name: layout.unflatten(model)[name] for name in layout.buffers}
        self.steps = torch.zeros((), dtype=torch.int64, device=model.device)
        self.trained = (~layout.marked(layout.buffers)).to(model) if layout.buffers else None
        is_same = how.schedule.is_constant and factors is None and "lr" not in self.own
        self.lr = how.lr if is_same else model.new_empty(len(model), 1)
        given = self.own.get("weight_decay", how.weight_decay)
        decay = given if self.trained is None else given * self.trained
        is_used = isinstance(given, Tensor) or given > 0
        self.decay = decay if is_used and how.optimiser != "adamw" else None
        self.optimiser: Optimiser
        if how.optimiser == "sgd":
            self.optimiser = SGD(model, self.lr, self.own.get("momentum", how.momentum))
        else:
            self.optimiser = Adam(model, self.lr, decay if how.optimiser == "adamw" else 0.0)
        self.begin()

    def begin(self) -> None:
        """Reset everything before the first step of a round."""
        self.optimiser.reset()
        if self.gradient.counts_steps:
            self.steps.zero_()
        if isinstance(self.lr, Tensor):
            factors = self.how.schedule(self.addresses.round)
            if self.factors is not None:
                factors = factors * self.factors
            self.lr.copy_(self.own.get("lr", self.how.lr) * factors.unsqueeze(1))

    def step(self, batch: Batch, active: Tensor | None) -> Losses:
        """One step of the clients that are `active` (`[n, 1]`; None: all); the losses before it."""
        training = Training(batch.mask, self.addresses, self.steps, self.purpose)
        losses, gradient = self.gradient(replace(batch, training=training))
        with torch.no_grad():
            if self.pull is not None:
                pulled = self.pull(self.model)
                gradient += pulled if self.trained is None else pulled * self.trained
            if self.how.clip_gradient < math.inf:
                clip_(gradient, self.how.clip_gradient)
            if self.decay is not None:
                gradient += self.model * self.decay
            self.optimiser.step(gradient, active)
            if self.layout.buffers:
                self._write(training, active)
            if self.gradient.counts_steps:
                self.steps += 1
        return losses

    def _write(self, training: Training, active: Tensor | None) -> None:
        """Write the new statistics of active clients; no gradient has moved the old ones."""
        if not training.was_read:
            raise UserError(
                "the network keeps statistics of rows, but the problem's losses do not call it with batch.training: "
                "they would stay as they are"
            )
        for name, new in training.buffers.items():
            old = self.buffers.get(name)
            if old is not None:
                old.copy_(new if active is None else torch.where(active.view(-1, *[1] * (new.dim() - 1)), new, old))


class Watch:
    """The mean loss over a client's last epoch, as the model changes: what published code often reports as its loss."""

    def __init__(self, like: Tensor) -> None:
        self.sums, self.rows = like.new_zeros(len(like)), like.new_zeros(len(like))

    def reset(self) -> None:
        self.sums.zero_()
        self.rows.zero_()

    def see(self, losses: Losses, mask: Tensor, counts: Tensor) -> None:
        """Losses `[n]` of a step on the rows of `mask` `[n, b]`; `counts` `[n]` is 1 for clients in their last
        epoch.
        """
        assert losses is not None, "a gradient whose losses are watched gives them"
        rows = mask.sum(1) * counts
        self.sums += losses * rows
        self.rows += rows

    @property
    def means(self) -> Tensor:
        """Mean losses `[n]`; 0 for a client without rows."""
        return self.sums / self.rows.clamp_min(1)


class RecordedTraining:
    """Training of stacks of one size, kept by an engine from round to round: the drawing of minibatches, and steps."""

    def __init__(
        self,
        how: Steps,
        rows: Rows,
        layout: Layout,
        make: Make,
        inputs: Message,
        outline: Outline,
        purpose: str,
        watched: bool,
        changed: frozenset[str],
    ) -> None:
        """`inputs` are tensors whose values change from round to round: "model" `[n, d]`, ADDRESS, what `make` reads,
        those of `outline`, and "towards", "strength" and "slope" of a pull, as far as there is one. `watched`: whether
        the mean loss is wanted; `changed`: names of inputs that training changes in place."""
        self.inputs, self.outline, self.purpose, self.rows, self.changed = inputs, outline, purpose, rows, changed
        self.model = self.inputs["model"]
        n, device = len(self.model), self.model.device
        places = outline.steps, n, outline.batch_size
        self.index = torch.zeros(places, dtype=torch.int64, device=device)
        self.mask, self.late = self.model.new_zeros(places), self.model.new_zeros(outline.steps, n)
        self.ones, self.shares = self.model.new_ones(places[1:]), self.model.new_zeros(places)
        self.even = self.ones / outline.batch_size
        self.number = torch.zeros(1, dtype=torch.int64, device=device)
        self.watch = Watch(self.model) if watched else None
        self.last: dict[str, tuple[int, int]] = {}
        """The tensors of the last round, which are held until the next: what is the same need not be copied again."""
        self.held: list[Tensor] = []
        self.addresses = rng.Addresses(*(inputs[name] for name in ADDRESS))
        has_pull = "towards" in inputs
        pull = Pull(inputs["strength"], inputs["towards"], inputs.get("slope")) if has_pull else None
        own = {name.removeprefix(OWN): tensor for name, tensor in inputs.items() if name.startswith(OWN)}
        gradient, factors = make(self.model, inputs), inputs.get(STEP_FACTOR)
        self.descent = Descent(how, self.model, layout, gradient, pull, self.addresses, purpose, factors, own)
        self.at_once = max(k for k in range(1, STEPS_AT_ONCE + 1) if outline.steps % k == 0)
        self.is_whole = self.at_once == outline.steps
        """True if a round is one recording: the drawing of its minibatches and all its steps."""
        self.draw = Replayed(self._draw, device)
        # Problems may be third-party code that reads a value on the host.
        self.some_steps = Replayed(self._round if self.is_whole else self._some_steps, device, or_called=True)

    def _draw(self) -> None:
        plan = drawn(self.outline, self.inputs, self.addresses, self.purpose, self.model.dtype)
        self.index.copy_(plan.index.transpose(0, 1))
        if not self.outline.is_full:
            self.mask.copy_(plan.mask.transpose(0, 1))
            self.shares.copy_(shares_of(self.mask))
        if self.watch is not None:
            self.late.copy_(plan.last_epoch.T)
        self.number.zero_()

    def _round(self) -> None:
        self._draw()
        flags = zip(self.outline.everyone_full, self.outline.someone_idle, strict=True)
        for number, (full, idle) in enumerate(flags):
            mask, shares = (self.ones, self.even) if full else (self.mask[number], self.shares[number])
            self._step(self.rows.take(self.index[number], mask, shares), self.late[number], idle)

    def _some_steps(self) -> None:
        """As many as are recorded at once, from a number that counts on."""
        for _ in range(self.at_once):
            index, late = (one.index_select(0, self.number)[0] for one in (self.index, self.late))
            mask, shares = self.ones, self.even
            if not self.outline.is_full:
                mask, shares = (one.index_select(0, self.number)[0] for one in (self.mask, self.shares))
            self._step(self.rows.take(index, mask, shares), late, any(self.outline.someone_idle))
            self.number += 1

    def _step(self, batch: Batch, late: Tensor, idle: bool) -> None:
        mask = batch.mask
        active = mask.amax(dim=1, keepdim=True) > 0 if idle else None
        losses = self.descent.step(batch, active)
        if self.watch is not None:
            self.watch.see(losses, mask, late)

    def train(self, inputs: Message, outline: Message) -> Tensor:
        """New models `[n, d]`; `inputs` and the tensors of an `outline` as at construction, with new values."""
        for name, tensor in (inputs | outline).items():
            seen = id(tensor), tensor._version
            if name in self.changed or self.last.get(name) != seen:
                self.inputs[name].copy_(tensor)
                self.last[name] = seen
        self.held = [*inputs.values(), *outline.values()]
        self.descent.begin()
        if self.watch is not None:
            self.watch.reset()
        if not self.is_whole:
            self.draw()
        for _ in range(self.outline.steps // self.at_once):
            self.some_steps()
        return self.model.clone()
