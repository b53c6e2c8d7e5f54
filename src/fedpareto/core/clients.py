"""The client side: a stack of n clients. A node is a stack of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.layout import Layout
from fedpareto.core.learner import Learner, Loss, Pull
from fedpareto.core.messages import Message
from fedpareto.core.problem import Batch, Problem, Rows, Splits
from fedpareto.core.replay import Recordings


@dataclass(frozen=True)
class Tampering:
    """How attackers among n clients falsify their loss f and their number of rows; 1, 0 and 1 for honest ones."""

    scale: Tensor
    """a `[n]`: what is trained and reported is a·f + b …"""
    bias: Tensor
    """… with b `[n]`, which has no gradient."""
    size_factor: Tensor
    """Factor on the number of rows, `[n]`."""


@dataclass
class Clients:
    """What an algorithm's client step works with. Everything in here is private to the clients.

    Tensors have the client dimension first; row i of each belongs to the client `addresses[i]`.
    """

    problem: Problem
    learner: Learner
    splits: Splits
    addresses: rng.Addresses
    """Seed, client, round and lane of each row: the address of its random streams."""
    positions: np.ndarray
    """Position of each row's client in `splits`; `[n]`."""
    preferences: Tensor
    """Importance of each objective to each client, `[n, m]`, rows on the simplex."""
    state: Message = field(default_factory=dict)
    """Private state that a client step may read and replace; it outlives the round and never leaves the client."""
    memory: Message = field(default_factory=dict)
    """The same for the learner (see Learner.memory); empty: no client has trained yet."""
    recordings: Recordings = field(default_factory=Recordings)
    """Recorded training steps; an engine keeps them from round to round."""
    tampering: Tampering | None = None
    """What the attackers among them falsify; None: all are honest."""

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def sizes(self) -> Tensor:
        """Number of training rows that each client reports, `[n]`; 1 each where clients have no rows."""
        train = self.splits.get("train")

        def make() -> Tensor:
            counts = np.ones(len(self)) if train is None else train.counts[self.positions]
            return torch.as_tensor(counts, dtype=self.preferences.dtype, device=self.preferences.device)

        sizes = self.recordings.noted(("sizes", id(train), self.preferences.dtype), self.positions, make)
        return sizes if self.tampering is None else sizes * self.tampering.size_factor

    def tampered(self, loss: Tensor) -> Tensor:
        """The attackers' falsified loss, `[n]` or `[n, m]`: a learner trains on and reports this instead of `loss`."""
        if self.tampering is None:
            return loss
        scale, bias = (
            factor.view(-1, *[1] * (loss.dim() - 1)) for factor in (self.tampering.scale, self.tampering.bias)
        )
        return scale * loss + bias

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

    def all_rows(self, split: str) -> Batch:
        """Every row of a split, padded to the longest client of the stack."""
        longest = self.splits[split].counts[self.positions].max()
        return next(self.slices(split, max(longest, 1)))

    def slices(self, split: str, size: int) -> Iterator[Batch]:
        """The rows of a split, at most `size` of each client at a time; at least one slice."""
        rows = self.splits[split]
        counts, starts = rows.counts[self.positions][:, None], rows.starts[self.positions][:, None]
        if len(counts) > 1 and Rows({}, starts, counts).are_shared:
            alone = replace(self, positions=self.positions[:1]).slices(split, size)
            yield from (batch.shared_by(len(self)) for batch in alone)
            return
        for begin in range(0, max(counts.max(), 1), size):
            column = np.arange(begin, min(begin + size, max(counts.max(), 1)))
            real = column < counts
            index = np.where(real, starts + column, 0)
            yield rows.take(self.tensor(index), self.tensor(real).to(self.preferences.dtype))

    def tensor(self, array: np.ndarray) -> Tensor:
        """An array on the stack's device."""
        return torch.as_tensor(array, device=self.preferences.device)
