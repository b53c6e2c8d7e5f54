"""Who gets which rows: dealing a table to clients, and each client's rows to its parts.

Every function gives an owner for each row, `[rows]`; so each row is dealt exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedpareto.core import rng
from fedpareto.errors import UnknownName, UserError

KINDS = (
    "random",
    "stratified",
    "dirichlet-label",
    "dirichlet-group",
    "column:NAME",
    "shares:0.5,0.3,0.2",
    "rule:workclass=Private:0.8,0.2/0.2,0.8",
)
FEWEST = 10
"""Rows that a client of a Dirichlet partition has at least, as in NIID-Bench (Li et al., 2022)."""


@dataclass(frozen=True)
class Partition:
    """A partition as the user names it: its kind, and the column, the rule or the shares that belong to it."""

    kind: str
    column: str = ""
    shares: tuple[float, ...] = ()
    """Of the clients; by a rule, in the rows that fulfil it."""
    rule: str = ""
    others: tuple[float, ...] = ()
    """By a rule, the shares of the clients in the rows that do not fulfil it."""

    @classmethod
    def parse(cls, text: str) -> Partition:
        """From "random", "column:occupation", "shares:0.5,0.3,0.2", …"""
        kind, colon, rest = text.partition(":")
        if kind == "column" and rest.strip():
            return cls(kind, column=rest.strip())
        if kind == "shares" and colon:
            return cls(kind, shares=_shares(rest, text, KINDS[-2]))
        if kind == "rule" and colon:
            rule, _, shares = rest.rpartition(":")
            fulfilled, _, others = shares.partition("/")
            found = cls(kind, "", _shares(fulfilled, text, KINDS[-1]), rule, _shares(others, text, KINDS[-1]))
            if not rule or len(found.shares) != len(found.others):
                raise UserError(f"partition is '{text}'; it needs a rule and as many shares twice, as in {KINDS[-1]}")
            return found
        if text not in KINDS:
            raise UnknownName("partition", text, KINDS)
        return cls(text)


def _shares(text: str, partition: str, example: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = ()
    if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise UserError(f"partition is '{partition}'; shares are positive and add up to 1, as in {example}")
    return shares


def at_random(count: int, clients: int, stream: np.random.Generator) -> np.ndarray:
    """Rows dealt at random, to each client as many as to any other (or one more)."""
    return stratified(np.zeros(count), clients, stream)


def stratified(classes: np.ndarray, clients: int, stream: np.random.Generator) -> np.ndarray:
    """As at random, and so within each class: class by class, the rows are dealt round in one go."""
    shuffled = stream.permutation(len(classes))
    order = shuffled[np.argsort(classes[shuffled], kind="stable")]
    owner = np.empty(len(classes), dtype=np.int64)
    owner[order] = np.arange(len(classes)) % clients
    return owner


def by_class(classes: np.ndarray, shares: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """The rows of class k at random, to client i the share `shares[k, i]` of them, for k = 0, 1, …"""
    owner = np.full(len(classes), -1, dtype=np.int64)
    for k, of_clients in enumerate(shares):
        rows = stream.permutation(np.flatnonzero(classes == k))
        cuts = np.round(np.cumsum(of_clients)[:-1] * len(rows)).astype(int)
        for client, part in enumerate(np.split(rows, cuts)):
            owner[part] = client
    return owner


def dirichlet(classes: np.ndarray, clients: int, alpha: float, stream: np.random.Generator) -> np.ndarray:
    """The rows of each class by shares from a Dirichlet distribution: even for a large `alpha`, uneven for a small one.

    A client that would have fewer than FEWEST rows gets the missing ones from whoever has most.
    """
    _, classes = np.unique(classes, return_inverse=True)
    shares = stream.dirichlet([alpha] * clients, size=int(classes.max()) + 1)
    owner = by_class(classes, shares, stream)
    fewest = min(FEWEST, len(classes) // clients)
    while (counts := np.bincount(owner, minlength=clients)).min() < fewest:
        rich = np.flatnonzero(owner == counts.argmax())
        given = min(fewest - counts.min(), counts.max() - fewest)
        owner[stream.choice(rich, size=given, replace=False)] = counts.argmin()
    return owner


def silos(values: np.ndarray, clients: int) -> np.ndarray:
    """All rows of one value together; where there are more values than clients, the small ones share a client."""
    sizes = np.bincount(values)
    client_of = np.empty(len(sizes), dtype=np.int64)
    rows = np.zeros(clients, dtype=np.int64)
    for value in np.argsort(-sizes, kind="stable"):
        client_of[value] = rows.argmin()
        rows[rows.argmin()] += sizes[value]
    return np.asarray(client_of[values])


def parts(owner: np.ndarray, classes: np.ndarray, shares: Sequence[float], seed: int) -> np.ndarray:
    """To which part each row belongs, `[rows]`: of each client and class the given share to each part, at random.

    Each part gets at least one row of a class of which the client has enough; of a single row, the first part gets it.
    """
    stream = rng.generator(rng.Address(seed), "parts")
    _, cell = np.unique(owner * (classes.max() + 1) + classes, return_inverse=True)
    shuffled = stream.permutation(len(owner))
    order = shuffled[np.argsort(cell[shuffled], kind="stable")]
    part = np.empty(len(owner), dtype=np.int64)
    ends = np.cumsum(np.bincount(cell))
    for rows in np.split(order, ends[:-1]):
        part[rows] = np.repeat(np.arange(len(shares)), _portions(len(rows), shares))
    return part


def _portions(count: int, shares: Sequence[float]) -> np.ndarray:
    """`count` rows by `shares`: one for each part first as far as they go, the rest to where most is missing."""
    wanted = count * np.array(shares)
    # The first part trains and the last one tests; what lies between waits.
    first = [0, len(shares) - 1, *range(1, len(shares) - 1)][:count]
    portions = np.zeros(len(shares), dtype=np.int64)
    portions[first] = 1
    portions = np.maximum(portions, np.floor(wanted).astype(np.int64))
    while portions.sum() > count:
        portions[portions.argmax()] -= 1
    while portions.sum() < count:
        portions[(wanted - portions).argmax()] += 1
    return np.asarray(portions)
