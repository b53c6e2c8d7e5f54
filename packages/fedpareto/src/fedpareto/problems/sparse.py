"""Problems whose network may have some of its connections only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from fedpareto.config.bounds import Bounded, NotNegative
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.tensors.connections import Sparsity

P = TypeVar("P", bound="SparseProblem")


@dataclass(frozen=True)
class SparseProblem(SupervisedProblem, Bounded):
    """A problem that says how sparse its network is."""

    sparsity: NotNegative = 0.0
    """ε of random connections: two layers of a and b units are connected with the probability ε (a + b) / (a · b), and
    only what is connected is trained and sent; 0: all are, as with a large ε."""
    sparsity_seed: int = 0
    """Seed of the connections, the same at all clients and under all seeds of a run."""

    @property
    def _connected(self) -> Sparsity:
        return Sparsity(self.sparsity, self.sparsity_seed)

    def dense(self: P) -> P:
        return replace(self, sparsity=0.0)
