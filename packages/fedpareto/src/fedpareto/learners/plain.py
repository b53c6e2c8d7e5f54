"""Plain gradient descent of small networks on a CPU, where what is around their products takes as long as these."""

from __future__ import annotations

import math
import time
from typing import TypeGuard

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from fedpareto.contract.learner import Pull
from fedpareto.contract.messages import Message
from fedpareto.learners.descent import Steps
from fedpareto.learners.gradients import ByHand, Gradient, Losses
from fedpareto.learners.minibatches import Outline
from fedpareto.networks.descending import CompiledDescending, Descending
from fedpareto.networks.mlp import MLP
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Batch
from fedpareto.tensors.workspace import Workspace


def is_plain(
    gradient: Gradient, how: Steps, pull: Pull | None, own: Message, factors: Tensor | None, outline: Outline
) -> TypeGuard[ByHand]:
    """True if a step is w ← kept·w − lr·gradient with two numbers for all clients, and whatever a pull adds."""
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
    """Steps of n models down a gradient that is never laid out: see `Descending`."""

    def __init__(self, how: Steps, gradient: ByHand, pull: Pull | None, compiled: bool = False) -> None:
        self.readout, self.of_outputs = gradient.readout, gradient.of_outputs
        # w − lr·(g + decay·w + strength·(w − towards) + slope)
        strength = 0.0 if pull is None else float(pull.strength)
        kept = 1 - how.lr * (how.weight_decay + strength)
        kind = CompiledDescending if compiled else Descending
        self.network = kind(gradient.readout.network, gradient.model, gradient.workspace, kept, how.lr)
        if pull is not None:
            added = strength * pull.towards
            self.network.add_in_steps(how.lr * (added if pull.slope is None else added - pull.slope))

    def step(self, batch: Batch, active: Tensor | None) -> Losses:
        outputs = self.network.forward(self.readout.inputs(batch))
        losses, gradient = self.of_outputs(outputs, batch)
        self.network.descend(gradient if active is None else gradient * active.unsqueeze(-1))
        return losses

    @property
    def model(self) -> Tensor:
        return self.network.models


def compile_ahead(dtype: torch.dtype) -> float:
    """Processor seconds until all that `compiled` training calls is there: one, if it was kept on disk."""
    start = time.process_time()
    rng.Addresses.of([rng.Address(0)]).orders("batches", torch.ones(1, dtype=torch.int64), 1, 1, compiled=True)
    network = CompiledDescending(MLP(1, (), 1), torch.zeros(1, 2, dtype=dtype), Workspace(), kept=1.0, lr=0.0)
    network.descend(network.forward(torch.zeros(1, 1, 1, dtype=dtype)))
    return time.process_time() - start
