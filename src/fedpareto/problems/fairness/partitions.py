"""How a user names a partition of a table: by its kind, and by the column, the rule or the shares that belong to it."""

from __future__ import annotations

from dataclasses import dataclass

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
