"""Optimisers over stacked flat models `[n, d]`: one kernel moves all clients; an idle client's row stays as it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Schedule:
    """Factors of the step size over rounds."""

    kind: Literal["constant", "step", "cosine"] = "constant"
    period: int = 100
    decay: float = 0.1
    warm_up: int = 0

    @property
    def is_constant(self) -> bool:
        return self.kind == "constant" and not self.warm_up

    def __call__(self, rounds: Tensor) -> Tensor:
        """The factors of rounds, counted from 1, `[n]`, double precision."""
        over = (rounds - 1).clamp_min(0).double()
        factor = torch.ones_like(over)
        if self.kind == "step":
            factor = self.decay ** (over / self.period).floor()
        elif self.kind == "cosine":
            share = (over / self.period).clamp_max(1)
            factor = self.decay + (1 - self.decay) * (1 + (math.pi * share).cos()) / 2
        return factor * ((over + 1) / self.warm_up).clamp_max(1) if self.warm_up else factor


def clip_(gradient: Tensor, norm: float) -> None:
    """Shortens each client's gradient, a row of `[n, d]`, to at most `norm`, as torch's clip_grad_norm_ does."""
    lengths = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
    gradient.mul_((norm / (lengths + 1e-6)).clamp_max(1))


class Optimiser(Protocol):
    """Updates the model it was made for in place, and so its own state: a CUDA graph can replay its steps."""

    def reset(self) -> None:
        """Reset the state."""

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        """One step along `gradient` `[n, d]`, for the clients that are `active` (`[n, 1]`; None: all)."""


class SGD:
    """w ← w − lr·v with v ← momentum·v + g."""

    def __init__(self, model: Tensor, lr: float | Tensor, momentum: float | Tensor) -> None:
        self.model, self.lr, self.momentum = model, lr, momentum
        self.velocity = torch.zeros_like(model) if isinstance(momentum, Tensor) or momentum else None

    def reset(self) -> None:
        if self.velocity is not None:
            self.velocity.zero_()

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        if self.velocity is not None:
            _renew(self.velocity, self.velocity * self.momentum + gradient, active)
            gradient = self.velocity
        if active is not None:
            gradient = gradient * active
        if isinstance(self.lr, Tensor):
            self.model.sub_(gradient * self.lr)
        else:
            self.model.sub_(gradient, alpha=self.lr)


class Adam:
    """Adam (Kingma and Ba, 2015) with the usual constants; each client counts its own steps.

    With a `decay` it is AdamW (Loshchilov and Hutter, 2019): w ← (1 − lr·decay)·w before each step, but for entries in
    which `decay` is 0.
    """

    beta1, beta2, epsilon = 0.9, 0.999, 1e-8

    def __init__(self, model: Tensor, lr: float | Tensor, decay: float | Tensor = 0.0) -> None:
        self.model, self.lr, self.decay = model, lr, decay
        self.first, self.second = torch.zeros_like(model), torch.zeros_like(model)
        self.steps = model.new_zeros(len(model), 1)

    def reset(self) -> None:
        for moment in (self.first, self.second, self.steps):
            moment.zero_()

    def step(self, gradient: Tensor, active: Tensor | None) -> None:
        first = torch.lerp(self.first, gradient, 1 - self.beta1)
        second = (self.second * self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        steps = self.steps + 1
        denominator = (second / (1 - self.beta2**steps)).sqrt_().add_(self.epsilon)
        move = (first / denominator).mul_(self.lr / (1 - self.beta1**steps))
        if isinstance(self.decay, Tensor) or self.decay:
            move.add_(self.model * (self.lr * self.decay))
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
