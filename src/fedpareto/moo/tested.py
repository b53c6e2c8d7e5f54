"""What models are tested on, and what a constant answer scores there: without both, a number says little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedpareto.moo.indicators import hypervolume

FEWEST_ROWS = 100
"""Test rows below which a result is mostly luck: one row is then worth more than a point of accuracy."""
AT_THE_CONSTANT = 0.005
"""Models whose objectives differ by no more from a constant answer's have learnt nothing else."""


class Constant(NamedTuple):
    """The same answer for everybody."""

    answer: int
    """Which of them: 0, 1 and so on."""
    values: np.ndarray
    """Its objectives `[m]`, mean over clients."""
    hypervolume: float
    """Of its points at all clients."""


class Aim(Protocol):
    """An objective, as a problem or as a record has it."""

    @property
    def maximise(self) -> bool:
        """Its direction."""

    @property
    def reference(self) -> float:
        """Its reference value for the hypervolume."""


@dataclass(frozen=True, eq=False)
class Tested:
    """The held-out rows of one seed."""

    rows: int
    """Behind the headline: of all clients together, or where each client is tested on its own, the fewest of one."""
    smallest: int
    """The client with the fewest rows of its own has this many."""
    constants: np.ndarray
    """`[a, n, m]`: the objectives of each constant answer, at each client; n = 1 where all have the same rows, and
    a = 0 where the problem has no such answers."""
    test_digest: str = ""
    """Of the test rows; empty in folders of before."""
    clients_digest: str = ""
    """Of the other rows of all clients."""

    def to_plain(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self) | {"constants": self.constants.tolist()}

    def constant(self, objectives: Sequence[Aim]) -> Constant | None:
        """The constant answer with the largest hypervolume, if there are such answers."""
        if not len(self.constants):
            return None
        reference, maximise = [o.reference for o in objectives], [o.maximise for o in objectives]
        volumes = [hypervolume(points, reference, maximise) for points in self.constants]
        best = int(np.argmax(volumes))
        return Constant(best, self.constants[best].mean(axis=0), volumes[best])

    def collapsed(self, points: np.ndarray) -> bool:
        """Whether every model `[n, m]` scores what a constant answer does."""
        if not len(self.constants) or not len(points):
            return False
        if self.constants.shape[1] not in (1, len(points)):
            return False
        near = np.abs(points - self.constants).max(axis=-1) <= AT_THE_CONSTANT
        return bool(near.any(axis=0).all())
