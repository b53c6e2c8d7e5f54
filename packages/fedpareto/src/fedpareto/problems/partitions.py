"""Partitions of a table over clients, and of each client's rows into splits.

Every function returns an owner for each row, `[rows]`; so no row is assigned twice. UNASSIGNED marks what is left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.tensors import rng

FEWEST = 10
"""Fewest rows of a client in a Dirichlet partition, as in NIID-Bench (Li et al., 2022)."""
UNASSIGNED = -1


def client_by_client(owner: np.ndarray, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """The assigned rows of client 0, of client 1, …, each in their order, and each client's number of rows."""
    rows = np.flatnonzero(owner != UNASSIGNED)
    return rows[np.argsort(owner[rows], kind="stable")], np.bincount(owner[rows], minlength=clients)


def at_random(count: int, clients: int, stream: np.random.Generator) -> np.ndarray:
    """Rows assigned at random, equally many to each client (or one more)."""
    return stratified(np.zeros(count), clients, stream)


def stratified(classes: np.ndarray, clients: int, stream: np.random.Generator) -> np.ndarray:
    """At random, stratified by class: class by class, the rows are assigned round-robin."""
    shuffled = stream.permutation(len(classes))
    order = shuffled[np.argsort(classes[shuffled], kind="stable")]
    owner = np.empty(len(classes), dtype=np.int64)
    owner[order] = np.arange(len(classes)) % clients
    return owner


