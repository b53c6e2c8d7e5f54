"""Losses of n models on a minibatch and their gradients: by autograd, or for small networks by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from fedpareto.contract.problem import Readout
from fedpareto.networks.backprop import Backprop
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch
from fedpareto.tensors.workspace import Workspace

OfParameters = Callable[[Mapping[str, Tensor], Batch], Tensor]
"""A loss `[n]` of parameters (each `[n, ...]`) on a minibatch of each client."""
Losses: TypeAlias = Tensor | None
"""Losses of n models, `[n]`; None where nobody watches them and a gradient does not need them."""
OfOutputs = Callable[[Tensor, Batch], tuple[Losses, Tensor]]
"""Losses of outputs `[n, b, out]`, and their gradient."""


class Gradient(Protocol):
    """Gradient of a step."""

    counts_steps: bool
    """True if it reads the number of the step, by which what is drawn in a step differs."""

    def __call__(self, batch: Batch) -> tuple[Losses, Tensor]:
        """Losses and gradients `[n, d]` of the models as they are now; the latter until the next call."""


class Autograd:
    """Gradient of any loss."""

    counts_steps = True

    def __init__(self, layout: Layout, model: Tensor, loss: OfParameters) -> None:
        self.leaves, self.loss = leaves(layout, model), loss

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        losses = self.loss(self.leaves, batch)
        return losses.detach(), flat_gradient(losses.sum(), self.leaves)


class ByHand:
    """Gradient of losses of the outputs of an MLP: its own two passes, which are most of a small network's step.

    No graph of its layers is built, and nothing is copied.
    """

    counts_steps = False

    def __init__(self, readout: Readout, model: Tensor, of_outputs: OfOutputs, workspace: Workspace) -> None:
        """`of_outputs` gives the loss that is minimised, from the outputs on."""
        self.readout, self.model, self.of_outputs, self.workspace = readout, model, of_outputs, workspace

    @cached_property
    def network(self) -> Backprop:
        """Made when it is first called: a plain descent goes down without a gradient."""
        return Backprop(self.readout.network, self.model, torch.empty_like(self.model), self.workspace)

    def __call__(self, batch: Batch) -> tuple[Losses, Tensor]:
        with torch.no_grad():
            outputs = self.network.forward(self.readout.inputs(batch))
        losses, of_outputs = self.of_outputs(outputs, batch)
        with torch.no_grad():
            self.network.backward(of_outputs)
        return losses, self.network.gradient


def found_by_autograd(losses_of: Callable[[Tensor, Batch], Tensor]) -> OfOutputs:
    """Losses and gradients of outputs by autograd, for any losses `[n]`."""

    def of_outputs(outputs: Tensor, batch: Batch) -> tuple[Losses, Tensor]:
        outputs = outputs.detach().requires_grad_()
        losses = losses_of(outputs, batch)
        # A sum would be two kernels more on a GPU; on a CPU, torch imports sympy for `grad_outputs`: seconds of a run.
        total, of_total = (losses, torch.ones_like(losses)) if losses.is_cuda else (losses.sum(), None)
        (found,) = torch.autograd.grad(total, outputs, grad_outputs=of_total)
        return losses.detach(), found

    return of_outputs


def written_out(slopes: Callable[[Tensor, Batch, Tensor], Tensor], weights: Callable[[], Tensor]) -> OfOutputs:
    """Gradients of a weighted sum of losses whose slopes a problem has; nobody watches the losses."""

    def of_outputs(outputs: Tensor, batch: Batch) -> tuple[Losses, Tensor]:
        with torch.no_grad():
            return None, slopes(outputs, batch, weights())

    return of_outputs


def leaves(layout: Layout, model: Tensor) -> dict[str, Tensor]:
    """Views of the flat models `[n, d]`, of which gradients are taken but for buffers: if the model moves, they do."""
    views = {name: view.detach() for name, view in layout.unflatten(model).items()}
    for name in views.keys() - set(layout.buffers):
        views[name].requires_grad_()
    return views


def flat_gradient(loss: Tensor, leaves: Mapping[str, Tensor], retain_graph: bool = False) -> Tensor:
    """The gradient of `loss` with respect to all leaves, `[n, d]`; 0 for buffers."""
    weights = []
    for leaf in leaves.values():
        if leaf.requires_grad:
            weights.append(leaf)
    found = iter(torch.autograd.grad(loss, weights, retain_graph=retain_graph, materialize_grads=True))
    parts = []
    for leaf in leaves.values():
        parts.append((next(found) if leaf.requires_grad else torch.zeros_like(leaf)).flatten(1))
    return torch.cat(parts, dim=1)
