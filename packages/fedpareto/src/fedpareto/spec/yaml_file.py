"""Specs as YAML, which may come from a stranger: what is read is plain, small, and knows its lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedpareto.config import limits
from fedpareto.config.errors import DAMAGE, UserError
from fedpareto.config.files import read_bytes
from fedpareto.config.parameters import MOST_BITS

DEEPEST = 50
"""Brackets in a spec that may be open at a time."""
LONGEST_SHOWN = 40
"""Characters of a wrong value that a message shows."""


def read(
    path: Path, what: str = "spec", such_as: str = "rounds: 20"
) -> tuple[dict[str, Any], dict[tuple[str, ...], str]]:
    """The values of a file, and the line of each by its path of keys."""
    try:
        text = read_bytes(path, f"the {what} ", limits.SPEC).decode()
    except UnicodeDecodeError as problem:
        raise UserError(f"{path}, line {problem.object[: problem.start].count(10) + 1}: not UTF-8 text") from None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines = _lines(node, path)
        values = None if node is None else loader.construct_document(node)
    except UserError:
        raise
    except (yaml.YAMLError, *DAMAGE) as problem:  # PyYAML's scanner raises anything, too: "\\UFFFFFFFF" is no letter.
        raise UserError(f"{path}{_trouble(problem, text)}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path}, line 1: a {what} is a list of 'key: value' lines, such as '{such_as}'")
    return values, lines


def text_of(values: Mapping[str, Any]) -> str:
    """Plain values as the text of a file."""
    try:
        text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as problem:
        what = next((repr(arg) for arg in problem.args[1:]), "one of them")
        raise UserError(f"the run's parameters cannot be written to a file: {what} is no plain value") from None
    return text


class _Dumper(yaml.SafeDumper):
    """Writes what _Loader reads: a list that stands in two places is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _Loader(yaml.SafeLoader):
    """YAML for researchers: 1e-3 is a number, which the standard of 2005 reads as a text.

    A spec may come from a stranger. Aliases are refused: a few lines of them stand for more values than memory holds.
    """

    _composed = 0

    def fetch_more_tokens(self) -> None:
        """Limit the open brackets, with whose number PyYAML's time grows by the square."""
        super().fetch_more_tokens()
        if self.flow_level > DEEPEST:
            raise _yaml_error("it is nested too deeply", self.tokens[-1])

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise _yaml_error(f"write the value again where '*{event.anchor}' is: a spec has no aliases", event)
        self._composed += 1
        if self._composed > limits.SPEC_VALUES:
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise _yaml_error(f"it has more than {limits.SPEC_VALUES:,} values", event)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Turn whatever PyYAML's constructors raise into an error with its line."""
        try:
            value = super().construct_object(node, deep)
        except RecursionError:
            raise
        except DAMAGE:
            kind, text = node.tag.rpartition(":")[2], str(node.value)[:LONGEST_SHOWN]
            raise _yaml_error(f"'{text}' cannot be read as {kind}", node) from None
        if isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise _yaml_error("a number with so many digits is too large", node)
        return value


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$|[-+]?\.\d+[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def _yaml_error(problem: str, where: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, where.start_mark)


def _lines(node: yaml.Node | None, file: Path, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Find the line of every key in a YAML document, by path; a duplicate key is an error."""
    places: dict[tuple[str, ...], str] = {}
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here, place = (*path, str(key.value)), f"{file}, line {key.start_mark.line + 1}"
            if here in places:
                raise UserError(f"{place}: '{key.value}' is given a second time")
            places |= {here: place} | _lines(value, file, here)
    return places


def _trouble(problem: Exception, text: str) -> str:
    """Say what is wrong with a YAML text, with its line first."""
    mark, position = getattr(problem, "problem_mark", None), getattr(problem, "position", None)
    if mark is not None:
        position = mark.index
    line = text[:position].count("\n") + 1 if isinstance(position, int) else 1
    reason = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "not YAML"
    return f", line {line}: {reason}"
