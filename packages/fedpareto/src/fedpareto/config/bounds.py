"""Bounds of parameters as data: `lr: Annotated[float, Above(0)]`. Checks, forms and help texts read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

from fedpareto.config.errors import UserError

LARGEST = 10**300
"""Largest whole number that is shown as a float."""


@dataclass(frozen=True)
class Bounds:
    """The numbers that a parameter may be: from `least` to `most`, and less than `below`."""

    least: float = -math.inf
    most: float = math.inf
    below: float = math.inf
    """Upper end, itself excluded: a number is finite, unless it is in `besides`."""
    is_open: bool = False
    """True if `least` itself is excluded."""
    what: str = ""
    """Noun for messages, such as "a share"."""
    besides: tuple[float, ...] = ()
    """Values that are allowed, too."""

    def holds(self, value: Any) -> bool:
        """Return True if a number is within the bounds; not-a-number never is."""
        above = self.least < value if self.is_open else self.least <= value
        return bool(value in self.besides or (above and value <= self.most and value < self.below))

    def __str__(self) -> str:
        ends = [
            f"{'above' if self.is_open else 'at least'} {number(self.least)}" if self.least > -math.inf else "",
            f"at most {number(self.most)}" if self.most < math.inf else "",
            f"below {number(self.below)}" if self.below < math.inf else "",
        ]
        within = " and ".join(filter(None, ends)) or "a finite number"
        return ", or ".join([f"{self.what} {within}".strip(), *map(number, self.besides)])


def Above(
    least: float, most: float = math.inf, what: str = "", *, below: float = math.inf, besides: tuple[float, ...] = ()
) -> Bounds:
    """Greater than `least`, and finite."""
    return Bounds(least, most, below, is_open=True, what=what, besides=besides)


def AtLeast(
    least: float, most: float = math.inf, what: str = "", *, below: float = math.inf, besides: tuple[float, ...] = ()
) -> Bounds:
    """`least` or more, and finite."""
    return Bounds(least, most, below, what=what, besides=besides)


Finite = Annotated[float, Above(-math.inf)]
Positive = Annotated[float, Above(0)]
NotNegative = Annotated[float, AtLeast(0)]
Endless = Annotated[float, Above(0, besides=(math.inf,))]
"""A positive number; infinity is no limit."""
Share = Annotated[float, AtLeast(0, 1)]
PositiveShare = Annotated[float, Above(0, 1)]
OpenShare = Annotated[float, Above(0, below=1)]
ShareBelowOne = Annotated[float, AtLeast(0, below=1)]
Whole = Annotated[int, AtLeast(0)]
Count = Annotated[int, AtLeast(1)]


def number(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= LARGEST:
        return "a number with so many digits"
    if float(value).is_integer() and abs(value) < 10**15:
        return f"{int(value):,}"
    return f"{value:.4g}"


@cache
def bounds_of(cls: type) -> Mapping[str, Bounds]:
    """The bounds of a dataclass's fields. A field that a subclass only gives another default keeps its bounds."""
    found = {name: bounds for base in reversed(cls.__bases__) for name, bounds in bounds_of(base).items()}
    own = {name: _within(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
    return found | {name: bounds for name, bounds in own.items() if bounds is not None}


def _within(hint: Any) -> Bounds | None:
    """The bounds in a type such as `tuple[Share, ...]` or `Count | None`."""
    return hint if isinstance(hint, Bounds) else next(filter(None, map(_within, get_args(hint))), None)


def check(cls: type, name: str, value: Any, place: str = "") -> None:
    """Raises UserError, which begins with `place`, if a field's value is out of its bounds.

    Of a tuple, each entry is checked; None is a value that is not given.
    """
    bounds = bounds_of(cls).get(name)
    values = value if isinstance(value, tuple) else (value,)
    for one in values:
        if bounds is not None and one is not None and not bounds.holds(one):
            wrong = f"has {number(one)}; each is" if len(values) > 1 else f"is {number(one)}; it is"
            raise UserError(f"{place}{name} {wrong} {bounds}")


class Bounded:
    """A dataclass whose fields are within their bounds: they are checked when an instance is made.

    A subclass with more rules calls `super().__post_init__()` first. The types of fields are names of its module, also
    when it runs: not only under TYPE_CHECKING.
    """

    prefix: ClassVar[str] = ""
    """Beginning of messages, such as "engine: "."""

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name in bounds_of(cls):
            check(cls, name, getattr(self, name), self.prefix)
