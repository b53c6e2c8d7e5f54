"""Optimisers over stacked flat models `[n, d]`: one kernel moves all clients; an idle client's row stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Optimiser(Protocol):
    """Updates the model it was made for in place, and so its own state: a CUDA graph can replay its steps."""

    def reset(self) -> None:
        """Resets its state."""

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        """One step along `gradient` `[n, d]`, for the clients that are `active` (`[n, 1]`; None: all)."""


class SGD:
    """w ← w − lr·v with v ← momentum·v + g."""

    def __init__(self, model: Tensor, lr: float, momentum: float) -> None:
        self.model, self.lr, self.momentum = model, lr, momentum
        self.velocity = torch.zeros_like(model) if momentum else None

    def reset(self) -> None:
        """See Optimiser."""
        if self.velocity is not None:
            self.velocity.zero_()

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        """See Optimiser."""
        if self.velocity is not None:
            _renew(self.velocity, self.velocity * self.momentum + gradient, active)
            gradient = self.velocity
        if active is not None:
            gradient = gradient * active
        self.model.sub_(gradient, alpha=self.lr)


class Adam:
    """Adam (Kingma and Ba, 2015) with the usual constants; each client counts its own steps."""

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, model: Tensor, lr: float, momentum: float) -> None:
        del momentum  # Adam has its own.
        self.model, self.lr = model, lr
        self.first, self.second = torch.zeros_like(model), torch.zeros_like(model)
        self.steps = model.new_zeros(len(model), 1)

    def reset(self) -> None:
        """See Optimiser."""
        for moment in (self.first, self.second, self.steps):
            moment.zero_()

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        """See Optimiser."""
        first = torch.lerp(self.first, gradient, 1 - self.beta1)
        second = (self.second * self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        steps = self.steps + 1
        denominator = (second / (1 - self.beta2**steps)).sqrt_().add_(self.epsilon)
        move = (first / denominator).mul_(self.lr / (1 - self.beta1**steps))
        _renew(self.first, first, active)
        _renew(self.second, second, active)
        _renew(self.steps, steps, active)
        self.model.sub_(move if active is None else move * active)


def _renew(old: Tensor, new: Tensor, active: Tensor | None) -> None:
    """`old` becomes `new` for active clients."""
    if active is None:
        old.copy_(new)
    else:
        torch.where(active, new, old, out=old)


class FusedAdam:
    """Adam by PyTorch's fused kernel, one pass over memory: each client's row is a parameter of its own.

    All tensors are the caller's, `[n, d]` and `[n]` (steps), and are changed in place: the moments can be kept, and a
    CUDA graph can replay a step.
    """

    def __init__(
        self, model: Tensor, gradient: Tensor, lr: float, first: Tensor, second: Tensor, steps: Tensor
    ) -> None:
        self.rows = list(model.detach().unbind())
        self.gradients = list(gradient.unbind())
        self.optimiser = torch.optim.Adam(self.rows, lr=lr, fused=True, capturable=model.is_cuda)
        for row, one, two, step in zip(self.rows, first, second, steps, strict=True):
            self.optimiser.state[row] = {"step": step, "exp_avg": one, "exp_avg_sq": two}

    def step(self, who: np.ndarray | None) -> None:
        """Moves the rows `who` (None: all)."""
        chosen = set(range(len(self.rows))) if who is None else set(who.tolist())
        for number, (row, gradient) in enumerate(zip(self.rows, self.gradients, strict=True)):
            row.grad = gradient if number in chosen else None
        self.optimiser.step()


OPTIMISERS: dict[str, Callable[[Tensor, float, float], Optimiser]] = {"sgd": SGD, "adam": Adam}
