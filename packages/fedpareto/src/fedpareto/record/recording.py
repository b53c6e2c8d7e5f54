"""The record of a run: of every round a readable row of fixed size, and the values of its clients in columns."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from fedpareto.contract.messages import ByClient, Failure, Ids, Outcome, Traffic, added_up, places
from fedpareto.contract.problem import Problem
from fedpareto.contract.solutions import held_out
from fedpareto.moo.indicators import volume
from fedpareto.record import columns
from fedpareto.record.columns import Columns
from fedpareto.record.store import RunFolder

MOST_IN_A_ROW = 64
"""Largest number of clients for which values of each, or of pairs of them, stand in the row itself."""
HYPERVOLUMES = {"sent": "hypervolume", "trained": "trained_hypervolume"}
"""Name of the hypervolume of each evaluation in a row."""
TOGETHER, SOON = 64, 0.1
"""Rows that are written at once where rounds are short, and the seconds after which fewer rows are written, too."""
TIMES = ("seconds", "at")
"""Keys of a row that tell durations and times: all else is the same in every run of a spec."""


@dataclass
class Entry:
    """One round of one seed, while it is going on."""

    row: dict[str, Any]
    """The future line of metrics.jsonl."""
    values: dict[str, tuple[np.ndarray, np.ndarray | None]] = field(default_factory=dict)
    """Values `[k, ...]` by name with their clients; None: of all clients."""
    participants: np.ndarray | None = None
    """Clients that replied so far, where losses are measured."""
    costs: list[Traffic] = field(default_factory=list)
    """Costs of each exchange."""


class Recorder:
    """The record of a run: in its folder, or where there is none, with its result."""

    def __init__(self, problem: Problem, clients: Ids, splits: Sequence[str], folder: RunFolder | None = None) -> None:
        self.problem, self.clients, self.folder = problem, clients, folder
        self._rows: list[dict[str, Any]] = []
        self._waiting: list[Entry] = []
        self._written = -math.inf
        """Time of the last write."""
        source = columns.Nowhere() if folder is None else columns.InFile(folder.path / columns.FILE)
        self.columns = Columns(source, len(clients), tuple(splits), len(problem.objectives))
        self._volume = volume(problem.reference, problem.maximise)
        self._held_out = held_out(list(splits))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of all rounds: those in a folder are not kept in memory, too, or it would grow with each."""
        self.write()
        return self._rows if self.folder is None else self.folder.read_lines("metrics.jsonl")

    # -- a round ---------------------------------------------------------------------------------------------------

    def describe(self, entry: Entry, described: Mapping[str, Any]) -> None:
        """Add what an algorithm reports about its state."""
        for name, value in described.items():
            array = value.double().cpu().numpy() if isinstance(value, Tensor) else None
            own = None if len(self.clients) <= MOST_IN_A_ROW else self._of_each(name, value if array is None else array)
            if own is not None:
                entry.values[name] = (own, None)
            elif array is None:
                entry.row[name] = value
            elif array.size <= MOST_IN_A_ROW**2:
                entry.row[name] = np.round(array, 4).tolist()
            else:
                entry.row.setdefault("omitted", []).append(name)

    def _of_each(self, name: str, value: Any) -> np.ndarray | None:
        """`[n, ...]`, if a value has something short for every client: of clusters, the number of each one's."""
        if name == "clusters":
            labels = np.full(len(self.clients), -1)
            for number, members in enumerate(value):
                labels[places(self.clients, np.sort(members))] = number
            return labels
        if not isinstance(value, list | tuple | np.ndarray) or len(value) != len(self.clients):
            return None
        try:
            found = np.asarray(value)
        except ValueError:  # Lists of different lengths.
            return None
        return found if found.dtype.kind in "iuf" and found.size <= MOST_IN_A_ROW * len(found) else None

    def note(self, entry: Entry, outcome: Outcome) -> None:
        """Adds one exchange."""
        row, cost, staleness = entry.row, outcome.cost, outcome.staleness
        if staleness is not None and len(staleness):
            row["staleness"] = int(staleness.sum()) / len(staleness)
        for kind, values in (("sent", outcome.evaluations.sent), ("trained", outcome.evaluations.trained)):
            if len(values):
                self._note_evaluation(entry, kind, values)
        row["replies"] = row.get("replies", 0) + len(outcome.replies)
        row["failures"] = row.get("failures", 0) + len(outcome.failures)
        if entry.participants is not None:
            entry.participants = np.union1d(entry.participants, outcome.replies.clients)
        down = up = 0
        if cost is not None:
            entry.costs.append(cost)
            down, up = cost.both_ways.sum(axis=1).tolist()
        row["bytes_down"], row["bytes_up"] = row.get("bytes_down", 0) + down, row.get("bytes_up", 0) + up

    def _note_evaluation(self, entry: Entry, kind: str, values: ByClient) -> None:
        """Means in the row, each client's values `[k, splits, m]` in columns."""
        found = values.rows.double().cpu().numpy()
        found = np.where(np.isfinite(found).all(axis=2, keepdims=True), found, np.nan)
        splits, row = self.columns.splits, entry.row
        entry.values[kind] = found, places(self.clients, values.clients)
        means = row[kind] = {}
        for i, split in enumerate(splits):
            means[split] = _means(found[:, i])
        if row.get(HYPERVOLUMES[kind]) is None:
            row[HYPERVOLUMES[kind]] = self.hypervolume(found[:, splits.index(self._held_out)])

    def note_losses(self, entry: Entry, losses: ByClient) -> None:
        """Adds each client's training loss; from now on who replies is noted too."""
        found = losses.rows.double().cpu().numpy()
        entry.values["losses"] = np.where(np.isfinite(found), found, np.nan), places(self.clients, losses.clients)
        if entry.participants is None:
            entry.participants = np.zeros(0, dtype=np.int64)

    def note_clients(self, entry: Entry, named: Mapping[str, Sequence[int]]) -> None:
        """Adds lists of clients, such as those whom a defence left out."""
        for name, clients in named.items():
            if len(clients) <= MOST_IN_A_ROW:
                entry.row[name] = list(clients)
            else:
                entry.values[name] = np.zeros((len(clients), 0)), places(self.clients, np.sort(clients))

    def note_preferences(self, entry: Entry, preferences: np.ndarray | None) -> None:
        """Adds what each client wants, `[n, m]`, unless that is private."""
        if preferences is not None:
            entry.values["preferences"] = np.asarray(preferences), None

    def note_contributions(self, entry: Entry, clients: np.ndarray, values: np.ndarray) -> None:
        """Adds what each of these clients contributed, `[k, 4]`."""
        entry.values["contribution"] = values, places(self.clients, clients)

    def hypervolume(self, points: np.ndarray) -> float:
        """Hypervolume of the finite ones among the points `[k, m]`."""
        known = points[np.isfinite(points).all(axis=1)]
        return self._volume(known) if len(known) else 0.0

    # -- files -----------------------------------------------------------------------------------------------------

    def record(self, entries: Sequence[Entry], events: Sequence[dict[str, Any]]) -> None:
        """End a round; rows without values of clients may wait a moment for the next ones."""
        for entry in entries:
            entry.row["at"] = round(time.time(), 3)
        self._waiting += entries
        if self.folder is not None:
            self.folder.append("events.jsonl", events)
        is_due = len(self._waiting) >= TOGETHER
        if self.folder is not None and not is_due:  # Somebody may be looking.
            is_due = time.monotonic() > self._written + SOON or bool(events) or any(entry.values for entry in entries)
        if is_due:
            self.write()

    def write(self) -> None:
        """Write the rows that wait: values first, then the rows that say where they lie."""
        entries, self._waiting, self._written = self._waiting, [], time.monotonic()
        values = self._values(entries)
        blocks = iter(self.columns.put_all([found for of_entry in values for found in of_entry.values()]))
        rows = [
            entry.row | {columns.KEY: {name: next(blocks) for name in of_entry}}
            for entry, of_entry in zip(entries, values, strict=True)
        ]
        if self.folder is None:
            self._rows += rows
        else:
            self.folder.append("metrics.jsonl", rows)

    def _values(self, entries: Sequence[Entry]) -> list[dict[str, tuple[np.ndarray, np.ndarray | None]]]:
        """Values of each round by name; traffic in bytes, `[k, 2]`, is of those clients that had any."""
        found = []
        for entry, total in zip(entries, added_up([entry.costs for entry in entries]), strict=True):
            values = dict(entry.values)
            if entry.costs:
                values["traffic"] = total.both_ways.T, places(self.clients, total.clients)
            if entry.participants is not None:
                who = places(self.clients, entry.participants)
                values["participants"] = np.zeros((len(who), 0)), who
            found.append(values)
        return found

    # -- over the seeds --------------------------------------------------------------------------------------------

    def means(self, entries: Sequence[Entry]) -> dict[str, float]:
        """Mean of each objective over clients and seeds, of what was sent; empty in a round without an evaluation."""
        split = self._held_out
        known = [found for entry in entries if (found := entry.row.get("sent", {}).get(split)) is not None]
        names = [objective.name for objective in self.problem.objectives]
        return dict(zip(names, np.mean(known, axis=0).tolist(), strict=True)) if known else {}

    def mean_hypervolume(self, entries: Sequence[Entry]) -> float:
        """Mean over the seeds; NaN in a round without an evaluation."""
        return float(np.mean([entry.row.get("hypervolume", np.nan) for entry in entries]))


def by_split(values: ByClient, clients: Ids, names: Sequence[str], objectives: int) -> dict[str, np.ndarray]:
    """Values `[splits, m]` of clients as `{split: [n, m]}`, with NaN for clients that were not measured."""
    table = np.full((len(clients), len(names), objectives), np.nan)
    if len(values):
        table[places(clients, values.clients)] = values.rows.double().cpu().numpy()
    return {name: table[:, i] for i, name in enumerate(names)}


def event(seed: int, failure: Failure) -> dict[str, Any]:
    return {"seed": seed, **{name: getattr(failure, name) for name in ("round", "client", "step", "reason")}}


def _means(points: np.ndarray) -> list[float] | None:
    """Means `[m]` over the clients that have values; None if no client has."""
    known = points[np.isfinite(points).all(axis=1)]
    if not len(known):
        return None
    means: list[float] = known.mean(axis=0).tolist()
    return means
