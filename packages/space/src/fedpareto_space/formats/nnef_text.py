"""graph.nnef, the text of a network in NNEF 1.0, written and read.

Khronos Group, "Neural Network Exchange Format", version 1.0. Only what its "flat" syntax needs is read: one graph of
operations on named tensors, without fragments of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpareto.config.errors import DamagedFile
from fedpareto.config.files import MOST_DIGITS
from fedpareto_space.formats.graph import FREE, INPUT, OUTPUT, ROWS, Graph, Shape, Step, identifier

CONSTANTS = "constant/"
"""Beginning of the labels of tensors that are no weights: no update changes them."""
NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
TOKEN = re.compile(r"\s*(?:(#[^\n]*)|('[^']*'|\"[^\"]*\")|([A-Za-z_]\w*)|(-?\d[\d.eE+-]*)|(->|[][(){}<>,;:=]))")


# -- writing -------------------------------------------------------------------------------------------------------


def to_text(graph: Graph, rows: int) -> tuple[str, dict[str, np.ndarray]]:
    """The text, and the constants that it names; it has room for one number of rows, as NNEF has no open ones."""
    return _Writer(graph, rows).text()


class _Writer:
    def __init__(self, graph: Graph, rows: int) -> None:
        self._graph, self._rows = graph, rows
        self._lines: list[str] = []
        self._same: dict[str, str] = {}
        self._constants: dict[str, np.ndarray] = {}

    def text(self) -> tuple[str, dict[str, np.ndarray]]:
        graph = self._graph
        self._lines.append(f"{INPUT} = external<scalar>(shape = {self._sizes(graph.shape)});")
        for label, shape in graph.variables.items():
            self._variable(identifier(label), shape, label)
        for name, numbers in graph.constants.items():
            self._constant(name, numbers)
        for step in graph.steps:
            inputs = [one if isinstance(one, float) else self._same.get(one, one) for one in step.inputs]
            self._step(step, inputs)
        self._lines.append(f"{OUTPUT} = copy({self._same.get(graph.output, graph.output)});")
        body = "\n".join(f"    {line}" for line in self._lines)
        return f"version 1.0;\n\ngraph network({INPUT}) -> ({OUTPUT})\n{{\n{body}\n}}\n", self._constants

    def _step(self, step: Step, inputs: Sequence[str | float]) -> None:
        """One line for each, but for what NNEF lacks."""
        attributes = dict(step.attributes)
        if step.operation == "cast":  # All numbers are scalars here.
            self._same[step.output] = str(inputs[0])
        elif step.operation == "constant":
            self._constant(step.output, np.full(self._sizes(step.shape), attributes["value"], np.float32))
        elif step.operation == "gather":
            self._chosen(step, inputs)
        elif step.operation == "concat":
            parts = ", ".join(map(str, inputs))
            self._lines.append(f"{step.output} = concat([{parts}], axis = {attributes['axis']});")
        else:
            given = ", ".join(_number(one) if isinstance(one, float) else one for one in inputs)
            named = "".join(f", {key} = {_plain(value)}" for key, value in attributes.items())
            self._lines.append(f"{step.output} = {step.operation}({given}{named});")

    def _chosen(self, step: Step, inputs: Sequence[str | float]) -> None:
        """Rows of a table, as a product with ones and zeros: NNEF 1.0 has no operation that takes an index.

        It is exact: each sum has one term that is not 0.
        """
        (table, numbers), out, count = inputs, step.output, int(step.attributes["size"])
        shape = [FREE if isinstance(size, str) else size for size in step.shape]
        self._constant(f"{out}_every", np.arange(count, dtype=np.float32)[None])
        self._lines += [
            f"{out}_which = reshape({numbers}, shape = [-1, 1]);",
            f"{out}_is = eq({out}_which, {out}_every);",
            f"{out}_one = select({out}_is, 1.0, 0.0);",
            f"{out}_found = matmul({out}_one, {table});",
            f"{out} = reshape({out}_found, shape = {shape});",
        ]

    def _constant(self, name: str, numbers: np.ndarray) -> None:
        """In a file of its own too: `constant` is an operation that not all readers know."""
        label = f"{CONSTANTS}{name}"
        self._constants[label] = numbers.astype(np.float32)
        self._variable(name, numbers.shape, label)

    def _variable(self, name: str, shape: Shape, label: str) -> None:
        self._lines.append(f"{name} = variable<scalar>(shape = {self._sizes(shape)}, label = '{label}');")

    def _sizes(self, shape: Shape) -> list[int]:
        return [self._rows if size == ROWS else int(size) for size in shape]


def _number(number: float) -> str:
    """With all its digits, and always with a point: a whole number would be an integer."""
    shown = repr(float(number))
    return shown if "." in shown or "n" in shown else shown.replace("e", ".0e")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, tuple) and len(value) == 2 and not isinstance(value[0], tuple):
        return f"({value[0]}, {value[1]})"
    return f"[{', '.join(map(_plain, value))}]" if isinstance(value, Sequence) else str(value)


# -- reading -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One assignment: tensors, the operation, and its arguments, those without a name first."""

    results: tuple[str, ...]
    operation: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(frozen=True)
