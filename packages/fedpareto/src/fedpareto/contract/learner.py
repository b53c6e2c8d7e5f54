"""A learner trains a stack of clients. It is an interface, not a loss: reinforcement learners fit it too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from torch import Tensor

from fedpareto.config.bounds import Bounded
from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Message
from fedpareto.contract.stack import Named, Stack
from fedpareto.moo.scalarise import linear
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch

Loss: TypeAlias = Callable[[Mapping[str, Tensor], Batch, Message], Tensor]
"""A function that an algorithm minimises, `[n]`, of parameters (each `[n, ...]`) on a minibatch of each client.

The third argument are tensors `[n, ...]` that it was given (see Learner.minimise) and may change in place. On a GPU a
loss is recorded once and replayed in later rounds, if nothing else decides its values: if it is a method of a frozen
dataclass, such as an algorithm, or a function of a module, and no closure.
"""


STEP_FACTOR = "step factor"
"""The name of what a loss may be given beside its own tensors: by what each client's step size is multiplied, `[n]`."""


@dataclass(frozen=True)
class Pull:
    """A regulariser that pulls models towards a point, ½·strength·‖θ − towards‖² + slope·θ; a learner adds its
    gradient.
    """

    strength: float | Tensor
    """Strength of the pull: one for all, or `[n, 1]`."""
    towards: Tensor
    """Point of the pull, `[n, d]`."""
    slope: Tensor | None = None
    """Vector that is added to every gradient, `[n, d]`; None: nothing."""

    def __call__(self, model: Tensor) -> Tensor:
        """Gradient of the pull `[n, d]` at `model` `[n, d]`."""
        pulled = self.strength * (model - self.towards)
        return pulled if self.slope is None else pulled + self.slope


class Learner(Bounded, ABC):
    """Local training of n clients at once: a frozen dataclass whose fields are its hyper-parameters."""

    own: ClassVar[tuple[str, ...]] = ()
    """The parameters that may differ from client to client of a stack (`Stack.own`): runs that differ in nothing else
    can be trained side by side.
    """

    @abstractmethod
    def train(self, clients: Stack, model: Tensor, weights: Tensor, pull: Pull | None = None) -> Tensor:
        """New models `[n, d]` from `model` `[n, d]`, for objectives weighted by `weights` `[n, m]`."""

    def train_watched(
        self, clients: Stack, model: Tensor, weights: Tensor, pull: Pull | None = None
    ) -> tuple[Tensor, Tensor]:
        """Train, and give the mean loss `[n]` over a client's last epoch too, as the model changed."""
        raise UserError(
            f"{type(self).__name__} has no loss during training, which this algorithm needs; "
            "it works on problems with losses on rows"
        )

    def scalarised(self, losses: Tensor, weights: Tensor) -> Tensor:
        """Several losses `[n, m]` as the one that training minimises, `[n]`: their weighted sum by default."""
        return linear(losses, weights)

    def memory(self, problem: Named) -> Message:
        """Private state that a client keeps from round to round to continue training, without a client dimension.

        Zeros for a client that has not trained yet. A supervised learner keeps nothing: it starts afresh every round.
        """
        return {}

    def minimise(
        self,
        clients: Stack,
        start: Tensor,
        layout: Layout,
        loss: Loss,
        given: Message | None = None,
        *,
        epochs: int | None = None,
        pull: Pull | None = None,
        purpose: str = "batches",
    ) -> Tensor:
        """Parameters `[n, k]` from `start` `[n, k]` that minimise an algorithm's own `loss`.

        They need not be a whole model: `layout` says what they are. `epochs` are passes over a client's data, if not
        the learner's own; `purpose` names the stream of minibatches. `given` are tensors that `loss` reads, which
        differ from round to round; what it changed in them is in there afterwards. One of them may be `STEP_FACTOR`.
        """
        raise UserError(
            f"{type(self).__name__} has no minibatches, which this algorithm needs; "
            "it works on problems with losses on rows"
        )

    def gradients(self, clients: Stack, model: Tensor) -> tuple[Tensor, Tensor]:
        """The losses `[n, m]` of `model` `[n, d]` on a minibatch, and the gradient of each, `[n, m, d]`."""
        raise UserError(
            f"{type(self).__name__} has no gradient of a single objective, which this algorithm needs; "
            "it works on problems with losses on rows"
        )

    def reach(self, clients: Stack) -> Tensor:
        """Distance that one `train` would carry each client's model along a constant gradient of length 1, `[n]`."""
        raise UserError(
            f"{type(self).__name__} does not step along plain gradients, from which this algorithm would learn a "
            "client's mean gradient; it works on problems with losses on rows"
        )

    def loss(self, clients: Stack, model: Tensor) -> Tensor:
        """The training loss under each client's own preference, `[n]`, of `model` `[n, d]` on all its rows."""
        raise UserError(
            f"{type(self).__name__} has no loss of a model as it stands, which this algorithm needs; "
            "it works on problems with losses on rows"
        )

    @abstractmethod
    def bytes_per_client(self, clients: Stack) -> int:
        """Working memory that training one more client in the stack takes; `clients` is a stack of one."""

    @abstractmethod
    def probe(self) -> Learner:
        """A much shorter version of itself, with which an engine finds the best stack size."""

    # -- how much work it is ---------------------------------------------------------------------------------------

    def effort(self, counts: np.ndarray) -> np.ndarray:
        """Amount of training of clients with so many rows in one `train`, `[n]`, in a unit of its own. By default their
        rows; where nobody has any, 1 each.
        """
        return counts.astype(np.float64) if counts.any() else np.ones(len(counts))

    def countable(self, rows: int) -> tuple[Learner, tuple[int, ...]]:
        """A version of itself, perhaps shorter, whose operations are counted on one or two numbers of rows of a client
        that has so many. Everything that it computes there is work: no minibatch is padded, and no update is left out
        because training has just begun.
        """
        return self, (rows,)
