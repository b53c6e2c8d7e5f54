"""Why a message is refused, by a name that both ends know and, where it applies, the row of table 6.2 or 6.3."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TypeAlias

from fedpareto.config.errors import UserError

Place: TypeAlias = tuple[int, int]
"""A row: (2, 3) is row 3 of table 6.2, (3, 1) is row 1 of table 6.3; NOWHERE is neither."""
NOWHERE: Place = (0, 0)


class Refusal(IntEnum):
    """Codes as they travel in REJECT and FAULT."""

    TRUNCATED = 1
    """The bytes end before the message does."""
    TRAILING = 2
    """Bytes follow the message."""
    NOT_SHORTEST = 3
    """A number or a length is not in its shortest form."""
    INDEFINITE = 4
    """A length is left open."""
    WRONG_ORDER = 5
    """Keys of a map are not ascending."""
    DUPLICATE_KEY = 6
    """A key of a map comes twice."""
    FORBIDDEN = 7
    """Something that the protocol never uses: a tag, a simple value, a reserved form, NaN."""
    TOO_DEEP = 8
    """Nested too deeply."""
    TOO_LARGE = 9
    """More items or a longer value than the protocol allows."""
    NOT_TEXT = 10
    """A text is not UTF-8."""
    WRONG_TYPE = 11
    """A value of another type than the field's."""
    OUT_OF_RANGE = 12
    """A value outside the field's range."""
    UNKNOWN_KEY = 13
    """A field that this version does not have."""
    MISSING = 14
    """A field or a row that must be there."""
    NOT_UNDERSTOOD = 15
    """A code of a row, a word or a message that this version does not have."""
    VERSION = 16
    """Another major version."""
    CRITICAL_EXTENSION = 17
    """An extension that must be understood and is not."""
    INCONSISTENT = 18
    """Fields that contradict each other."""
    NOT_SUPPORTED = 19
    """Understood, but this party cannot do it: nothing in a row suits both."""
    UNKNOWN_RULE = 20
    """The aggregation rule or one of its parameters is unknown to this party."""
    WRONG_AGREEMENT = 21
    """The message belongs to another agreement."""
    WRONG_DIGEST = 22
    """The content does not have the digest that the message gives."""
    NO_STATEMENT = 23
    """A certified statement is demanded and is missing."""


class ProtocolError(UserError):
    """A message or a value that is refused: the code, the row, and one line for people."""

    def __init__(
        self, code: Refusal, what: str, place: Place = NOWHERE, session: bytes = b"", sequence: int = 0
    ) -> None:
        super().__init__(what)
        self.code, self.what, self.place = code, what, place
        self.session, self.sequence = session, sequence
        """Session and number of the message, as far as they could be read: an answer names them."""

    def __str__(self) -> str:
        where = f"table 6.{self.place[0]}, row {self.place[1]}: " if self.place != NOWHERE else ""
        return f"{where}{self.what}"


@contextmanager
def at(place: Place) -> Iterator[None]:
    try:
        yield
    except ProtocolError as problem:
        if problem.place == NOWHERE:
            problem.place = place
        raise
