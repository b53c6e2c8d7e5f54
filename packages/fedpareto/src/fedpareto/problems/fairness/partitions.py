"""Partitions of a table over clients: how a user names one, and which row it gives to whom."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.problems import partitions
from fedpareto.problems.fairness import tables
from fedpareto.problems.fairness.tables import LabelledTable

KINDS = (
    "random",
    "stratified",
    "dirichlet-label",
    "dirichlet-group",
    "column:NAME",
    "shares:0.5,0.3,0.2",
    "rule:workclass=Private:0.8,0.2/0.2,0.8",
)


@dataclass(frozen=True)
class Partition:
    """A partition as the user names it: its kind, and the column, the rule or the shares that belong to it."""

    kind: str
    column: str = ""
    shares: tuple[float, ...] = ()
    """Shares of the clients; by a rule, in the rows that fulfil it."""
    rule: str = ""
    others: tuple[float, ...] = ()
    """Shares of the clients in the rows that do not fulfil a rule."""
    written: str = field(default="", compare=False)
    """The user's own text, for messages."""

    @classmethod
    def parse(cls, text: str) -> Partition:
        """Parse "random", "column:occupation", "shares:0.5,0.3,0.2", …"""
        kind, colon, rest = text.partition(":")
        if kind == "column" and rest.strip():
            return cls(kind, column=rest.strip(), written=text)
        if kind == "shares" and colon:
            return cls(kind, shares=_shares(rest, text, KINDS[-2]), written=text)
        if kind == "rule" and colon:
            rule, _, shares = rest.rpartition(":")
            fulfilled, _, others = shares.partition("/")
            of_rule, of_others = (_shares(part, text, KINDS[-1]) for part in (fulfilled, others))
            found = cls(kind, "", of_rule, rule, of_others, text)
            if not rule or len(found.shares) != len(found.others):
                raise UserError(f"partition is '{text}'; it needs a rule and as many shares twice, as in {KINDS[-1]}")
            return found
        if text not in KINDS:
            unknown = UnknownName("partition", text, KINDS)
            raise UserError(f"{str(unknown).rstrip('.')}; by the values of a column: column:{text or 'NAME'}")
        return cls(text, written=text)

    def owners(
        self,
        table: LabelledTable,
        classes: np.ndarray,
        groups: np.ndarray,
        clients: int,
        alpha: float,
        stream: np.random.Generator,
    ) -> np.ndarray:
        """Each row's client, `[rows]`.

        `classes` and `groups` `[rows]`: the pair of label and groups, and the group by the first sensitive attribute.
        """
        if self.shares and len(self.shares) != clients:
            raise UserError(f"partition is '{self.written}', for {len(self.shares)} clients, not {clients}")
        if self.kind == "column":
            values = silos(table, self.column)
            count = values.max() + 1
            if clients > count:
                raise UserError(f"partition is '{self.written}', which has {count} silos for {clients} clients")
            return partitions.silos(values, clients)
        if self.kind == "shares":
            return partitions.by_class(np.zeros(len(table.label)), np.array([self.shares]), stream)
        if self.kind == "rule":
            fulfils = tables.groups(table, tables.split_rule(self.rule)[0], self.rule).codes == 1
            return partitions.by_class(fulfils.astype(int), np.array([self.others, self.shares]), stream)
        if self.kind == "dirichlet-label":
            return partitions.dirichlet(table.label, clients, alpha, stream)
        if self.kind == "dirichlet-group":
            return partitions.dirichlet(groups, clients, alpha, stream)
        if self.kind == "stratified":
            return partitions.stratified(classes, clients, stream)
        return partitions.at_random(len(table.label), clients, stream)


def silos(table: LabelledTable, column: str) -> np.ndarray:
    """The position of each row's value among the column's values, a missing one being one of them, `[rows]`."""
    import pandas

    codes, values = pandas.factorize(table.column(column), sort=True)
    return np.where(codes < 0, len(values), codes)


def _shares(text: str, partition: str, example: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = ()
    if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise UserError(f"partition is '{partition}'; shares are positive and add up to 1, as in {example}")
    return shares
