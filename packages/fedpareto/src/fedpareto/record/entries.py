"""The entries of a run folder: objectives, outputs, the status, events, rounds and solutions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.moo.fairness import Evaluation
from fedpareto.record.columns import Columns, Evaluated
from fedpareto.record.run_files import Array, Clusters

ROWS = ("train", "validation", "test")
"""Splits that are parts of the clients' data."""
EVALUATIONS: tuple[Evaluation, ...] = ("sent", "trained")
OWN_TEST = "own-test"
"""The split of each client's own test rows, where "test" is those of all clients."""


PLACES = 10_000
"""Similarities are written to four decimal places."""
SMALL, EXACT = "<i2", "<f8"
"""Types: PLACES of a number, if that is whole; the number itself."""


@dataclass(frozen=True)
class Objective:
    """One objective of the problem and its direction."""

    name: str
    maximise: bool
    reference: float
    fairness: bool = False
    """True for a notion of fairness, of which 1 is perfect."""

    @property
    def better(self) -> str:
        return "higher" if self.maximise else "lower"


@dataclass(frozen=True)
class Output:
    """An output of the models: a label's name and its classes, of two the negative one first."""

    name: str
    classes: tuple[str, ...]

    @property
    def in_words(self) -> str:
        if len(self.classes) != 2:
            return f"{self.name}, {len(self.classes)} classes"
        negative, positive = self.classes
        return f"{self.name}: {positive} counts as positive (1), {negative} as negative (0)"


@dataclass(frozen=True)
class Process:
    """The process that works on a run, or did when it was killed."""

    pid: int
    host: str


@dataclass(frozen=True)
class Status:
    """The status that the run wrote. `unknown` if it never wrote one."""

    name: str = "unknown"
    round: int = 0
    seconds: float = 0.0
    message: str = ""
    process: Process | None = None


@dataclass(frozen=True)
class Event:
    """One reply that the server refused or never received."""

    seed: int
    round: int
    client: int
    reason: str


@dataclass(frozen=True, slots=True)
class Packed:
    """A square matrix in as few bytes as hold its numbers exactly: there is one of every round."""

    rows: int
    type: str
    half: bool
    """True if the half below the diagonal is left out, because it equals the half above."""
    content: bytes

    @classmethod
    def of(cls, matrix: Array) -> Packed:
        """Pack a matrix `[k, k]`."""
        with np.errstate(over="ignore", invalid="ignore"):
            small = np.round(matrix * PLACES).astype(SMALL)
        found = small if np.array_equal(small / PLACES, matrix) else matrix.astype(EXACT)
        half = np.array_equal(found, found.T, equal_nan=True)
        content = found[np.triu_indices(len(found))] if half else found
        return cls(len(found), found.dtype.str, half, content.tobytes())

    @property
    def matrix(self) -> Array:
        numbers, whole = np.frombuffer(self.content, self.type), np.empty((self.rows, self.rows))
        if self.half:
            above = np.triu_indices(self.rows)
            whole[above] = whole.T[above] = numbers
        else:
            whole[:] = numbers.reshape(whole.shape)
        return whole / PLACES if self.type == SMALL else whole


@dataclass(frozen=True, eq=False, slots=True)
class Line:
    """One seed after one round. The values of single clients are read when they are asked for."""

    seed: int
    round: int
    averages: Array = field(repr=False)
    """`[2, splits, m]` over the clients: see `means`."""
    hypervolume: float
    trained_hypervolume: float
    """NaN where there is none."""
    seconds: float
    replies: int
    failures: int
    bytes_up: int
    bytes_down: int
    packed: Packed | None = field(repr=False)
    """The packed `similarity`."""
    row: Mapping[str, Any] = field(repr=False)
    """Values of the line for which there is no field here."""
    columns: Columns = field(repr=False)
    epsilon: float = float("nan")
    """ε of differential privacy so far; NaN without it, or without noise."""
    few_clusters: Clusters | None = None
    """Clusters that stand in the line itself."""
    clock: float = float("nan")
    """Simulated seconds after which the solutions existed; NaN without devices."""
    over: float = float("nan")
    """Simulated seconds after which the run's hours were over, in the last line of a run that ended so."""
    joules: float = float("nan")
    """Energy that all clients had spent by then."""
    staleness: float = float("nan")
    """Mean age of the following round's replies, in rounds; NaN where all began in it."""

    at: float = float("nan")
    """Time of writing in seconds since 1970; NaN where the line does not say."""
    similarity_of: tuple[int, ...] | None = None
    """The clients that are compared, ascending; None: all."""

    @property
    def bytes_both_ways(self) -> int:
        return self.bytes_down + self.bytes_up

    @property
    def preferences(self) -> Array | None:
        """`[n, m]`: what each client wants; in round 0 only, and nowhere if that is private."""
        return self.columns.preferences(self.row)

    @property
    def means(self) -> Mapping[str, Mapping[str, Array]]:
        """Means `[m]` over the clients by evaluation and split: "sent" is of the models that the server sends out,
        "trained" of the same after the local steps that follow. Empty without an evaluation, and where nobody has
        values.
        """
        return {
            name: {split: of_split for split, of_split in pairs if not np.isnan(of_split).all()}
            for name, pairs in (
                (name, zip(self.columns.splits, values, strict=True))
                for name, values in zip(EVALUATIONS, self.averages, strict=True)
            )
        }

    @property
    def similarity(self) -> Array | None:
        """`[k, k]`, rows in the order of the client ids: of all clients, or of those in `similarity_of`."""
        return None if self.packed is None else self.packed.matrix

    @property
    def sent(self) -> Mapping[str, Array]:
        """`[n, m]` by split, of the models that the server sends out; empty in a round without an evaluation."""
        return self.measured("sent")

    @property
    def trained(self) -> Mapping[str, Array]:
        """`[n, m]` by split, of the same after the local steps that follow; empty after the last round."""
        return self.measured("trained")

    def measured(self, evaluation: Evaluation) -> Mapping[str, Array]:
        """`[n, m]` by split, NaN for clients without values; empty where there was no such evaluation."""
        found: Evaluated | None = self.columns.evaluated(self.row, evaluation)
        return {} if found is None else found

    def has(self, evaluation: Evaluation, split: str) -> bool:
        if split not in self.columns.splits:
            return False
        of_split = self.averages[EVALUATIONS.index(evaluation), self.columns.splits.index(split)]
        return not np.isnan(of_split).all()

    @property
    def losses(self) -> Array | None:
        """`[n]`, of what the server sends: each client's training loss; None where it was not measured."""
        return self.columns.losses(self.row)

    @property
    def clusters(self) -> Clusters | None:
        if self.few_clusters is not None or self.columns.block(self.row, "clusters") is None:
            return self.few_clusters
        labels = self.columns.described(self.row, "clusters")
        order = labels.argsort(kind="stable")
        ends = (labels[order][1:] != labels[order][:-1]).nonzero()[0] + 1
        groups = [tuple(part.tolist()) for part in np.split(order, ends)]
        return tuple(group for group in groups if labels[group[0]] >= 0)


@dataclass(frozen=True, eq=False)
class Solution:
    """The end of one seed, or its state so far."""

    seed: int
    round: int
    clients: tuple[int, ...]
    preferences: Array | None
    """`[n, m]`; None if the clients keep theirs private."""
    objectives: Mapping[str, Array]
    """`[n, m]` by split."""
    indicators: dict[str, float]
