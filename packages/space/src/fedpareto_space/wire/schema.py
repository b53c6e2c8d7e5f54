"""Records: frozen dataclasses whose fields have kinds, which say how they are checked and written as CBOR and YAML.

A field is annotated with its kind: `steps: Annotated[int, Whole(1)]`. On the wire a record is a map whose keys are the
numbers of its fields, in the order of the class, from 1. One of several forms of a row is an array: its code, then its
fields.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform, get_type_hints

from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.wire.kinds import Kind, Maybe, shown
from fedpareto_space.wire.refusals import ProtocolError, Refusal

R = TypeVar("R", bound="Record")


@dataclass(frozen=True)
class Entry:
    """A field of a record: its number on the wire, its name and its kind."""

    number: int
    name: str
    kind: Kind
    is_needed: bool
    """The field has no default. On the wire every field is written, unless its value is None."""

    @functools.cached_property
    def label(self) -> str:
        return self.name.replace("_", "-")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record:
    """Base of frozen dataclasses whose fields have kinds: every subclass becomes one, whose constructor checks them."""

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def __post_init__(self) -> None:
        for entry in entries(type(self)):
            try:
                value = entry.kind.check(getattr(self, entry.name))
            except ProtocolError as problem:
                problem.what = f"{entry.label}: {problem.what}"
                raise
            object.__setattr__(self, entry.name, value)
        self.must_be_consistent()

    def must_be_consistent(self) -> None:
        """Refuses fields that contradict each other."""


def entries(cls: type[Record]) -> tuple[Entry, ...]:
    """The fields of a record that have a kind, numbered from 1."""
    return _entries(cls)  # type: ignore[arg-type]  # A class is hashable, whatever its instances are.


@functools.cache
def _entries(cls: Any) -> tuple[Entry, ...]:
    hints = get_type_hints(cls, include_extras=True)
    found = [
        (one.name, kind, one.default is MISSING and one.default_factory is MISSING)
        for one in fields(cls)
        for kind in getattr(hints[one.name], "__metadata__", ())
        if isinstance(kind, Kind)
    ]
    return tuple(Entry(number, *parts) for number, parts in enumerate(found, start=1))


class within:  # It reads as a word: with within("steps").
    """Puts a field's name before what is refused inside."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, ProtocolError):
            problem.what = f"{self.name}: {problem.what}"
        elif isinstance(problem, UserError):
            raise UserError(f"{self.name}: {problem}") from None


@dataclass(frozen=True)
class Struct(Kind):
    """A record inside another."""

    cls: type[Record]

    def check(self, value: Any) -> Record:
        if not isinstance(value, self.cls):
            raise self._refuse(value)
        return value

    def says(self) -> str:
        return f"a record with {', '.join(entry.label for entry in entries(self.cls))}"

    def to_wire(self, value: Record) -> dict[int, Any]:
        return to_wire(value)

    def from_wire(self, data: Any) -> Record:
        return from_wire(self.cls, data)

    def to_plain(self, value: Record) -> dict[str, Any]:
        return to_plain(value)

    def from_plain(self, plain: Any) -> Record:
        return from_plain(self.cls, plain)


def to_wire(record: Record) -> dict[int, Any]:
    """A record as a map; a field without a value is left out."""
    values = ((entry, getattr(record, entry.name)) for entry in entries(type(record)))
    return {entry.number: entry.kind.to_wire(value) for entry, value in values if value is not None}


def from_wire(cls: type[R], data: Any) -> R:
    """The other way: every field that must be there is, and no other."""
    return cls(**values_of(cls, data))


