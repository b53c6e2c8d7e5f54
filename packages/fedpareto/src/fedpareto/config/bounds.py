"""Bounds of parameters as data: `lr: Annotated[float, Above(0)]`. Checks, forms and help texts read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fedpareto.config.errors import UserError

LARGEST = 10**300
"""Up to which a whole number can be shown as a float."""


@dataclass(frozen=True)
class Bounds:
    """The numbers that a parameter may be: from `least` to `most`, or strictly `above` and `below` them."""

    least: float = -math.inf
    most: float = math.inf
    is_open: bool = False
    """Whether `least` itself is excluded."""
    what: str = ""
    """Noun for messages, such as "a share"."""
    besides: tuple[float, ...] = ()
    """Values that are allowed, too."""

    def holds(self, value: Any) -> bool:
        """Whether a number is within the bounds."""
        if value in self.besides:
            return True
        above = self.least < value if self.is_open else self.least <= value
        return bool(above and value <= self.most and (value < math.inf or self.most < math.inf))

    def __str__(self) -> str:
        low = f"{'above' if self.is_open else 'at least'} {number(self.least)}" if self.least > -math.inf else ""
        high = f"at most {number(self.most)}" if self.most < math.inf else ""
        return " ".join(part for part in (self.what, " and ".join(part for part in (low, high) if part)) if part)


def Above(least: float, most: float = math.inf, what: str = "") -> Bounds:
    """Greater than `least`, and finite."""
    return Bounds(least, most, is_open=True, what=what)


def AtLeast(least: float, most: float = math.inf, what: str = "") -> Bounds:
    """`least` or more, and finite."""
    return Bounds(least, most, what=what)


def number(value: Any) -> str:
    """A number as a message shows it."""
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "a number with so many digits"
    if float(value).is_integer() and abs(value) < 10**15:
        return f"{int(value):,}"
    return f"{value:.4g}"


@cache
def bounds_of(cls: type) -> Mapping[str, Bounds]:
    """The bounds of a dataclass's fields."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        name: extra
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
        for extra in get_args(hint)[1:]
        if isinstance(extra, Bounds)
    }


def check(cls: type, name: str, value: Any) -> None:
    """Raises UserError if a field's value is out of its bounds."""
    bounds = bounds_of(cls).get(name)
    if bounds is not None and not bounds.holds(value):
        raise UserError(f"{name} is {number(value)}; it is {bounds}")
