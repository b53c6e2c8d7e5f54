"""What fine-tuning, privacy, a secure sum and private normalisation layers have in common: they stand around another
algorithm, and whatever they do not change is that algorithm's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from fedpareto.contract.algorithm import Algorithm, Setting, State, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.conditioned import Conditioned
from fedpareto.contract.messages import Message, Shapes
from fedpareto.tensors.layout import Layout

W = TypeVar("W", bound=State)


@dataclass(frozen=True)
class Around(Algorithm[W], Generic[W]):
    """Another algorithm, in part; a subclass says what is different."""

    algorithm: Algorithm[Any]

    @property
    def name(self) -> str:  # type: ignore[override]
        """The algorithm's own."""
        return self.algorithm.name

    @property
    def taxonomy(self) -> Taxonomy:  # type: ignore[override]
        """The algorithm's own."""
        return self.algorithm.taxonomy

    @property
    def personalised(self) -> bool:  # type: ignore[override]
        """As the algorithm itself."""
        return self.algorithm.personalised

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own."""
        return self.algorithm.private_state(setting)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own."""
        return self.algorithm.personal(clients, message)

    def anatomy(self, layout: Layout, objectives: int) -> Conditioned | None:
        """The algorithm's own."""
        return self.algorithm.anatomy(layout, objectives)

    def model_parts(self, clients: Clients, message: Message) -> Message:
        """The algorithm's own."""
        return self.algorithm.model_parts(clients, message)

    def shares(self, setting: Setting) -> np.ndarray | None:
        """The algorithm's own."""
        return self.algorithm.shares(setting)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own."""
        return self.algorithm.reply_shapes(setting)


def of(inner: W | None) -> W:
    """The algorithm's own state, of the state of what is around it."""
    assert inner is not None, "a state made by begin has the algorithm's own state"
    return inner
