"""What a tuning ends with: the front of its candidates, one of them as the choice, and what the search cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.moo.dominance import is_nondominated


@dataclass(frozen=True)
class Tried:
    """One candidate."""

    number: int
    parameters: Mapping[str, Any]
    """By key of the spec."""
    state: str
    """"complete", "pruned" or "failed"."""
    values: Mapping[str, float] = field(default_factory=dict)
    """By name, what it is judged by."""
    feasible: bool = True
    """Whether it meets the constraints."""
    bytes: float = 0.0
    """Of its messages, all seeds together."""
    seconds: float = 0.0
    reason: str = ""

    @property
    def counts(self) -> bool:
        """Whether it may be on the front."""
        return self.state == "complete" and self.feasible


@dataclass(frozen=True)
class Outcome:
    """A whole tuning."""

    folder: Path
    objectives: Mapping[str, bool]
    """By name, whether it is maximised."""
    tried: tuple[Tried, ...]
    weights: tuple[float, ...]

    @property
    def front(self) -> list[Tried]:
        """The candidates that no other one dominates, ascending by the first objective."""
        known = [one for one in self.tried if one.counts]
        if not known:
            return []
        points = self._points(known)
        best = np.flatnonzero(is_nondominated(points, list(self.objectives.values())))
        return [known[place] for place in best[np.lexsort(points[best].T[::-1])]]

    @property
    def chosen(self) -> Tried | None:
        """ "This one": the candidate on the front that is nearest to the ideal point.

        The ideal point has the best value of every objective on the front; distances are Euclidean, in shares of the
        front's range, each objective times its weight. Of equal ones the first that was tried.
        """
        front = self.front
        if not front:
            return None
        signs = np.where(list(self.objectives.values()), -1.0, 1.0)
        losses = self._points(front) * signs
        low, width = losses.min(axis=0), np.ptp(losses, axis=0)
        shares = (losses - low) / np.where(width > 0, width, 1.0)
        distances = np.linalg.norm(shares * np.asarray(self.weights), axis=1)
        return min(zip(distances.tolist(), front, strict=True), key=lambda pair: (pair[0], pair[1].number))[1]

    def _points(self, some: Sequence[Tried]) -> np.ndarray:
        return np.array([[one.values[name] for name in self.objectives] for one in some], dtype=float)

    @property
    def bytes(self) -> float:
        """What the whole search sent, candidates that were given up or failed included."""
        return sum(one.bytes for one in self.tried)

    def counted(self, state: str) -> int:
        """How many candidates ended so."""
        return sum(one.state == state for one in self.tried)

    @property
    def sentence(self) -> str:
        """What the search was, in a line."""
        bad = "".join(f", {count} {state}" for state in ("pruned", "failed") if (count := self.counted(state)))
        unfit = sum(one.state == "complete" and not one.feasible for one in self.tried)
        unfit_words = f", {unfit} beyond the constraints" if unfit else ""
        return (
            f"{len(self.tried)} trials{bad}{unfit_words}; the search itself sent {self.bytes:,.0f} bytes and took "
            f"{sum(one.seconds for one in self.tried):,.0f} s of training"
        )

    def to_plain(self) -> dict[str, Any]:
        """Everything, for other programs."""
        chosen = self.chosen
        return {
            "folder": str(self.folder),
            "objectives": dict(self.objectives),
            "weights": list(self.weights),
            "front": [one.number for one in self.front],
            "chosen": None if chosen is None else chosen.number,
            "cost": {
                "trials": len(self.tried),
                "pruned": self.counted("pruned"),
                "failed": self.counted("failed"),
                "bytes": self.bytes,
                "seconds": sum(one.seconds for one in self.tried),
            },
            "trials": [asdict(one) for one in self.tried],
        }
