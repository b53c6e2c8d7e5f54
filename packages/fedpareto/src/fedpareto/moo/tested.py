"""Test rows of models, and the score of a constant answer on them: without both, a number says little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from fedpareto.moo.indicators import hypervolume, own_utilities

FEWEST_ROWS = 100
"""Test rows below which a result is mostly luck: one row is then worth more than a point of accuracy."""
AT_THE_CONSTANT = 0.005
"""Models whose objectives differ by no more from a constant answer's have learnt nothing else."""


CHANCE = "random policy"
"""Name of the reference of whoever acts: its actions are random."""


class Constant(NamedTuple):
    """One answer for everybody."""

    answer: int
    """Number of the answer: 0, 1 and so on."""
    values: np.ndarray
    """Objectives `[m]`, mean over clients."""
    hypervolume: float
    """Hypervolume of its points at all clients."""


class Aim(Protocol):
    """An objective, as a problem or as a record has it: its direction, and its reference value for the hypervolume."""

    @property
    def maximise(self) -> bool: ...
    @property
    def reference(self) -> float: ...


def worth(points: np.ndarray, preferences: np.ndarray | None, objectives: Sequence[Aim]) -> float:
    """Own utility, mean over the clients, of their models' points `[n, m]` or those `[1, m]` of one for all; without
    preferences the hypervolume.
    """
    maximise = [one.maximise for one in objectives]
    if preferences is None or len(points) not in (1, len(preferences)):
        return hypervolume(points, [one.reference for one in objectives], maximise)
    return float(own_utilities(np.broadcast_to(points, preferences.shape), preferences, maximise).mean())


@dataclass(frozen=True, eq=False)
class Tested:
    """The held-out rows of one seed."""

    rows: int
    """Rows behind the headline: of all clients together, or where each client is tested on its own, the fewest of one;
    0 where there are episodes instead."""
    smallest: int
    """The client with the fewest rows of its own has this many."""
    constants: np.ndarray
    """`[a, n, m]`: the objectives of each constant answer, at each client; n = 1 where all have the same rows, and
    a = 0 where the problem has no such answers."""
    plain: Mapping[str, np.ndarray] = field(default_factory=dict)
    """The objectives of plain models: of each client "alone", `[n, m]`, and of the rows of all, "pooled", `[1, m]` or
    `[n, m]`; of reinforcement learning those of a random policy. Empty where there is none, and in folders of before.
    """
    test_digest: str = ""
    """Digest of the test rows; empty in folders of before."""
    clients_digest: str = ""
    """Digest of the other rows of all clients."""

    def to_plain(self) -> dict[str, Any]:
        plain = {name: points.tolist() for name, points in self.plain.items()}
        return asdict(self) | {"constants": self.constants.tolist(), "plain": plain}

    def references(self, objectives: Sequence[Aim]) -> dict[str, np.ndarray]:
        """References for models on these rows, by name: points `[n, m]`, or `[1, m]` of one for all."""
        best = self.constant(objectives)
        constant = {} if best is None else {"constant": self.constants[best.answer]}
        return constant | {name if name == CHANCE else f"plain {name}": points for name, points in self.plain.items()}

    def beside(self, points: np.ndarray, preferences: np.ndarray | None, objectives: Sequence[Aim]) -> dict[str, float]:
        """Gain in worth of models with these points `[n, m]` over each reference, by its name.

        That is what clients have under their own preferences, mean over them; where these are private, hypervolume.
        """
        mine = worth(points, preferences, objectives)
        found = self.references(objectives)
        return {name: mine - worth(one, preferences, objectives) for name, one in found.items()}

    def constant(self, objectives: Sequence[Aim]) -> Constant | None:
        """The constant answer with the largest hypervolume, if there are such answers."""
        if not len(self.constants):
            return None
        reference, maximise = [o.reference for o in objectives], [o.maximise for o in objectives]
        volumes = [hypervolume(points, reference, maximise) for points in self.constants]
        best = int(np.argmax(volumes))
        return Constant(best, self.constants[best].mean(axis=0), volumes[best])

    def collapsed(self, points: np.ndarray) -> bool:
        """True if every model `[n, m]` scores what a constant answer does."""
        if not len(self.constants) or not len(points):
            return False
        if self.constants.shape[1] not in (1, len(points)):
            return False
        near = np.abs(points - self.constants).max(axis=-1) <= AT_THE_CONSTANT
        return bool(near.any(axis=0).all())
