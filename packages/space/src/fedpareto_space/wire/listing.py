"""Listings of a message field by field, and of what an implementation supports: `space inspect`, `space conformance`.

Engineers of space links know the second as a PICS, a protocol implementation conformance statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto_space.wire import cbor, patterns, payload
from fedpareto_space.wire.kinds import Maybe, Word, spelled
from fedpareto_space.wire.messages import MAJOR, MESSAGES, MINOR, Global, Message, Reject, Update
from fedpareto_space.wire.negotiation import Capabilities
from fedpareto_space.wire.refusals import NOWHERE
from fedpareto_space.wire.schema import OneOf, Struct, entries
from fedpareto_space.wire.terms import BY_PLACE, MOST_ALTERNATIVES, PAIRS, ROWS, Alternatives, Row, Terms, listed

CODECS = (
    *("float32", "float16", "bfloat16", "int8", "int4", "top10%-delta"),
    *("float32-delta", "float16-delta", "bfloat16-delta", "int8-delta", "int4-delta"),
    *("int8-delta+zstd", "int8-delta+none"),
)


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


# -- the conformance statement, from this package's own tables ---------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A line of the statement."""

    number: str
    name: str
    status: str
    """M: an implementation must have it; O: it may."""
    support: str
    """yes, no, or what of it."""


def statement(capabilities: Capabilities) -> list[Item]:
    return [*_encoding(), *_messages(), *_supported(capabilities), *_codecs(), *_security()]


def _encoding() -> list[Item]:
    return [
        Item("E.1", "deterministic CBOR (RFC 8949, 4.2); every other encoding is refused by name", "M", "yes"),
        Item("E.2", f"arrays and maps at most {cbor.DEEPEST} deep, at most {cbor.MOST_ITEMS:,} values", "M", "yes"),
        Item("E.3", f"version {MAJOR}.{MINOR}; another major version is refused, a later minor one read", "M", "yes"),
        Item("E.4", "an unknown critical extension is refused with its row, any other is ignored", "M", "yes"),
        Item("E.5", "extensions of its own", "O", "none"),
        Item("E.6", f"negotiation: the proposer's order decides, at most {MOST_ALTERNATIVES} alternatives", "M", "yes"),
        Item("E.7", "one COUNTER", "O", "yes"),
        Item("E.8", f"{len(PAIRS)} pairs of rows that must fit each other", "M", "yes"),
    ]


def _messages() -> list[Item]:
    return [
        Item(f"M.{int(kind)}", f"{kind.name}: {(cls.__doc__ or '').splitlines()[0]}", "M", "sent and received")
        for kind, cls in MESSAGES.items()
    ]


def _supported(capabilities: Capabilities) -> list[Item]:
    found = []
    for row in ROWS:
        number, pattern = f"6.{row.place[0]}.{row.place[1]}", capabilities.accepts[row.place]
        found.append(Item(number, f"{row.title} ({row.side}: {row.name})", "M", "yes"))
        found += [Item(f"{number} {name}", what, "O", support) for name, what, support in _parts(row, pattern)]
    return found


def _parts(row: Row, pattern: Any) -> list[tuple[str, str, str]]:
    """The forms of a row, or its fields that are words, each with what of it is supported."""
    if isinstance(row.kind, OneOf):
        return [(name, _about(cls), _form(pattern, name)) for name, cls in row.kind.forms]
    if not isinstance(row.kind, Struct):
        return []
    found = []
    for entry in entries(row.kind.cls):
        kind = entry.kind.of if isinstance(entry.kind, Maybe) else entry.kind
        if isinstance(kind, Word):
            words = [spelled(word) for word in kind.words]
            can = [word for word in words if patterns.fits(_inside(pattern, entry.label), word)]
            found.append((entry.label, ", ".join(words), "yes" if can == words else ", ".join(can) or "no"))
    return found


def _about(cls: type) -> str:
    return (cls.__doc__ or "").splitlines()[0]


def _form(pattern: Any, name: str) -> str:
    if isinstance(pattern, list):
        return next((found for one in pattern if (found := _form(one, name)) != "no"), "no")
    if isinstance(pattern, Mapping):
        return "within bounds" if name in pattern else "no"
    return "yes" if pattern in (patterns.ANY, name) else "no"


def _inside(pattern: Any, label: str) -> Any:
    if isinstance(pattern, list):
        return [_inside(one, label) for one in pattern]
    return pattern.get(label, patterns.ANY) if isinstance(pattern, Mapping) else patterns.ANY


def _codecs() -> list[Item]:
    return [Item(f"C.{number}", f"codec {name}", "O", _can(name)) for number, name in enumerate(CODECS, start=1)]


def _can(codec: str) -> str:
    try:
        Codec.parse(codec)
    except UserError:
        return "no"
    return "yes"


def _security() -> list[Item]:
    return [
        Item("S.1", "SHA-256 of a server's key in row 2, and in GLOBAL: compared", "M", "yes"),
        Item("S.2", "signatures of messages", "O", "no: an extension may carry them"),
        Item("S.3", "certified statement in OFFER: demanded or not", "O", "carried, not read"),
        Item("S.4", "security of the link (SDLS, BPSec)", "O", "no: below this protocol"),
    ]
