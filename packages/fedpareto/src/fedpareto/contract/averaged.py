"""Replies of which only the mean is known: no client's own row is anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.messages import Message, Replies


@dataclass(frozen=True, eq=False)
class Averaged(Replies):
    """Replies as if every client had sent the `means`: a weighted sum is the mean times the sum of weights."""

    means: Message = field(default_factory=dict, repr=False)
    """Means, without a client dimension."""

    def __getitem__(self, name: str) -> Tensor:
        """The mean for every client, without a copy."""
        return self.means[name].expand(len(self), *self.means[name].shape)

    def __contains__(self, name: object) -> bool:
        return name in self.means

    def only(self, rows: np.ndarray) -> Averaged:
        """Keep some rows, as `Replies.only` does; of a part of the clients nothing is known."""
        if len(rows) != len(self):
            raise ValueError("a secure sum has no replies of some of its clients")
        return self

    def whole(self) -> Replies:
        return Replies(self.clients, {name: self[name] for name in self.means}, self.step, self.lanes, self.rounds)

    def sum(self, name: str, weights: Tensor, origin: Tensor | None = None) -> Tensor:
        total = weights.double().sum(-1)  # In single precision ten tenths are not 1.
        if origin is not None:
            return total * (self.means[name].double() - origin.double())
        mean = self.means[name]
        return total.to(mean).view(*weights.shape[:-1], *[1] * mean.dim()) * mean

    def mean(self, name: str) -> Tensor:
        return self.means[name]

    def moved(self, name: str, by: Tensor) -> Averaged:
        return replace(self, means={**self.means, name: self.means[name] + by})

    def gram(self, name: str, origin: Tensor) -> Tensor:
        raise ValueError("a secure sum has no single updates")

    def squared_norms(self, name: str, origin: Tensor) -> Tensor:
        raise ValueError("a secure sum has no single updates")

    @classmethod
    def over(cls, clients: np.ndarray, means: Message, round: int) -> Averaged:
        return cls(clients, rounds=np.full(len(clients), round), means=means)


def apart(flat: Tensor, shapes: dict[str, tuple[int, ...]]) -> Message:
    """A flat tensor as the tensors of these shapes, one after the other."""
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    return {
        name: part.view(shape) for (name, shape), part in zip(shapes.items(), torch.split(flat, sizes), strict=True)
    }
