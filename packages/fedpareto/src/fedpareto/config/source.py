"""The docstrings under the fields of a dataclass, read from its source: they are the help texts of parameters."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
from collections.abc import Mapping
from itertools import pairwise


def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field of a dataclass, read from its source; a subclass's own comes first."""
    docs: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if dataclasses.is_dataclass(owner):
            docs |= _own_field_docs(owner)
    return docs


@functools.cache
def _own_field_docs(owner: type) -> Mapping[str, str]:
    docs: dict[str, str] = {}
    try:
        lines, before_it = inspect.findsource(owner)
        statements = _classes("".join(lines)).get(before_it + 1, [])
    except (OSError, SyntaxError):  # Source may be missing, for a class typed at a prompt.
        return docs
    for before, after in pairwise(statements):
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            continue
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            docs[before.target.id] = " ".join(str(after.value.value).split())
    return docs


@functools.lru_cache(maxsize=16)
def _classes(source: str) -> dict[int, list[ast.stmt]]:
    """The bodies of all classes in a file, by the line on which each begins, with its decorators."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return {min([node.lineno, *(one.lineno for one in node.decorator_list)]): node.body for node in found}
