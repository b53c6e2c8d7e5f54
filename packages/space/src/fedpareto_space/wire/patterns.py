"""Abilities of a party, written down: patterns that a row's value fits or does not.

A pattern is `any`, a value, a list of patterns one of which fits, `{least: …, most: …}` for a number, `{each: …}` for
every entry of a list, or a group of fields by name, each with its pattern; other fields may be anything. The name of a
form fits it whatever its fields are: `steps` fits every `{steps: n}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.wire.kinds import Anything, Kind, Later, Many, Maybe, Parameters, Real, Whole, shown
from fedpareto_space.wire.schema import Entry, OneOf, Struct, entries, within

ANY = "any"
BOUNDS = {"least", "most"}
EACH = "each"


def read(kind: Kind, pattern: Any) -> Any:
    """A pattern for values of this kind, in one form; UserError names what does not exist."""
    if pattern == ANY:
        return ANY
    if isinstance(kind, Later):
        return read(kind.of(), pattern)
    if isinstance(pattern, list):
        if not pattern:
            raise UserError("an empty list of patterns fits nothing")
        return [read(kind, one) for one in pattern]
    if isinstance(kind, Maybe):
        return None if pattern is None else read(kind.of, pattern)
    if isinstance(pattern, Mapping):
        return _group(kind, pattern)
    if isinstance(kind, OneOf) and isinstance(pattern, str):
        return _named(pattern, dict(kind.forms), "form") and pattern
    if isinstance(kind, Many | Struct | OneOf | Parameters):
        raise UserError(f"{shown(pattern)} is no pattern for {kind.says()}")
    value = kind.check(kind.from_plain(pattern))
    return kind.to_plain(value)


def _group(kind: Kind, pattern: Mapping[str, Any]) -> Any:
    if pattern and pattern.keys() <= BOUNDS:
        if not isinstance(kind, Whole | Real | Anything):
            raise UserError(f"{' and '.join(pattern)} are for numbers, not for {kind.says()}")
        return {name: Real().check(bound) for name, bound in pattern.items()}
    if isinstance(kind, Many):
        if set(pattern) != {EACH}:
            raise UserError(f"{shown(dict(pattern))} is no pattern for a list; write {{each: …}}")
        return {EACH: read(kind.of, pattern[EACH])}
    if isinstance(kind, Struct):
        return _fields(entries(kind.cls), pattern)
    if isinstance(kind, OneOf):
        return _form(kind, pattern)
    if isinstance(kind, Parameters):
        return {str(name): read(Anything(), inside) for name, inside in pattern.items()}
    right = "; right is, say, {least: 1, most: 500}" if isinstance(kind, Whole | Real) else ""
    raise UserError(f"{shown(dict(pattern))} is no pattern for {kind.says()}{right}")


def _form(kind: OneOf, pattern: Mapping[str, Any]) -> dict[str, Any]:
    if len(pattern) != 1:
        raise UserError(f"{shown(dict(pattern))} has several forms; write them as a list")
    ((name, inside),) = pattern.items()
    known = entries(_named(name, dict(kind.forms), "form"))
    if not known:
        raise UserError(f"{name} has no fields")
    with within(name):
        return {name: read(known[0].kind, inside) if len(known) == 1 else _read_fields(known, inside)}


def _read_fields(known: tuple[Entry, ...], pattern: Any) -> Any:
    if pattern == ANY:
        return ANY
    if not isinstance(pattern, Mapping):
        raise UserError(f"{shown(pattern)} is not a group of patterns by name")
    return _fields(known, pattern)


def _fields(known: tuple[Entry, ...], pattern: Mapping[str, Any]) -> dict[str, Any]:
    by_label = {entry.label: entry.kind for entry in known}
    found = {}
    for name, inside in pattern.items():
        kind = _named(name, by_label, "field")
        with within(name):
            found[name] = read(kind, inside)
    return found


def _named(name: Any, known: Mapping[str, Any], what: str) -> Any:
    if name not in known:
        raise UnknownName(what, str(name), known)
    return known[name]


def fits(pattern: Any, value: Any) -> bool:
    if pattern == ANY:
        return True
    if isinstance(pattern, list):
        return any(fits(one, value) for one in pattern)
    if isinstance(pattern, Mapping):
        return _fits_group(pattern, value)
    if isinstance(pattern, str) and isinstance(value, Mapping):
        return list(value) == [pattern]
    return type(pattern) is type(value) and bool(pattern == value)


def _fits_group(pattern: Mapping[str, Any], value: Any) -> bool:
    if pattern and pattern.keys() <= BOUNDS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return bool(pattern.get("least", value) <= value <= pattern.get("most", value))
    if set(pattern) == {EACH}:
        return isinstance(value, list) and all(fits(pattern[EACH], one) for one in value)
    if not isinstance(value, Mapping):
        return False
    return all(name in value and fits(inside, value[name]) for name, inside in pattern.items())
