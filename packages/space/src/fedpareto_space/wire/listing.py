"""A message field by field, with its numbers on the wire and the rows that it is about: what `space inspect` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedpareto_space.wire import payload
from fedpareto_space.wire.messages import Global, Message, Reject, Update
from fedpareto_space.wire.refusals import NOWHERE
from fedpareto_space.wire.schema import entries
from fedpareto_space.wire.terms import BY_PLACE, ROWS, Alternatives, Terms, listed


@dataclass(frozen=True)
class Line:
    """A field of a message."""

    number: str
    """Key of the field on the wire; of a row, its place: 6.2.3 is row 3 of table 6.2."""
    name: str
    value: Any
    """As YAML would write it."""
    note: str = ""


def lines(message: Message) -> list[Line]:
    head = [
        Line("", "type", message.type.name),
        Line("", "version", ".".join(map(str, message.version))),
        Line("", "session", message.session.hex()),
        Line("", "sequence", message.sequence),
        Line("", "agreement", message.agreement.hex() or None),
    ]
    return [
        *head,
        *(line for entry in entries(type(message)) for line in _lines(message, entry)),
        *_extensions(message),
    ]


def _lines(message: Message, entry: Any) -> list[Line]:
    value, number = getattr(message, entry.name), str(entry.number)
    if isinstance(value, Terms | Alternatives):
        return [Line(number, entry.label, None), *_rows(value)]
    if entry.name == "payload":
        return [Line(number, entry.label, f"{len(value)} bytes", _digest_of(message))]
    if isinstance(value, int) and entry.name == "row" and isinstance(message, Reject) and message.place != NOWHERE:
        return [Line(number, entry.label, value, BY_PLACE[message.place].title)]
    return [] if value is None else [Line(number, entry.label, entry.kind.to_plain(value))]


def _rows(value: Terms | Alternatives) -> list[Line]:
    found = []
    for row in ROWS:
        kind = listed(row) if isinstance(value, Alternatives) else row.kind
        place = f"6.{row.place[0]}.{row.place[1]}"
        found.append(Line(place, f"{row.side}: {row.name}", kind.to_plain(value[row.place]), row.title))
    return found


def _digest_of(message: Message) -> str:
    if not isinstance(message, Update | Global):
        return ""
    fits = payload.short(message.payload) == message.payload_digest
    return "it has its digest" if fits else "it does not have its digest: it is damaged"


def _extensions(message: Message) -> list[Line]:
    return [
        Line("0", f"extension {one.number}", one.data.hex(), "critical" if one.critical else "not critical")
        for one in message.extensions
    ]
