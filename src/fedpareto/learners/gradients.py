"""Losses of n models on a minibatch and their gradients: by autograd, or for small networks by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from fedpareto.core.layout import Layout
from fedpareto.core.problem import Batch, Readout
from fedpareto.networks.backprop import Backprop

OfParameters = Callable[[Mapping[str, Tensor], Batch], Tensor]
"""A loss `[n]` of parameters (each `[n, ...]`) on a minibatch of each client."""


class Gradient(Protocol):
    """What a step goes down along."""

    counts_steps: bool
    """Whether it reads the number of the step, by which what is drawn in a step differs."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Losses `[n]` and gradients `[n, d]` of the models as they are now; the latter until the next call."""


class Autograd:
    """For any loss."""

    counts_steps = True

    def __init__(self, layout: Layout, model: Tensor, loss: OfParameters) -> None:
        self.leaves, self.loss = leaves(layout, model), loss

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Gradient."""
        losses = self.loss(self.leaves, batch)
        return losses.detach(), flat_gradient(losses.sum(), self.leaves)


class ByHand:
    """For losses of the outputs of an MLP: its own two passes, and autograd from its outputs on.

    That is most of the time of a small network's step: no graph of its layers is built, and nothing is copied.
    """

    counts_steps = False

    def __init__(self, readout: Readout, model: Tensor, scalarised: Callable[[Tensor], Tensor]) -> None:
        """`scalarised` turns the losses `[n, m]` of `readout` into the one that is minimised, `[n]`."""
        self.readout, self.scalarised = readout, scalarised
        self.gradient, self.ones = torch.empty_like(model), model.new_ones(len(model))
        self.network = Backprop(readout.network, model, self.gradient)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """See Gradient."""
        with torch.no_grad():
            outputs = self.network.forward(self.readout.inputs(batch))
        outputs = outputs.detach().requires_grad_()
        losses = self.scalarised(self.readout.losses(outputs, batch))
        # A sum would be two kernels more on a GPU; on a CPU, torch imports sympy for `grad_outputs`: seconds of a run.
        total, of_total = (losses, self.ones) if losses.is_cuda else (losses.sum(), None)
        (of_outputs,) = torch.autograd.grad(total, outputs, grad_outputs=of_total)
        with torch.no_grad():
            self.network.backward(of_outputs)
        return losses.detach(), self.gradient


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
