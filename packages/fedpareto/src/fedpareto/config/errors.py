"""User errors. The command line prints their text as one line and exits with code 2."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

SHORTEST_BEGINNING = 3
"""Letters of a name from which on the rest can be completed."""


STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters: a terminal obeys them instead of showing them."""


def printable(text: str) -> str:
    """A text that may be a stranger's, as a terminal can show it: what would steer it is written out."""
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


class UserError(ValueError):
    """Something the user gave is wrong; the message says what, where, and what would be right.

    It may repeat what a file holds.
    """

    at: tuple[str, ...] = ()
    """The path of the key in a spec that is wrong, if it is one: ("engine", "threads")."""

    def __str__(self) -> str:
        return printable(super().__str__())


@contextmanager
def at(*path: str) -> Iterator[None]:
    """While the value of a key is checked: an error says which key it is about, unless it knows better."""
    try:
        yield
    except UserError as problem:
        problem.at = problem.at or path
        raise


class UnknownName(UserError):
    """An unknown name, with the closest one that exists."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        meant = _closest(name, names)
        hint = f"known: {', '.join(sorted(names))}." if meant is None else f"did you mean '{meant}'?"
        super().__init__(f"unknown {kind} '{name}'; {hint}")


SYNONYMS = {"learning-rate": "lr", "learningrate": "lr", "step-size": "lr"}
"""Other common names."""


def _closest(name: str, names: Sequence[str]) -> str | None:
    """Return the same name in another spelling, else the first that begins with it, else the most similar one."""
    spelled, known = _spelling(name), {_spelling(one): one for one in reversed(names)}
    spelled = SYNONYMS.get(spelled, spelled)
    if spelled in known:
        return known[spelled]
    longer = [one for one in names if _spelling(one).startswith(spelled)]
    if longer and len(spelled) >= SHORTEST_BEGINNING:
        return longer[0]
    similar = difflib.get_close_matches(spelled, sorted(known), n=1, cutoff=0.5)
    return known[similar[0]] if similar else None


def _spelling(name: str) -> str:
    """A normalised name: FedMGDA+ and fedmgda_plus are fedmgda-plus."""
    return re.sub(r"[-_ ]+", "-", name.lower().replace("+", "-plus-")).strip("-")


class BadPreference(UserError):
    """A preference that is not a point of the simplex of the problem's objectives."""


class DamagedFile(UserError):
    """A file that was truncated or altered after it was written."""


DAMAGE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, EOFError, MemoryError)
"""Exceptions that values of wrong types, lengths and sizes make Python, numpy and torch raise; too deep a nesting is a
RuntimeError.
"""
LONGEST_REASON = 200
"""Characters of a reason, which may repeat what a file holds."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """While a file's content is used that may be damaged: whatever it raises becomes one line that names `what`."""
    try:
        yield
    except UserError:
        raise
    except DAMAGE as problem:
        raise DamagedFile(f"{what} is damaged: {in_words(problem)}") from None


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an OSError of the block into a UserError that says `what` failed and why: "runs cannot be written: …"."""
    try:
        yield
    except OSError as problem:
        raise UserError(f"{what}: {problem.strerror or problem}") from None


def in_words(problem: BaseException) -> str:
    """Say in one line what is wrong with a content, from the exception that it caused."""
    said = " ".join(str(problem).split())[:LONGEST_REASON]
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    if isinstance(problem, UnicodeError):
        return "it is not UTF-8 text"
    if isinstance(problem, KeyError):
        return f"it has no {said}"
    if isinstance(problem, MemoryError):
        return "it asks for more memory than there is"
    return said or type(problem).__name__


class QuorumLost(UserError):
    """Too few valid replies came back in a round to go on; it names the run, and the reason for each client."""

    def __init__(self, message: str, failures: Sequence[Any] = (), run: int = 0) -> None:
        super().__init__(message)
        self.failures, self.run = tuple(failures), run
