"""Mistakes a user can make. The command line prints their text as one line and exits with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class UserError(ValueError):
    """Something the user gave is wrong; the message says what, where, and what would be right."""


class UnknownName(UserError):
    """A name that nothing answers to, with the closest one that exists."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        closest = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        hint = f"did you mean '{closest[0]}'?" if closest else f"known: {', '.join(names)}."
        super().__init__(f"unknown {kind} '{name}'; {hint}")


class BadPreference(UserError):
    """A preference that is not a point of the simplex of the problem's objectives."""


class DamagedFile(UserError):
    """A file that was cut short or altered after it was written."""


class QuorumLost(UserError):
    """Too few valid replies came back in a round to go on: of which run, and for each client why."""

    def __init__(self, message: str, failures: Sequence[Any] = (), run: int = 0) -> None:
        super().__init__(message)
        self.failures, self.run = tuple(failures), run
