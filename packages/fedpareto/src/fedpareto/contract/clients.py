"""The client side: a stack of n clients. A node is a stack of one."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedpareto.contract.learner import Learner, Loss, Pull
from fedpareto.contract.messages import Message
from fedpareto.contract.problem import Problem
from fedpareto.contract.stack import Stack
from fedpareto.tensors.layout import Layout


@dataclass(kw_only=True)
class Clients(Stack):
    """Clients as an algorithm's client step works with them. Everything in here is private to the clients."""

    problem: Problem
    learner: Learner
    state: Message = field(default_factory=dict)
    """Private state that a client step may read and replace; it outlives the round and never leaves the client."""
    trained: Message = field(default_factory=dict)
    """Models that a step trained, where its reply does not show them: they are measured, and kept nowhere."""

    def learn(self, model: Tensor, *, weights: Tensor | None = None, pull: Pull | None = None) -> Tensor:
        """Local training from `model` `[n, d]` under each client's own preference, or under `weights` `[n, m]`."""
        return self.learner.train(self, model, self.preferences if weights is None else weights, pull)

    def minimise(
        self,
        start: Tensor,
        layout: Layout,
        loss: Loss,
        given: Message | None = None,
        *,
        epochs: int | None = None,
        pull: Pull | None = None,
        purpose: str = "batches",
    ) -> Tensor:
        """Local training of `start` `[n, k]`, laid out as `layout`, on the algorithm's own loss; see Learner."""
        return self.learner.minimise(self, start, layout, loss, given, epochs=epochs, pull=pull, purpose=purpose)

    def gradients(self, model: Tensor) -> tuple[Tensor, Tensor]:
        """The losses `[n, m]` of `model` `[n, d]` on a minibatch of each client, and their gradients `[n, m, d]`."""
        return self.learner.gradients(self, model)

    def reach(self) -> Tensor:
        """Distance that `learn` would carry each client's model along a constant gradient of length 1, `[n]`."""
        return self.learner.reach(self)

    def loss(self, model: Tensor) -> Tensor:
        """Each client's own objective, `[n]`: its training loss for `model` `[n, d]` on all its rows."""
        return self.learner.loss(self, model)

    def evaluate(self, model: Tensor) -> Tensor:
        """The reported objectives of `model` `[n, d]` on every part of the data, `[n, parts, m]`; NaN for a model that
        is not finite, whose decisions would be those of comparisons with NaN.
        """
        values = self.problem.score(self, model)
        broken = ~model.flatten(1).isfinite().all(1)
        return values.masked_fill(broken.view(-1, *[1] * (values.dim() - 1)), torch.nan)

    def learn_watched(self, model: Tensor) -> tuple[Tensor, Tensor]:
        """Local training as by `learn`, and the mean loss `[n]` over a client's last epoch, as the model changed."""
        return self.learner.train_watched(self, model, self.preferences)
