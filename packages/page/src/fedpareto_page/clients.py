"""Clients of a run: their clusters round by round, what became of their replies, and what each wanted and got."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.moo.fairness import Evaluation
from fedpareto.moo.indicators import own_utilities
from fedpareto.record.entries import Event, Line
from fedpareto.record.run_files import Array, Clusters
from fedpareto.record.run_record import Record
from fedpareto.report.gains import LOCAL
from fedpareto.report.likeness import comparable, unlike
from fedpareto_page.entries import finite, finite_rows
from fedpareto_page.frames import frame

MOST_CLIENTS = 64
"""Clients in one film; similarities are recorded of as many."""
ONE = 127
"""A similarity of 1, in a byte."""
UNKNOWN = -128
"""A similarity that is not known."""


NOT_ASKED, REPLIED, NO_REPLY, REFUSED, LEFT_OUT, SHORTENED = range(6)
MEANING = {"0": "not asked", "1": "replied", "2": "no reply", "3": "refused", "4": "left out", "5": "shortened"}
MOST_CELLS = 200_000
"""Cells in one answer; of more, rounds are left out."""
DOWN, UP = 0, 1
NEVER_CAME = ("dropped out", "said nothing", "answered after")
"""Beginnings of the reasons for no reply, or for one that came too late."""


def film(record: Record, seed: int, preferences: Array | None) -> bytes:
    """Return a frame of clusters and similarities, round by round. `preferences` is `[n, m]`, or None if private."""
    lines = record.of_seed(seed)
    shown = _shown(record, seed)
    similar = [line for line in lines if line.packed is not None]
    head = {
        "seed": seed,
        "rounds": [line.round for line in lines],
        "clients": shown,
        "preferences": None if preferences is None else finite_rows(preferences[shown]),
        "order": by_preference(shown, preferences),
        "clusters": _film_clusters(lines, shown),
        "sampled": len(shown) < record.clients,
        "similarity_rounds": [line.round for line in similar],
    }
    return frame(head, {"similarity": np.stack([_bytes(line, shown) for line in similar])} if similar else {})


def _shown(record: Record, seed: int) -> list[int]:
    """Clients whose similarities are known, else a few that lie evenly among all."""
    compared = record.similarity_of(seed)
    if len(compared) <= MOST_CLIENTS:
        return list(compared)
    return [round(place) for place in np.linspace(0, record.clients - 1, MOST_CLIENTS)]


def by_preference(clients: Sequence[int], preferences: Array | None) -> list[int]:
    """An order that stays the same for a whole film: neighbours want about the same."""
    if preferences is None:
        return sorted(clients)
    return sorted(clients, key=lambda client: (*np.round(preferences[client], 9).tolist(), client))


def labels_of(clusters: Clusters, clients: int) -> np.ndarray:
    """`[n]`: by client, the least member of its cluster; −1 where it is in none."""
    found = np.full(clients, -1, dtype=np.int64)
    for members in clusters:
        found[[client for client in members if 0 <= client < clients]] = min(members)
    return found


def _film_clusters(lines: Sequence[Line], shown: Sequence[int]) -> list[Any] | None:
    """Clusters of each round; a round that tells none has those of the last that did."""
    found: list[Any] = []
    known = None
    for line in lines:
        clusters = line.clusters
        if clusters is not None:
            known = labels_of(clusters, line.columns.clients)[list(shown)].tolist()
        found.append(known if known is not None else [-1] * len(shown))
    return None if known is None else found


def _bytes(line: Line, shown: Sequence[int]) -> np.ndarray:
    """Similarities `[s, s]` of the clients that are shown, a byte each."""
    whole = line.similarity
    assert whole is not None
    ids = line.similarity_of if line.similarity_of is not None else range(len(whole))
    place = {client: i for i, client in enumerate(ids)}
    chosen = [place[client] for client in shown if client in place]
    found = np.full((len(shown), len(shown)), UNKNOWN, dtype=np.int8)
    where = [i for i, client in enumerate(shown) if client in place]
    values = np.clip(np.round(ONE * whole[np.ix_(chosen, chosen)]), -ONE, ONE)
    found[np.ix_(where, where)] = np.where(np.isfinite(values), values, UNKNOWN).astype(np.int8)
    return found


def grid(record: Record, seed: int, quorum: Any) -> bytes:
    """Return a frame of what became of each client in each round, with its bytes. `quorum` is the spec's."""
    lines = [line for line in record.of_seed(seed) if line.columns.block(line.row, "traffic") is not None]
    thinned = math.ceil(len(lines) * record.clients / MOST_CELLS) if lines else 1
    lines = lines[::thinned] if thinned > 1 else lines
    state, traffic = states(lines, [event for event in record.events if event.seed == seed], record.clients)
    place = record.seeds.index(seed)
    head = {
        "rounds": [line.round + 1 for line in lines],
        "clients": list(range(record.clients)),
        "meaning": MEANING,
        "attackers": list(record.attackers[place]) if place < len(record.attackers) else [],
        "quorum": _needed(quorum, record.clients),
        "thinned": thinned if thinned > 1 else 0,
    }
    up, down = (traffic[:, way].astype(np.float32) for way in (UP, DOWN))
    return frame(head, {"state": state, "up": up, "down": down})


