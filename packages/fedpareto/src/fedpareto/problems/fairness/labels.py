"""Choice of the value of a label that counts as 1, and why: the meaning of a prediction must be clear."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OPPOSITES = (
    ("0", "1"),
    ("-1", "1"),
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("f", "t"),
    ("-", "+"),
    ("negative", "positive"),
    ("neg", "pos"),
    ("bad", "good"),
    ("low", "high"),
    ("fail", "pass"),
    ("failed", "passed"),
    ("failure", "success"),
    ("loss", "win"),
    ("lost", "won"),
    ("rejected", "accepted"),
    ("rejected", "approved"),
    ("refused", "accepted"),
    ("denied", "approved"),
    ("denied", "granted"),
    ("absent", "present"),
    ("off", "on"),
)
"""Pairs of values with a usual meaning: the second is positive."""


@dataclass(frozen=True)
class Choice:
    """The value of a label that counts as 1."""

    value: Any
    """The value as it is in the column."""
    why: str
    is_plain: bool
    """True if the user, or the values themselves, make it clear; else it is a convention to be reported."""


def as_text(value: Any) -> str:
    """A value as a user would write it."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def choose(values: Sequence[Any]) -> Choice:
    """Choose the positive one of a label's two values in ascending order."""
    words = [as_text(value).strip().lower() for value in values]
    for negative, positive in OPPOSITES:
        if sorted(words) == sorted((negative, positive)):
            return Choice(values[words.index(positive)], f"of the usual meaning of {negative} and {positive}", True)
    without = [re.sub(r"^(not?|non|un)[ _-]?", "", word) for word in words]
    if without[0] == without[1] != "":
        positive = min(words, key=len)
        return Choice(values[words.index(positive)], "the other one is its negation", True)
    signs = [word[:1] for word in words]
    if sorted(signs) in (["<", ">"], ["≤", ">"], ["<", "≥"], [">", "≤"]):
        return Choice(values[next(i for i, sign in enumerate(signs) if sign in ">≥")], "it is the larger one", True)
    return Choice(values[-1], "it comes last in ascending order, and neither value has a usual meaning", False)