def by_class(classes: np.ndarray, shares: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Assign of the rows of class k a random share `shares[k, i]` to client i, for k = 0, 1, …"""
    owner = np.full(len(classes), -1, dtype=np.int64)
    for k, of_clients in enumerate(shares):
        rows = stream.permutation(np.flatnonzero(classes == k))
        cuts = np.round(np.cumsum(of_clients)[:-1] * len(rows)).astype(int)
        for client, part in enumerate(np.split(rows, cuts)):
            owner[part] = client
    return owner


def dirichlet(classes: np.ndarray, clients: int, alpha: float, stream: np.random.Generator) -> np.ndarray:
    """The rows of each class by shares from a Dirichlet distribution: even for a large `alpha`, uneven for a small one.

    A client that would have fewer than FEWEST rows gets the missing ones from the client with most.
    """
    _, classes = np.unique(classes, return_inverse=True)
    shares = stream.dirichlet([alpha] * clients, size=int(classes.max()) + 1)
    return _at_least(min(FEWEST, len(classes) // clients), by_class(classes, shares, stream), clients, stream)


def by_sight(classes: np.ndarray, seen: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Assign of the rows of class k to each client its share of `seen[k]`, such as the time for which it is above a
    region.

    A class that nobody sees is left over. A client with too few rows gets more as in a Dirichlet partition.
    """
    clients, total = seen.shape[1], seen.sum(axis=1, keepdims=True)
    owner = by_class(classes, seen / np.where(total > 0, total, 1), stream)
    owner[total[classes, 0] == 0] = UNASSIGNED
    rows = np.flatnonzero(owner != UNASSIGNED)
    owner[rows] = _at_least(min(FEWEST, len(rows) // clients), owner[rows], clients, stream)
    return owner


def _at_least(fewest: int, owner: np.ndarray, clients: int, stream: np.random.Generator) -> np.ndarray:
    """A client that would have fewer rows gets the missing ones from the client with most."""
    while (counts := np.bincount(owner, minlength=clients)).min() < fewest:
        rich = np.flatnonzero(owner == counts.argmax())
        given = min(fewest - counts.min(), counts.max() - fewest)
        owner[stream.choice(rich, size=given, replace=False)] = counts.argmin()
    return owner


def shards(classes: np.ndarray, clients: int, count: int, each: int, stream: np.random.Generator) -> np.ndarray:
    """The rows sorted by class, divided into `count` shards of equal size; each client gets `each` of them.

    Shards are drawn at random (McMahan et al. 2017); the rest are left over.
    """
    if clients * each > count:
        raise UserError(f"{clients} clients with {each} shards each need {clients * each} shards; there are {count}")
    if count > len(classes):
        raise UserError(f"{len(classes):,} rows cannot be cut into {count} shards; take at most as many as rows")
    shuffled = stream.permutation(len(classes))
    order = shuffled[np.argsort(classes[shuffled], kind="stable")]
    owner_of = np.full(count, UNASSIGNED)
    owner_of[stream.permutation(count)[: clients * each]] = np.repeat(np.arange(clients), each)
    owner = np.empty(len(classes), dtype=np.int64)
    for piece, holder in zip(np.array_split(order, count), owner_of, strict=True):
        owner[piece] = holder
    return owner


def few_classes(classes: np.ndarray, clients: int, each: int, stream: np.random.Generator) -> np.ndarray:
    """To each client the rows of `each` classes; clients with the same class share its rows evenly.

    Classes are drawn one client after the other among those held by fewest clients, so all are held by equally many
    (or one more). Where there are more classes than clients can hold, the rows of the others are left over.
    """
    kinds, classes = np.unique(classes, return_inverse=True)
    if each > len(kinds):
        raise UserError(f"classes_per_client is {each}; there are {len(kinds)} classes")
    held = np.zeros((len(kinds), clients))
    for client in range(clients):
        rarest = np.lexsort([stream.random(len(kinds)), held.sum(axis=1)])[:each]
        held[rarest, client] = 1
    holders = held.sum(axis=1)
    owner = by_class(classes, held / np.maximum(holders[:, None], 1), stream)
    return np.where(holders[classes] > 0, owner, UNASSIGNED)


def alike(owner: np.ndarray, classes: np.ndarray, others: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Owners of other rows, of classes `others`: each client has the share of each class that it has in `owner`.

    A class of which no client has a row is left over.
    """
    clients, kinds = int(owner.max()) + 1, int(max(classes.max(), others.max())) + 1
    counts = np.zeros((kinds, clients))
    assigned = owner != UNASSIGNED
    np.add.at(counts, (classes[assigned], owner[assigned]), 1)
    totals = counts.sum(axis=1, keepdims=True)
    found = by_class(others, counts / np.maximum(totals, 1), stream)
    return np.where(totals[others, 0] > 0, found, UNASSIGNED)


def silos(values: np.ndarray, clients: int) -> np.ndarray:
    """All rows of one value together; where there are more values than clients, rare ones share a client."""
    sizes = np.bincount(values)
    client_of = np.empty(len(sizes), dtype=np.int64)
    rows = np.zeros(clients, dtype=np.int64)
    for value in np.argsort(-sizes, kind="stable"):
        client_of[value] = rows.argmin()
        rows[rows.argmin()] += sizes[value]
    return np.asarray(client_of[values])


def parts(
    owner: np.ndarray, classes: np.ndarray, shares: Sequence[float], seed: int, labels: np.ndarray | None = None
) -> np.ndarray:
    """The split of each row, `[rows]`: of each client a random share to each split, alike for each class.

    Shares are rounded so that the rows of all clients in a split have the base rates of the table: each of two labels
    within half a row, each class of a label (`labels` `[rows]`, without which classes are labels) within one. As far
    as that leaves a choice, a client that has a class several times has it in each split.
    """
    _, client = np.unique(owner, return_inverse=True)
    kinds, kind = np.unique(classes, return_inverse=True)
    cells = np.zeros((int(client.max()) + 1, len(kinds)), dtype=np.int64)
    np.add.at(cells, (client, kind), 1)
    label_of = np.zeros(len(kinds), dtype=np.int64)
    label_of[kind] = kind if labels is None else labels
    counts = _evenly(cells, label_of, shares).reshape(-1)
    shuffled = rng.generator(rng.Address(seed), "parts").permutation(len(owner))
    order = shuffled[np.argsort((client * len(kinds) + kind)[shuffled], kind="stable")]
    part = np.empty(len(owner), dtype=np.int64)
    part[order] = np.repeat(np.tile(np.arange(len(shares)), cells.size), counts)
    return part


def parts_of_each(
    owner: np.ndarray, classes: np.ndarray, shares: Sequence[float], seed: int, labels: np.ndarray | None = None
) -> np.ndarray:
    """`parts`, but each client's rows of a class are rounded by themselves: of few rows a rare class gets more."""
    _, cell = np.unique(owner * (classes.max() + 1) + classes, return_inverse=True)
    return parts(cell, np.zeros_like(cell), shares, seed)


def _evenly(cells: np.ndarray, labels: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """The rows `[n, k, splits]` of each client and class in each split, of all rows `cells` `[n, k]`."""
    rows, place = np.unique(cells.sum(axis=1), return_inverse=True)
    sizes = np.array([_portions(int(count), shares) for count in rows])[place]
    found, left = np.zeros((*cells.shape, len(shares)), dtype=np.int64), cells.copy()
    for split in range(len(shares) - 1, 0, -1):  # The last one tests; the first one trains and has what is left.
        found[..., split] = _of_split(cells, left, labels, sizes[:, split], split)
        left -= found[..., split]
    found[..., 0] = left
    return found


def _of_split(cells: np.ndarray, left: np.ndarray, labels: np.ndarray, sizes: np.ndarray, spare: int) -> np.ndarray:
    """The rows `[n, k]` that a split takes of what is `left`: `sizes` of each client, who keeps `spare` others."""
    wanted = sizes[:, None] * cells / cells.sum(axis=1, keepdims=True)
    target = np.zeros(cells.shape[1], dtype=np.int64)
    all_rows, all_left = cells.sum(axis=0), left.sum(axis=0)
    by_label = [labels == label for label in np.unique(labels)]
    of_labels = [np.array([rows[mine].sum() for mine in by_label]) for rows in (all_rows, all_left)]
    for mine, size in zip(by_label, _spread(int(sizes.sum()), *of_labels), strict=True):
        target[mine] = _spread(int(size), all_rows[mine], all_left[mine])

    def gains(taken: np.ndarray, step: int, kind: slice | int = slice(None)) -> np.ndarray:
        """Gain of one row more or less of a class for each client's split; −∞ where that cannot be."""

        def loss(count: np.ndarray) -> np.ndarray:
            lacks = (count == 0) & (cells[:, kind] > 1)
            return np.asarray((count - wanted[:, kind]) ** 2 + lacks + (count == left[:, kind]))

        now, then = taken[:, kind], taken[:, kind] + step
        return np.asarray(np.where((then >= 0) & (then <= left[:, kind]), loss(now) - loss(then), -np.inf))

    taken: np.ndarray = np.minimum(np.floor(wanted).astype(np.int64), left)
    while len(short := np.flatnonzero(taken.sum(axis=1) < sizes)):
        taken[short, gains(taken, 1)[short].argmax(axis=1)] += 1
    while (gap := target - taken.sum(axis=0)).any():
        few, many = int(gap.argmax()), int(gap.argmin())
        path = _shortest((taken > 0).T @ (taken < left), many, few)
        for kind, instead in pairwise(path):
            one = int((gains(taken, -1, kind) + gains(taken, 1, instead)).argmax())
            taken[one, [kind, instead]] += (-1, 1)
        if not path:  # The clients with rows of the one class have none of the other: the sizes of two of them change.
            more, less = gains(taken, 1, few), gains(taken, -1, many)
            more[left.sum(axis=1) - taken.sum(axis=1) <= spare] = -np.inf
            less[taken.sum(axis=1) <= 1] = -np.inf
            if np.isinf([more.max(), less.max()]).any():
                break
            taken[more.argmax(), few] += 1
            taken[less.argmax(), many] -= 1
    return taken


def _shortest(edges: np.ndarray, start: int, end: int) -> list[int]:
    """A shortest path along `edges` `[k, k]`; empty if there is none."""
    paths = {start: [start]}
    for node in (reached := [start]):  # Grows as it goes.
        for after in np.flatnonzero(edges[node]).tolist():
            if after not in paths:
                paths[after] = [*paths[node], after]
                reached.append(after)
    return paths.get(end, [])


def _spread(total: int, rows: np.ndarray, most: np.ndarray) -> np.ndarray:
    """`total` rows by the frequency of classes, at most `most` of each: the nearest whole numbers with that sum."""
    wanted = total * rows / rows.sum()
    found = np.minimum(np.floor(wanted + 0.5), most)
    while found.sum() > total:
        found[np.where(found > 0, found - wanted, -np.inf).argmax()] -= 1
    while found.sum() < min(total, most.sum()):
        found[np.where(found < most, wanted - found, -np.inf).argmax()] += 1
    return np.asarray(found.astype(np.int64))


def _portions(count: int, shares: Sequence[float]) -> np.ndarray:
    """`count` rows by `shares`: first one for each split as far as they go, the rest to where most are missing."""
    wanted = count * np.array(shares)
    # The first split trains and the last one tests; the ones between come after them.
    first = [0, len(shares) - 1, *range(1, len(shares) - 1)][:count]
    portions = np.zeros(len(shares), dtype=np.int64)
    portions[first] = 1
    portions = np.maximum(portions, np.floor(wanted).astype(np.int64))
    while portions.sum() > count:
        portions[portions.argmax()] -= 1
    while portions.sum() < count:
        portions[(wanted - portions).argmax()] += 1
    return np.asarray(portions)
