"""Hyper-parameters are frozen dataclasses: this builds one from user input, with clear messages for what does not
fit.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from fedpareto.config.errors import UnknownName, UserError

MOST_BITS = 1000
"""Most bits of a whole number: with more, it is no float."""

T = TypeVar("T")

_hints = functools.cache(get_type_hints)


def build(cls: type[T], values: Mapping[str, Any], what: str, locate: Callable[[str], str] = lambda name: "") -> T:
    """An instance of the dataclass `cls` from names and values.

    In messages, `what` names it ("algorithm fedpref") and `locate` gives a parameter's place ("spec.yaml, line 3: ").
    """
    hints = _hints(cls)  # type: ignore[arg-type]  # A class is hashable, whatever its instances are.
    known = field_names(cls)
    ready = {}
    for name, value in values.items():
        try:
            if name not in known:
                raise UnknownName(f"parameter of {what}", name, known)
            ready[name] = convert(value, hints[name], f"{what}: {name}")
        except UserError as problem:
            raise UserError(f"{locate(name)}{problem}") from None
    return cls(**ready)


def field_names(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.init]


def to_plain(instance: Any) -> dict[str, Any]:
    """The parameters and their values, as they are written to a file."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name in field_names(instance)
        for value in [getattr(instance, name)]
    }


def earlier(before: T, now: T) -> T:
    """A field with the default `now`; a run that was recorded before there was this field has the value `before`."""
    found: T = dataclasses.field(default=now, metadata={"before": before})
    return found


def as_recorded(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters in the record of a run, with those that came later as they were then, see `earlier`."""
    came = {field.name: field.metadata["before"] for field in dataclasses.fields(cls) if "before" in field.metadata}
    return {**came, **values}


def parse_value(text: str) -> Any:
    """A value from the command line: number, list, true/false/none, or the text itself."""
    lowered = text.strip().lower()
    if lowered in ("true", "false", "none", "null"):
        return {"true": True, "false": False}.get(lowered)
    if lowered in ("inf", "-inf"):
        return float(lowered)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def must_be_usable(value: Any) -> None:
    """Raises UserError if a plain value holds what would only be noticed far from here: a number that is no float, or a
    text that no file and no path may hold.
    """
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple | set):
        for item in value:
            must_be_usable(item)
    elif isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise UserError("a whole number with so many digits is too large")
    elif isinstance(value, str) and "\0" in value:
        raise UserError(f"the text '{value[:40]}' holds a null character".replace("\0", "\\0"))


def convert(value: Any, hint: Any, where: str) -> Any:
    """`value` as the type `hint`, without guessing: 1 is a fine float, "fast" is not."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value is None and "none" in arguments:  # The command line cannot tell the word "none" from None.
            return "none"
        if value not in arguments:
            if isinstance(value, str):
                raise UnknownName(f"value of {where}", value, [str(choice) for choice in arguments])
            raise UserError(f"{where} is {value!r}; it is one of {', '.join(map(str, arguments))}")
        return value
    if origin in (Union, types.UnionType):
        return None if value is None else convert(value, next(a for a in arguments if a is not type(None)), where)
    if origin in (tuple, list, dict) or dataclasses.is_dataclass(hint):
        return _parts(value, hint, where)
    if hint is float and (number := _as_float(value, where)) is not None:
        return number
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if hint in (int, str, bool) and type(value) is hint:
        return value
    if hint is str and isinstance(value, int | float):
        return str(value)
    wanted = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}.get(hint)
    if wanted is None:
        return value
    raise UserError(f"{where} is {value!r}; it should be {wanted}")


def _parts(value: Any, hint: Any, where: str) -> Any:
    """A tuple, a list, a dict or a dataclass, each of its entries converted."""
    origin, of = get_origin(hint), get_args(hint)
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        if Ellipsis not in of and len(items) != len(of):
            raise UserError(f"{where} is {value!r}; it should be {len(of)} values")
        return tuple(convert(item, of[0], where) for item in items)
    if origin is list and isinstance(value, list):
        return [convert(item, of[0], where) for item in value]
    if origin is None and isinstance(value, Mapping):
        return build(hint, value, where)
    if origin is dict and isinstance(value, dict):
        return {convert(key, of[0], where): convert(one, of[1], where) for key, one in value.items()}
    if isinstance(hint, type) and isinstance(value, hint):
        return value
    wanted = "a list" if origin is list else "a group of values by name"
    raise UserError(f"{where} is {value!r}; it should be {wanted}")


def _as_float(value: Any, where: str) -> float | None:
    """A number, or how YAML and the command line write infinity; None: neither."""
    if isinstance(value, str) and value.strip().lower() in (".inf", "-.inf", "inf", "-inf"):
        return float(value.replace(".", ""))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:  # Of a whole number.
        raise UserError(f"{where} is too large a number") from None
