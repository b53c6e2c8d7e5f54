"""Plain gradient descent of small networks on a CPU, where what is around their products takes as long as these."""

from __future__ import annotations

import math
from typing import TypeGuard

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from fedpareto.core.learner import Pull
from fedpareto.core.messages import Message
from fedpareto.core.rows import Batch
from fedpareto.learners.descent import Steps
from fedpareto.learners.gradients import ByHand, Gradient, Losses
from fedpareto.learners.minibatches import Outline
from fedpareto.networks.descending import Descending


def is_plain(
    gradient: Gradient, how: Steps, pull: Pull | None, own: Message, factors: Tensor | None, outline: Outline
) -> TypeGuard[ByHand]:
    """Whether a step is w ← kept·w − lr·gradient with two numbers for all clients, and whatever a pull adds."""
    if not isinstance(gradient, ByHand) or gradient.model.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return False
    # Who counts operations counts those of the two passes, in which a bias is no product.
    if gradient.readout.network.layout.connections or _get_current_dispatch_mode() is not None:
        return False
    of_all = how.schedule.is_constant and factors is None and not own
    unchanged = how.optimiser == "sgd" and not how.momentum and how.clip_gradient == math.inf
    same_pull = pull is None or (type(pull) is Pull and not isinstance(pull.strength, Tensor))
    # An idle client has no gradient, but it would be pulled.
    still = pull is None and not how.weight_decay
    return of_all and unchanged and same_pull and (still or not any(outline.someone_idle))


class PlainDescent:
    """Steps of n models down a gradient that is never laid out: see Descending."""

    def __init__(self, how: Steps, gradient: ByHand, pull: Pull | None) -> None:
        self.readout, self.of_outputs, self.lr = gradient.readout, gradient.of_outputs, how.lr
        # w − lr·(g + decay·w + strength·(w − towards) + slope)
        self.strength = 0.0 if pull is None else float(pull.strength)
        kept = 1 - how.lr * (how.weight_decay + self.strength)
        self.network = Descending(gradient.readout.network, gradient.model, gradient.workspace, kept, how.lr)
        self.towards = self.network.pack(pull.towards) if pull is not None else None
        self.slope = self.network.pack(pull.slope) if pull is not None and pull.slope is not None else None

    def step(self, batch: Batch, active: Tensor | None) -> Losses:
        """See Descent."""
        outputs = self.network.forward(self.readout.inputs(batch))
        losses, gradient = self.of_outputs(outputs, batch)
        self.network.descend(gradient if active is None else gradient * active.unsqueeze(-1))
        if self.towards is not None:
            self.network.packed.add_(self.towards, alpha=self.lr * self.strength)
        if self.slope is not None:
            self.network.packed.sub_(self.slope, alpha=self.lr)
        return losses

    @property
    def model(self) -> Tensor:
        """The models as they are now, `[n, d]`."""
        return self.network.models
