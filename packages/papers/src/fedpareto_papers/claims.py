"""What a paper concludes from its numbers, and whether it holds on ours.

A claim is checked on the values that there are; missing ones are named, and never count for or against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "holds in part", "does not hold", "cannot be judged"]


@dataclass(frozen=True)
class Claim:
    """A conclusion of a paper and our verdict."""

    name: str
    statement: str
    where: str
    """The section in which it says so."""
    verdict: Verdict
    detail: str

    def __str__(self) -> str:
        return f"Claim (section {self.where}): {self.statement} Verdict: {self.verdict.upper()}. {self.detail}."


@dataclass(frozen=True)
class Part:
    """One comparison of a claim."""

    where: str
    holds: bool | None
    """None if a value is missing."""
    numbers: str

    def __str__(self) -> str:
        return f"{self.where} ({self.numbers})"


def judged(what: str, parts: Sequence[Part]) -> tuple[Verdict, str]:
    """One verdict from all parts, each of which is named with its numbers."""
    groups = [
        (prefix, [str(part) for part in parts if part.holds is holds])
        for prefix, holds in (("holds in ", True), ("not in ", False), ("cannot be judged in ", None))
    ]
    listed = "; ".join(prefix + ", ".join(group) for prefix, group in groups if group)
    known = [part.holds for part in parts if part.holds is not None]
    detail = f"{sum(known)} of {len(known)} {what}: {listed}" if known else listed
    if not known:
        return "cannot be judged", detail
    if not any(known):
        return "does not hold", detail
    return "holds" if all(known) and len(known) == len(parts) else "holds in part", detail