def states(lines: Sequence[Line], events: Sequence[Event], clients: int) -> tuple[np.ndarray, np.ndarray]:
    """`[k, n]`, what became of each client, and `[k, 2, n]`, the bytes of its tasks and replies.

    The line of a round tells what the round after it did, by whose number events call it.
    """
    if not lines:
        return np.zeros((0, clients), dtype=np.uint8), np.zeros((0, 2, clients))
    traffic = np.nan_to_num(lines[0].columns.stacked([line.row for line in lines], "traffic"))
    found = np.where(traffic[:, DOWN] > 0, NO_REPLY, NOT_ASKED).astype(np.uint8)
    found[traffic[:, UP] > 0] = REPLIED
    rows = {line.round + 1: k for k, line in enumerate(lines)}
    for event in events:
        k = rows.get(event.round)
        if k is not None and 0 <= event.client < clients:
            is_refused = not event.reason.startswith(NEVER_CAME) and (
                "refused" in event.reason or traffic[k, UP, event.client] > 0
            )
            found[k, event.client] = REFUSED if is_refused else NO_REPLY
    for k, line in enumerate(lines):
        for name, state in (("left_out", LEFT_OUT), ("shortened", SHORTENED)):
            who = line.columns.described(line.row, name)
            if who is not None and len(who):
                found[k, np.asarray(who, dtype=np.int64)] = state
    return found, traffic


def _needed(quorum: Any, clients: int) -> int | None:
    """Replies without which a round does not end, if all clients are asked; None where one is enough."""
    if not isinstance(quorum, int | float) or not quorum:
        return None
    return max(1, math.ceil(quorum * clients) if quorum < 1 else min(round(quorum), clients))


@dataclass(frozen=True)
class Got:
    """Models of one run's clients after a round, on the rows that results are reported on."""

    round: int
    points: Array
    """`[n, m]`: objectives of each client's own model, NaN where not known."""
    solutions: Array
    """`[k, m]`: objectives of all models that one could choose, those of clients and of a front of the server's."""


def got(record: Record, seed: int, round: int | None) -> Got:
    """The clients' models after the round whose models were kept, or the last that was evaluated up to `round`."""
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
    line = _last(record, seed, "trained", mine.round)
    trained = None if line is None else line.trained[record.held_out]
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
            "missed": missed[i],
            "bytes_up": int(traffic[UP, i]),
            "bytes_down": int(traffic[DOWN, i]),
            "attacker": i in attackers,
        }
        for i in range(record.clients)
    ]


def _plain(values: Array) -> list[float | None]:
    return [finite(value) for value in values.tolist()]


def _clusters(lines: Sequence[Line], clients: int) -> list[int | None] | None:
    """Numbers of the clients' clusters, counted from 1 in the order of their least members."""
    last = next((found for line in reversed(lines) if (found := line.clusters) is not None), None)
    if last is None:
        return None
    labels = labels_of(last, clients).tolist()
    numbers = {label: number for number, label in enumerate(sorted(set(labels) - {-1}), start=1)}
    return [numbers.get(label) for label in labels]


def _missed(record: Record, seed: int, round: int) -> Counter[int]:
    """Number of rounds up to this one without a valid reply, by client."""
    found = {(event.client, event.round) for event in record.events if event.seed == seed and event.round <= round}
    return Counter(client for client, _ in found)