def values_of(cls: type[Record], data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ProtocolError(Refusal.WRONG_TYPE, f"{shown(data)} is not a map")
    known = entries(cls)
    if unknown := data.keys() - range(1, len(known) + 1):
        raise ProtocolError(Refusal.UNKNOWN_KEY, f"key {min(unknown, key=str)!r:.40} is unknown")
    values: dict[str, Any] = {}
    for entry in known:
        if entry.number not in data:
            if not isinstance(entry.kind, Maybe):
                raise ProtocolError(Refusal.MISSING, f"key {entry.number} ({entry.label}) is missing")
            values[entry.name] = None
            continue
        try:
            if data[entry.number] is None:
                raise ProtocolError(Refusal.FORBIDDEN, "a field without a value is left out, not null")
            values[entry.name] = entry.kind.from_wire(data[entry.number])
        except ProtocolError as problem:
            problem.what = f"{entry.label}: {problem.what}"
            raise
    return values


def to_plain(record: Record) -> dict[str, Any]:
    return {entry.label: entry.kind.to_plain(getattr(record, entry.name)) for entry in entries(type(record))}


def from_plain(cls: type[R], plain: Any) -> R:
    """The other way; a field that has a default may be left out."""
    if not isinstance(plain, Mapping):
        raise UserError(f"{shown(plain)} is not a group of values by name")
    known = {entry.label: entry for entry in entries(cls)}
    for name in plain:
        if name not in known:
            raise UnknownName("field", str(name), known)
    values = {}
    for label, entry in known.items():
        if label in plain:
            with within(label):
                values[entry.name] = entry.kind.from_plain(plain[label])
        elif entry.is_needed:
            raise UserError(f"{label} is missing; it is {entry.kind.says()}")
    return cls(**values)


# -- forms ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneOf(Kind):
    """One of several forms, each a record; on the wire an array: the form's code, then its fields.

    In YAML a form without fields is its name, one with a single field is `name: value`, others are `name: {…}`.
    """

    forms: tuple[tuple[str, type[Record]], ...]

    def check(self, value: Any) -> Any:
        if not isinstance(value, tuple(cls for _, cls in self.forms)):
            raise self._refuse(value)
        return value

    def says(self) -> str:
        return f"one of {', '.join(name for name, _ in self.forms)}"

    def code(self, value: Record) -> int:
        return next(code for code, (_, cls) in enumerate(self.forms) if type(value) is cls)

    def to_wire(self, value: Record) -> list[Any]:
        return [
            self.code(value),
            *(entry.kind.to_wire(getattr(value, entry.name)) for entry in entries(type(value))),
        ]

    def from_wire(self, data: Any) -> Record:
        if not isinstance(data, list) or not data or isinstance(data[0], bool) or not isinstance(data[0], int):
            raise self._refuse(data)
        if not 0 <= data[0] < len(self.forms):
            raise ProtocolError(Refusal.NOT_UNDERSTOOD, f"code {data[0]} is not {self.says()}")
        name, cls = self.forms[data[0]]
        known = entries(cls)
        if len(data) != 1 + len(known):
            code = Refusal.MISSING if len(data) <= len(known) else Refusal.UNKNOWN_KEY
            raise ProtocolError(code, f"{name} has {len(known)} values, not {len(data) - 1}")
        with within(name):
            values = zip(known, data[1:], strict=True)
            return cls(**{entry.name: entry.kind.from_wire(item) for entry, item in values})

    def to_plain(self, value: Record) -> Any:
        name, known = self.forms[self.code(value)][0], entries(type(value))
        if not known:
            return name
        if len(known) == 1:
            return {name: known[0].kind.to_plain(getattr(value, known[0].name))}
        return {name: to_plain(value)}

    def from_plain(self, plain: Any) -> Record:
        name, values = (plain, None) if isinstance(plain, str) else _only(plain, self.says())
        known = dict(self.forms)
        if name not in known:
            raise UnknownName("form", name, known)
        cls = known[name]
        with within(name):
            if not entries(cls):
                if values is not None:
                    raise UserError(f"it has no values, and {shown(values)} is given")
                return cls()
            if len(entries(cls)) == 1:
                (entry,) = entries(cls)
                return cls(**{entry.name: entry.kind.from_plain(values)})
            return from_plain(cls, values)


def _only(plain: Any, says: str) -> tuple[str, Any]:
    if not isinstance(plain, Mapping) or len(plain) != 1 or not all(isinstance(name, str) for name in plain):
        raise UserError(f"{shown(plain)} is not {says}")
    ((name, value),) = plain.items()
    return name, value