class Name:
    """The name of a tensor among arguments; texts in quotes are plain texts."""

    name: str


def from_text(text: str, where: str) -> list[Line]:
    """The lines of a graph with one input, `external`, and one output, which is the last line's."""
    reader = _Reader(text, where)
    reader.words("version")
    reader.number()
    reader.words(";")
    reader.words("graph")
    reader.name()
    reader.words("(")
    given = reader.name()
    reader.words(")", "->", "(")
    answer = reader.name()
    reader.words(")", "{")
    lines = list(reader.lines())
    if not lines or lines[0].operation != "external" or lines[0].results != (given,) or lines[-1].results != (answer,):
        raise DamagedFile(f"{where}: a graph with one input, first, and one output, last, was expected")
    return lines


class _Reader:
    """Words one by one."""

    def __init__(self, text: str, where: str) -> None:
        self._where, self._words, place = where, [""][:0], 0
        text = text.rstrip()
        while place < len(text):
            found = TOKEN.match(text, place)
            if found is None:
                raise DamagedFile(f"{where}, line {text.count(chr(10), 0, place) + 1}: it is no text of NNEF")
            place = found.end()
            if found[1] is None:
                self._words.append(found[0].strip())
        self._place = 0

    def next(self) -> str:
        if self._place >= len(self._words):
            raise DamagedFile(f"{self._where} ends too early")
        self._place += 1
        return self._words[self._place - 1]

    def peek(self) -> str:
        return self._words[self._place] if self._place < len(self._words) else ""

    def words(self, *expected: str) -> None:
        for word in expected:
            found = self.next()
            if found != word:
                raise DamagedFile(f"{self._where}: '{word}' was expected, and '{found}' is there")

    def name(self) -> str:
        found = self.next()
        if not found.isidentifier():
            raise DamagedFile(f"{self._where}: a name was expected, and '{found}' is there")
        return found

    def number(self) -> float:
        found = self.next()
        if not NUMBER.fullmatch(found) or len(found) > MOST_DIGITS:
            raise DamagedFile(f"{self._where}: a number was expected, and '{found}' is there")
        return float(found) if "." in found or "e" in found.lower() else int(found)

    def lines(self) -> Iterator[Line]:
        while self.peek() != "}":
            results = [self.name()]
            self.words("=")
            operation = self.name()
            if self.peek() == "<":
                self.words("<")
                self.name()
                self.words(">")
            arguments, named = self._arguments()
            self.words(";")
            yield Line(tuple(results), operation, tuple(arguments), named)
        self.words("}")
        if self.peek():
            raise DamagedFile(f"{self._where}: something follows the graph")

    def _arguments(self) -> tuple[list[Any], dict[str, Any]]:
        arguments: list[Any] = []
        named: dict[str, Any] = {}
        self.words("(")
        while self.peek() != ")":
            value = self._value(0)
            if self.peek() == "=" and isinstance(value, Name):
                self.words("=")
                named[value.name] = self._value(0)
            else:
                arguments.append(value)
            if self.peek() != ")":
                self.words(",")
        self.words(")")
        return arguments, named

    def _value(self, depth: int) -> Any:
        word = self.peek()
        if word in ("[", "(") and depth < 3:
            self.words(word)
            end, values = {"[": "]", "(": ")"}[word], []
            while self.peek() != end:
                values.append(self._value(depth + 1))
                if self.peek() != end:
                    self.words(",")
            self.words(end)
            return values if word == "[" else tuple(values)
        if word[:1] in ("'", '"'):
            return self.next()[1:-1]
        if word in ("true", "false"):
            return self.next() == "true"
        return Name(self.name()) if word.isidentifier() else self.number()
