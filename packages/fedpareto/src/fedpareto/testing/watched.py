"""Replies that note what a server reads of them, and replies that are all alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from fedpareto.contract.messages import Replies

SUM, NORMS, GRAM, ALL = "weighted sum", "norms", "Gram matrix", "all rows"
ALLOWED: Mapping[str, frozenset[str]] = {
    SUM: frozenset({SUM}),
    NORMS: frozenset({SUM, NORMS}),
    GRAM: frozenset({SUM, NORMS, GRAM}),
    ALL: frozenset({SUM, NORMS, GRAM, ALL}),
}
"""Methods that may be read, by what an algorithm `needs`."""


@dataclass(frozen=True, eq=False)
class Watched(Replies):
    """Replies that note what is read of them; parts of them note it in the same place."""

    large: frozenset[str] = frozenset()
    """The tensors that are watched."""
    read: set[str] = field(default_factory=set, repr=False)
    """Methods that were read of them."""

    @classmethod
    def of_replies(cls, replies: Replies, large: frozenset[str]) -> Watched:
        return cls(**{part.name: getattr(replies, part.name) for part in fields(Replies)}, large=large)

    def _note(self, what: str, *names: str) -> None:
        if self.large.intersection(names):
            self.read.add(what)

    def __getitem__(self, name: str) -> Tensor:
        self._note(ALL, name)
        return super().__getitem__(name)

    def whole(self) -> Replies:
        self._note(ALL, *self.tensors)
        return super().whole()

    def sum(self, name: str, weights: Tensor, origin: Tensor | None = None) -> Tensor:
        self._note(SUM, name)
        return super().sum(name, weights, origin)

    def sum_each(self, name: str, weights: Tensor, origins: Tensor) -> Tensor:
        self._note(SUM, name)
        return super().sum_each(name, weights, origins)

    def mean(self, name: str) -> Tensor:
        self._note(SUM, name)
        return super().mean(name)

    def sum_of_products(self, left: str, right: str) -> Tensor:
        self._note(SUM, left, right)
        return super().sum_of_products(left, right)

    def gram(self, name: str, origin: Tensor) -> Tensor:
        self._note(GRAM, name)
        return super().gram(name, origin)

    def squared_norms(self, name: str, origin: Tensor) -> Tensor:
        self._note(NORMS, name)
        return super().squared_norms(name, origin)


def of_the_mean(replies: Replies) -> Replies:
    """Make as many replies as there are, each the mean of all, weighted by "size" where clients send it."""
    weights = replies["size"].double().flatten() if "size" in replies else torch.ones(len(replies)).double()
    shares = weights / weights.sum()
    means = {
        name: (replies.mean(name) if name == "size" else replies.sum(name, shares.to(tensor))).expand_as(tensor)
        for name, tensor in replies.tensors.items()
    }
    return replace(replies, tensors=means)
