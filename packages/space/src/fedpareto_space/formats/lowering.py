"""From a torch network to a `Graph`: torch writes its operators down (torch.export), we translate them one by one.

Views cost nothing: what only changes a tensor's shape, such as the stack of one client that all networks of the library
work on, is carried along as a shape, and written down as one `reshape` where a step needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor
from torch.fx import Node

from fedpareto.config.errors import UserError
from fedpareto_space.formats.graph import FREE, INPUT, ROWS, Graph, Shape, Size, Step, identifier
from fedpareto_space.formats.network import Network

TRACED_ROWS = 1_000_003
"""Rows that torch is told of: a prime, so that no other size is a multiple of it. None of them is computed. (With a
number that is left open torch takes twice as long.)
"""


class NotHeld(UserError):
    """The network has an operator that the formats cannot hold."""


@dataclass(frozen=True)
class Value:
    """A tensor of the graph, seen in some shape; or numbers that are known beforehand."""

    name: str
    made: Shape
    """As the step that makes it says."""
    shape: Shape
    """Shape in which the operators see it."""
    known: Tensor | None = None
    """A constant."""
    fill: float | None = None
    """The one number that it is full of."""

    def seen(self, shape: Shape) -> Value:
        known = None if self.known is None else self.known.reshape([int(size) for size in shape])
        return replace(self, shape=shape, known=known)


class Lowering:
    """The steps so far, and which value each of torch's nodes has."""

    def __init__(self, network: Network, program: Any) -> None:
        self._network, self._program = network, program
        self._values: dict[Node, Any] = {}
        self._steps: list[Step] = []
        self._constants: dict[str, np.ndarray] = {}
        self._done: dict[tuple[Any, ...], str] = {}

    def graph(self, translate: Callable[[Lowering, Node], Any]) -> Graph:
        nodes = {node.name: node for node in self._program.graph.nodes}
        signature = self._program.graph_signature
        for name, label in signature.inputs_to_buffers.items():
            self._values[nodes[name]] = self.value(identifier(label), self.shape_of(nodes[name]))
        for name, label in signature.inputs_to_lifted_tensor_constants.items():
            self._values[nodes[name]] = self.known(self._program.constants[label])
        (given,) = signature.user_inputs
        shape = self.shape_of(nodes[given])
        self._values[nodes[given]] = self.value(INPUT, shape)
        for node in nodes.values():
            if node.op == "call_function":
                self._values[node] = translate(self, node)
        answer = self._values[nodes[signature.user_outputs[0]]]
        layout = self._network.layout
        return Graph(
            shape=shape,
            dtype=str(nodes[given].meta["val"].dtype).removeprefix("torch."),
            variables=dict(zip(layout.names, layout.shapes, strict=True)),
            output=self.need(answer),
            constants=self._constants,
            steps=tuple(self._steps),
            output_shape=answer.shape,
        )

    # -- what operators use ------------------------------------------------------------------------------------------

    def value(self, name: str, shape: Shape) -> Value:
        return Value(name, shape, shape)

    def known(self, numbers: Tensor) -> Value:
        return Value("", tuple(numbers.shape), tuple(numbers.shape), known=numbers)

    def full(self, number: float, shape: Shape) -> Value:
        return Value("", shape, shape, fill=number)

    def of(self, argument: Any) -> Any:
        """An argument of a node: a value, or what torch wrote down."""
        if isinstance(argument, Node):
            value = self._values.get(argument)
            return argument.meta["val"] if value is None else value
        return [self.of(one) for one in argument] if isinstance(argument, list | tuple) else argument

    def shape_of(self, node: Node, which: int | None = None) -> Shape:
        value = node.meta["val"]
        return tuple(map(_size, (value if which is None else value[which]).shape))

    def need(self, value: Value, shape: Shape | None = None) -> str:
        """The name of a tensor in the shape in which it is seen, or in another."""
        shape = value.shape if shape is None else shape
        if value.known is not None:
            return self._constant(value.known.reshape([int(size) for size in shape]))
        if value.fill is not None:
            return self.step("constant", (), shape, value=value.fill).name
        if value.made == shape:
            return value.name
        return self.step("reshape", (value.name,), shape, shape=_free(shape)).name

    def step(self, operation: str, inputs: Sequence[str | float], shape: Shape, /, **attributes: Any) -> Value:
        """One more; a step that was already made is not made again."""
        key = operation, tuple(inputs), shape, repr(sorted(attributes.items()))
        if key not in self._done:
            self._done[key] = f"t{len(self._steps)}"
            self._steps.append(Step(operation, tuple(inputs), self._done[key], shape, attributes))
        return self.value(self._done[key], shape)

    def _constant(self, numbers: Tensor) -> str:
        array = numbers.numpy()
        for name, other in self._constants.items():
            if other.dtype == array.dtype and np.array_equal(other, array):
                return name
        name = f"c{len(self._constants)}"
        self._constants[name] = array
        return name


def _size(size: int) -> Size:
    if size % TRACED_ROWS or not size:
        return size
    return ROWS if size == TRACED_ROWS else f"{size // TRACED_ROWS} {ROWS}"


def _free(shape: Shape) -> list[int]:
    if sum(isinstance(size, str) for size in shape) > 1:
        raise NotHeld(f"a tensor of the shape {list(shape)} depends on the rows in more than one dimension")
    return [FREE if isinstance(size, str) else size for size in shape]


def whole(size: Size) -> int:
    """A size that must not depend on the rows."""
    if isinstance(size, str):
        raise NotHeld("an operator works along the rows, which are to be independent of each other")
    return size
