"""What a run folder holds, entry by entry: objectives, outputs, the status, events, rounds and solutions."""

from __future__ import annotations

from dataclasses import dataclass

from fedpareto.moo.fairness import Evaluation
from fedpareto.report._files import (
    Array,
    Clusters,
)

ROWS = ("train", "validation", "test")
"""Splits that are parts of the clients' data."""


OWN_TEST = "own-test"
"""The split of each client's own test rows, where "test" is those of all clients."""


@dataclass(frozen=True)
class Objective:
    """One objective of the problem and its direction."""

    name: str
    maximise: bool
    reference: float

    @property
    def better(self) -> str:
        """`higher` or `lower`."""
        return "higher" if self.maximise else "lower"


@dataclass(frozen=True)
class Output:
    """What the models predict: a label's name and its classes, of two the negative one first."""

    name: str
    classes: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """In one line."""
        if len(self.classes) != 2:
            return f"{self.name}, {len(self.classes)} classes"
        negative, positive = self.classes
        return f"{self.name}: {positive} counts as positive (1), {negative} as negative (0)"


@dataclass(frozen=True)
class Status:
    """The status that the run wrote. `unknown` if it never wrote one."""

    name: str = "unknown"
    round: int = 0
    seconds: float = 0.0
    message: str = ""


@dataclass(frozen=True)
class Event:
    """One reply that the server refused or never received."""

    seed: int
    round: int
    client: int
    reason: str


@dataclass(frozen=True, eq=False)
class Line:
    """One seed after one round. Clients without a value have a row of NaN."""

    seed: int
    round: int
    sent: dict[str, Array]
    """By split, `[n, m]`: the models that the server sends out; empty in a round without an evaluation."""
    trained: dict[str, Array] | None
    """By split, `[n, m]`: the models after the local steps that follow; None after the last round."""
    hypervolume: float
    trained_hypervolume: float
    """NaN where there is none."""
    seconds: float
    replies: int
    failures: int
    bytes_up: int
    bytes_down: int
    clusters: Clusters | None
    similarity: Array | None
    """`[n, n]`, rows in the order of the client ids."""
    epsilon: float = float("nan")
    """ε of differential privacy so far; NaN without it, or without noise."""
    losses: Array | None = None
    """`[n]`, of what the server sends: each client's training loss; None where it was not measured."""
    participants: tuple[int, ...] = ()
    """The participants of the next round, where losses were measured."""

    def measured(self, evaluation: Evaluation) -> dict[str, Array]:
        """By split, `[n, m]`; empty where there was no such evaluation."""
        return self.sent if evaluation == "sent" else self.trained or {}


@dataclass(frozen=True, eq=False)
class Solution:
    """What one seed ended with, or has so far."""

    seed: int
    round: int
    clients: tuple[int, ...]
    preferences: Array | None
    """`[n, m]`; None until the run has finished, or if the clients keep theirs private."""
    objectives: dict[str, Array]
    """By split, `[n, m]`."""
    indicators: dict[str, float]
