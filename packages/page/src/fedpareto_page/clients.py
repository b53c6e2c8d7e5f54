"""What each client wanted and got, what it misses, and whether federation pays for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.moo.fairness import Evaluation
from fedpareto.moo.indicators import own_utilities
from fedpareto.record.entries import Line
from fedpareto.record.run_files import Array
from fedpareto.record.run_record import Record
from fedpareto.report.gains import LOCAL
from fedpareto.report.likeness import comparable, unlike
from fedpareto_page.entries import finite
from fedpareto_page.film import labels_of
from fedpareto_page.grid import DOWN, UP


@dataclass(frozen=True)
class Got:
    """What the clients of one run have after a round, on the rows that results are reported on."""

    round: int
    points: Array
    """`[n, m]`: of each client's own model, NaN where that is not known."""
    solutions: Array
    """`[k, m]`: all models that one could choose: those of clients, and of a front of the server's."""


def got(record: Record, seed: int, round: int | None) -> Got:
    """After the round whose models were kept, or after the last that was evaluated up to `round`."""
    kept = record.solution(seed)
    is_end = round is None or (record.finished and round >= kept.round)
    line = _last(record, seed, "sent", kept.round if is_end or round is None else round)
    points = np.full((record.clients, len(record.objectives)), np.nan)
    if line is not None:
        points = line.sent[record.held_out]
    if not is_end:
        return Got(line.round if line is not None else 0, points, points)
    kept_points = kept.objectives[record.held_out]
    if kept.clients == tuple(range(record.clients)):
        return Got(kept.round, kept_points, kept_points)
    return Got(kept.round, points, np.concatenate([points, kept_points]))


def _last(record: Record, seed: int, evaluation: Evaluation, round: int) -> Line | None:
    """The last line up to a round in which any client has a value."""
    found = (line for line in reversed(record.of_seed(seed)) if line.round <= round)
    return next((line for line in found if line.has(evaluation, record.held_out)), None)


def utilities(points: Array, preferences: Array, maximise: Sequence[bool]) -> Array:
    """`[n]`: of each client's own point under its own preference; NaN where either is not known."""
    found = np.full(len(points), np.nan)
    known = np.isfinite(points).all(axis=1) & np.isfinite(preferences).all(axis=1)
    if known.any():
        found[known] = own_utilities(points[known], preferences[known], maximise)
    return found


def clients(
    records: Mapping[str, Record],
    id: str,
    seed: int,
    round: int | None,
    wishes: Array | None,
    is_private: bool,
) -> dict[str, Any]:
    """One row a client. `records`: by id, all runs to hold it against, itself among them."""
    record = records[id]
    mine = got(record, seed, round)
    against = {key: one for key, one in records.items() if key == id or _fits(record, one, seed)}
    alone = next((key for key, one in records.items() if one.algorithm == LOCAL and seed in one.started), None)
    weights = np.ones((record.clients, 1)) if record.single else wishes
    trained = _trained(record, seed, mine.round)
    utility = utility_trained = regret = gain = None
    if weights is not None:
        utility = utilities(mine.points, weights, record.maximise)
        every = [got(one, seed, round).solutions for one in against.values()]
        regret = _best(every, weights, record.maximise) - utility
        if trained is not None:
            utility_trained = utilities(trained, weights, record.maximise)
        if alone in against and alone != id and _same_clients(record, against[alone], seed, wishes):
            gain = utility - utilities(got(against[alone], seed, round).points, weights, record.maximise)
    numbers = {"utility": utility, "utility_trained": utility_trained, "regret": regret, "gain": gain}
    rows = _rows(record, seed, mine, trained, wishes, numbers, is_latest=round is None)
    return {
        "seed": seed,
        "round": mine.round,
        "objectives": [one.name for one in record.objectives],
        "private": is_private,
        "against": list(against),
        "alone": alone,
        "rows": rows,
    }


def _fits(record: Record, other: Record, seed: int) -> bool:
    """Whether the numbers of two runs can be compared, and the other has the seed."""
    try:
        return seed in other.started and not unlike(comparable([record, other]))
    except UserError:
        return False


def _same_clients(record: Record, other: Record, seed: int, wishes: Array | None) -> bool:
    theirs = other.preferences(seed)
    if record.clients != other.clients:
        return False
    return record.single or (wishes is not None and theirs is not None and np.array_equal(wishes, theirs))


def _best(points: Sequence[Array], preferences: Array, maximise: Sequence[bool]) -> Array:
    """`[n]`: for each preference, the largest utility of all these points."""
    every = np.concatenate(points)
    every = every[np.isfinite(every).all(axis=1)]
    if not len(every):
        return np.full(len(preferences), np.nan)
    return np.asarray((preferences @ (np.where(maximise, 1.0, -1.0) * every).T).max(axis=1))


def _trained(record: Record, seed: int, round: int) -> Array | None:
    line = _last(record, seed, "trained", round)
    return None if line is None else line.trained[record.held_out]


def _rows(
    record: Record,
    seed: int,
    mine: Got,
    trained: Array | None,
    wishes: Array | None,
    numbers: Mapping[str, Array | None],
    is_latest: bool,
) -> list[dict[str, Any]]:
    lines = record.of_seed(seed)
    clusters = _clusters([line for line in lines if line.round <= mine.round], record.clients)
    # The line of a round tells of the bytes of the next one, which may be over although its models are not measured.
    rows = [line.row for line in lines if is_latest or line.round < mine.round]
    traffic = np.nan_to_num(lines[0].columns.stacked(rows, "traffic")).sum(axis=0)
    missed = _missed(record, seed, record.rounds + 1 if is_latest else mine.round)
    place = record.seeds.index(seed)
    attackers = set(record.attackers[place]) if place < len(record.attackers) else set()
    return [
        {
            "client": i,
            "name": record.names[i] if i < len(record.names) else "",
            "preference": None if wishes is None else _plain(wishes[i]),
            "sent": _plain(mine.points[i]),
            "trained": None if trained is None or not np.isfinite(trained[i]).all() else _plain(trained[i]),
            **{name: None if found is None else finite(found[i]) for name, found in numbers.items()},
            "cluster": None if clusters is None else clusters[i],
            "missed": missed.get(i, 0),
            "bytes_up": int(traffic[UP, i]),
            "bytes_down": int(traffic[DOWN, i]),
            "attacker": i in attackers,
        }
        for i in range(record.clients)
    ]


def _plain(values: Array) -> list[float | None]:
    return [finite(value) for value in values.tolist()]


def _clusters(lines: Sequence[Line], clients: int) -> list[int | None] | None:
    """By client, the number of its cluster, counted from 1 in the order of their least members."""
    last = next((found for line in reversed(lines) if (found := line.clusters) is not None), None)
    if last is None:
        return None
    labels = labels_of(last, clients).tolist()
    numbers = {label: number for number, label in enumerate(sorted(set(labels) - {-1}), start=1)}
    return [numbers.get(label) for label in labels]


def _missed(record: Record, seed: int, round: int) -> dict[int, int]:
    """By client, the rounds up to this one without a valid reply of it."""
    found = {(event.client, event.round) for event in record.events if event.seed == seed and event.round <= round}
    counts: dict[int, int] = {}
    for client, _ in found:
        counts[client] = counts.get(client, 0) + 1
    return counts
