"""Algorithms, problems and parameters in plain values: for listings, for programs and for forms."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedpareto.config.source import field_docs

TYPES = {float: "number", int: "whole number", bool: "yes or no", str: "text"}


def algorithm(name: str, cls: Any) -> dict[str, Any]:
    """Describe an algorithm and its place in the taxonomy."""
    labels = cls.taxonomy
    return {
        "name": name,
        "about": summary(cls),
        "level": labels.level,
        "family": labels.family,
        "place": labels.place,
        "box": None if labels.box is None else labels.box.number,
        "method": labels.method,
        "objectives": labels.objectives,
        "personal": cls.personalised or "+" in name,
    }


def problem(name: str, cls: Any) -> dict[str, Any]:
    """Describe a problem with its usual parameters."""
    usual = cls()
    return {
        "name": name,
        "about": summary(cls),
        "objectives": [{"name": goal.name, "maximise": goal.maximise} for goal in usual.objectives],
        "model_size": usual.layout.size,
        "known_front": usual.known_front() is not None,
    }


def parameters(cls: type) -> list[dict[str, Any]]:
    """Name, type, default (null where one must be given) and meaning of each."""
    docs, hints = field_docs(cls), get_type_hints(cls)
    return [
        {
            "name": name,
            **type_of(hints[name]),
            "default": None if is_needed else list(default) if isinstance(default, tuple) else default,
            "needed": is_needed,
            "meaning": docs.get(name, ""),
        }
        for name, default, is_needed in fields(cls)
    ]


def fields(cls: Any) -> Iterator[tuple[str, Any, bool]]:
    """Yield each parameter's name, its default, and whether it has none."""
    for field in dataclasses.fields(cls):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        yield field.name, default, default is dataclasses.MISSING


def type_of(hint: Any) -> dict[str, Any]:
    """Name the type of a parameter, with its "choices" if there are only some."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"type": "choice", "choices": list(arguments)}
    if origin in (Union, types.UnionType):  # Of a type and None, which is "not given".
        return type_of(next(one for one in arguments if one is not type(None)))
    if origin in (tuple, list):
        return {"type": "list", "choices": None}
    return {"type": TYPES.get(hint, "anything"), "choices": None}


def summary(cls: type) -> str:
    """Return the first line of a class's documentation, or as many as its first sentence takes."""
    first, *others = [line.strip() for line in (cls.__doc__ or "").strip().partition("\n\n")[0].splitlines()]
    while others and not first.endswith("."):
        first += f" {others.pop(0)}"
    return first
