"""A stack of n clients as a learner and a problem see them: their rows, preferences and random streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Message
from fedpareto.tensors import rng
from fedpareto.tensors.replay import Recordings
from fedpareto.tensors.rows import Batch, Splits


@dataclass(frozen=True)
class Tampering:
    """Falsification of loss f and number of rows by attackers among n clients; 1, 0 and 1 for honest ones."""

    scale: Tensor
    """Factor a `[n]`: what is trained and reported is a·f + b …"""
    bias: Tensor
    """… with b `[n]`, which has no gradient."""
    size_factor: Tensor
    """Factor on the number of rows, `[n]`."""


class Named(Protocol):
    """A problem, as far as one knows of it here."""

    @property
    def name(self) -> str:
        """The name by which users call it."""


@dataclass(kw_only=True)
class Stack:
    """Tensors have the client dimension first; row i of each belongs to the client `addresses[i]`."""

    problem: Named
    """The problem that they learn; a learner asks whether it is of its kind."""
    splits: Splits
    addresses: rng.Addresses
    """Seed, client, round and lane of each row: the address of its random streams."""
    positions: np.ndarray
    """Position of each row's client in `splits`; `[n]`."""
    preferences: Tensor
    """Importance of each objective to each client, `[n, m]`, rows on the simplex."""
    memory: Message = field(default_factory=dict)
    """Private state of the learner (see Learner.memory); empty: no client has trained yet."""
    recordings: Recordings = field(default_factory=Recordings)
    """Recorded training steps; an engine keeps them from round to round."""
    tampering: Tampering | None = None
    """Falsifications by the attackers among them; None: all are honest."""
    own: Message = field(default_factory=dict)
    """Parameters of the learner that differ from row to row, `[n, 1]` by name (see Learner.own)."""

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

    @property
    def first(self) -> Stack:
        """The first of them alone, as far as rows are concerned."""
        positions, preferences = self.positions[:1], self.preferences[:1]
        return replace(self, addresses=self.addresses[:1], positions=positions, preferences=preferences)

    def share(self, split: str) -> bool:
        """True if all of them hold the same rows of a split."""
        rows = self.splits[split]
        starts, counts = rows.starts[self.positions], rows.counts[self.positions]
        return bool((starts == starts[0]).all() and (counts == counts[0]).all())

    def all_rows(self, split: str) -> Batch:
        """Every row of a split, padded to the longest client of the stack."""
        longest = self.splits[split].counts[self.positions].max()
        return next(self.slices(split, max(longest, 1)))

    def slices(self, split: str, size: int) -> Iterator[Batch]:
        """The rows of a split, at most `size` of each client at a time; at least one slice."""
        rows, device = self.splits[split], self.preferences.device
        counts, starts = rows.counts[self.positions][:, None], rows.starts[self.positions][:, None]
        if len(counts) > 1 and self.share(split):
            yield from (batch.shared_by(len(self)) for batch in self.first.slices(split, size))
            return
        for begin in range(0, max(counts.max(), 1), size):
            column = np.arange(begin, min(begin + size, max(counts.max(), 1)))
            real = column < counts
            index = torch.as_tensor(np.where(real, starts + column, 0), device=device)
            yield rows.take(index, torch.as_tensor(real, device=device).to(self.preferences.dtype))

    def tensor(self, array: np.ndarray) -> Tensor:
        """An array on the stack's device."""
        return torch.as_tensor(array, device=self.preferences.device)
