"""A torch network as a `Graph`: torch writes its operators down, and a function for each puts it in terms of NNEF's."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
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


Operator = Callable[..., Any]
MOST_DIMENSIONS = 5
"""Dimensions of a tensor that is sliced: Khronos' interpreter has code for no more."""
OPERATORS: dict[str, Operator] = {}
"""Functions by torch's name of the operator; each is given the lowering, the node and its arguments."""
IGNORED = {"aten::_assert_tensor_metadata", "aten::sym_size", "aten::_assert_scalar", "aten::sym_constrain_range"}


def traced(network: Network, x: Tensor) -> Graph:
    """The graph of a network that reads rows such as `x`, `[rows, ...]`; how many there are is left open."""
    names = network.layout.names
    if len({identifier(name) for name in names}) < len(names):
        raise UserError("two weights of the network have names that differ only in signs such as . and _; rename one")
    rows = x[:1].expand(TRACED_ROWS, *x.shape[1:])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own old ways.
        program = torch.export.export(network, (rows,), strict=False).run_decompositions()
    return Lowering(network, program).graph(translate)


def translate(to: Lowering, node: Node) -> Any:
    target: Any = node.target
    if target is operator.getitem:
        return to.of(node.args[0])[node.args[1]]
    name = target._schema.name if hasattr(target, "_schema") else str(getattr(target, "__name__", target))
    if name in IGNORED or not isinstance(node.meta["val"], torch.Tensor | tuple | list):
        return None  # Checks, and sizes, which are read off where they are needed.
    arguments = [to.of(argument) for argument in node.args]
    tensors = [one for argument in arguments for one in (argument if isinstance(argument, list) else [argument])]
    known = [one for one in tensors if isinstance(one, Value)]
    if all(one.known is not None for one in known) and (known or name == "aten::arange"):
        return to.known(target(*[_numbers(argument) for argument in arguments], **node.kwargs))
    if name not in OPERATORS:
        raise NotHeld(f"the network has torch's operator {name}, for which there is no translation")
    return OPERATORS[name](to, node, *arguments)


def _numbers(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_numbers(one) for one in argument]
    return argument.known if isinstance(argument, Value) else argument


def of(*names: str) -> Callable[[Operator], Operator]:

    def register(function: Operator) -> Operator:
        OPERATORS.update({f"aten::{name}": function for name in names})
        return function

    return register


# -- shapes --------------------------------------------------------------------------------------------------------


@of("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "alias", "clone", "detach", "contiguous")
def seen(to: Lowering, node: Node, x: Value, *_: Any) -> Value:
    return x.seen(to.shape_of(node))


@of("expand")
def expanded(to: Lowering, node: Node, x: Value, *_: Any) -> Value:
    """Every step repeats a dimension of size 1 by itself."""
    wanted = to.shape_of(node)
    shape = (1,) * (len(wanted) - len(x.shape)) + x.shape
    if shape == wanted or x.fill is not None:
        return x.seen(wanted)
    repeats = [1 if old == new else whole(new) for old, new in zip(shape, wanted, strict=True)]
    return to.step("tile", (to.need(x, shape),), wanted, repeats=repeats)


@of("permute")
def permuted(to: Lowering, node: Node, x: Value, axes: list[int]) -> Value:
    """Only dimensions that are larger than 1 have an order."""
    wanted, axes = to.shape_of(node), [axis % len(x.shape) for axis in axes]
    moved = [axis for axis in axes if x.shape[axis] != 1]
    if moved == sorted(moved) or x.fill is not None:
        return x.seen(wanted)
    fixed = 0
    while axes[fixed] == fixed and x.shape[fixed] == 1:
        fixed += 1
    order = [axis - fixed for axis in axes[fixed:]]
    return to.step("transpose", (to.need(x, x.shape[fixed:]),), wanted[fixed:], axes=order).seen(wanted)


@of("select")
def selected(to: Lowering, node: Node, x: Value, axis: int, index: int) -> Value:
    axis %= len(x.shape)
    return _part(to, x, axis, index % whole(x.shape[axis]), 1).seen(to.shape_of(node))


@of("slice")
def sliced(
    to: Lowering, node: Node, x: Value, axis: int = 0, first: Any = 0, last: Any = None, stride: int = 1
) -> Value:
    wanted, axis = to.shape_of(node), axis % len(x.shape)
    if wanted == x.shape:
        return x
    size = whole(x.shape[axis])
    first = 0 if first is None else int(first)
    return _every(to, x, axis, first + size if first < 0 else first, whole(wanted[axis]), stride)


@of("split_with_sizes")
def split(to: Lowering, node: Node, x: Value, sizes: list[int], axis: int = 0) -> list[Value]:
    axis %= len(x.shape)
    return [_part(to, x, axis, sum(sizes[:place]), size) for place, size in enumerate(sizes)]


def _part(to: Lowering, x: Value, axis: int, first: int, size: int) -> Value:
    shape = _resized(x.shape, axis, size)
    if shape == x.shape or x.fill is not None:
        return x.seen(shape)
    alone = _alone(shape[:axis])
    if len(shape) - alone > MOST_DIMENSIONS:  # Only what lies before the axis and after it matters.
        sides = _product(shape[:axis]), _product(shape[axis + 1 :])
        together = x.seen((sides[0], x.shape[axis], sides[1]))
        return _part(to, together, 1, first, size).seen(shape)
    given = to.need(x, x.shape[alone:])
    part = to.step("slice", (given,), shape[alone:], axes=[axis - alone], begin=[first], end=[first + size])
    return part.seen(shape)


def _product(shape: Shape) -> Size:
    texts = [size for size in shape if isinstance(size, str)]
    if len(texts) > 1:
        raise NotHeld("a tensor depends on the rows in more than one dimension")
    known = math.prod(size for size in shape if isinstance(size, int))
    if not texts:
        return known
    times = known * int(texts[0].partition(" ")[0] if " " in texts[0] else 1)
    return ROWS if times == 1 else f"{times} {ROWS}"


def _every(to: Lowering, x: Value, axis: int, first: int, count: int, stride: int) -> Value:
    """Entries that lie `stride` apart; without a stride of their own, which not all readers of NNEF know."""
    if stride == 1 or count == 1:
        return _part(to, x, axis, first, count)
    before = count - 1
    blocks = _part(to, x, axis, first, before * stride)
    shape = _resized(x.shape, axis, before)
    rows = blocks.seen((*shape[: axis + 1], stride, *shape[axis + 1 :]))
    begun = _part(to, rows, axis + 1, 0, 1).seen(shape)
    last = _part(to, x, axis, first + before * stride, 1)
    return _joined(to, [begun, last], axis, _resized(x.shape, axis, count))


@of("unfold")
def unfolded(to: Lowering, node: Node, x: Value, axis: int, size: int, stride: int) -> Value:
    """All windows along an axis; a window's entries are a new last dimension."""
    wanted, axis = to.shape_of(node), axis % len(x.shape)
    windows = [_every(to, x, axis, first, whole(wanted[axis]), stride) for first in range(size)]
    return _joined(to, [one.seen((*one.shape, 1)) for one in windows], len(wanted) - 1, wanted)


@of("cat")
def joined(to: Lowering, node: Node, parts: list[Value], axis: int = 0) -> Value:
    wanted = to.shape_of(node)
    return _joined(to, parts, axis % len(wanted), wanted)


def _joined(to: Lowering, parts: list[Value], axis: int, shape: Shape) -> Value:
    if len(parts) == 1:
        return parts[0].seen(shape)
    alone = _alone(shape[:axis])
    names = [to.need(part, part.shape[alone:]) for part in parts]
    return to.step("concat", names, shape[alone:], axis=axis - alone).seen(shape)


def _alone(shape: Shape) -> int:
    return next((place for place, size in enumerate(shape) if size != 1), len(shape))


@of("full", "full_like", "zeros", "zeros_like", "ones", "ones_like", "new_zeros")
def full(to: Lowering, node: Node, *arguments: Any) -> Value:
    name: str = node.target._schema.name  # type: ignore[union-attr]
    number = arguments[1] if "full" in name else 1.0 if "ones" in name else 0.0
    return to.full(float(number), to.shape_of(node))


@of("constant_pad_nd")
def padded(to: Lowering, node: Node, x: Value, sizes: list[int], number: float = 0.0) -> Value:
    pairs = [(sizes[i], sizes[i + 1]) for i in range(0, len(sizes), 2)][::-1]
    for axis, sides in enumerate(pairs, start=len(x.shape) - len(pairs)):
        before, after = (to.full(float(number), _resized(x.shape, axis, size)) for size in sides)
        around = [part for part, there in ((before, sides[0]), (x, 1), (after, sides[1])) if there]
        x = _joined(to, around, axis, _resized(x.shape, axis, whole(x.shape[axis]) + sum(sides)))
    return x


def _resized(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


@of("_to_copy", "to")
def cast(to: Lowering, node: Node, x: Value, *_: Any) -> Value:
    before, after = node.args[0].meta["val"].dtype, node.meta["val"].dtype  # type: ignore[union-attr]
    if before == after or x.fill is not None:
        return x
    dtype = str(after).removeprefix("torch.")
    return to.step("cast", (to.need(x, x.made),), x.made, dtype=dtype).seen(x.shape)


# -- one number after the other --------------------------------------------------------------------------------------

UNARY = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt", "neg": "neg"}
UNARY |= {"rsqrt": "rsqrt", "abs": "abs", "reciprocal": "rcp", "silu": "silu", "sin": "sin", "cos": "cos"}
FOLDED: dict[str, Callable[[float, float], float]] = {
    **{"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "pow": operator.pow},
    **{"max": max, "min": min},
}
BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow", "maximum": "max", "minimum": "min"}


@of(*UNARY)
def unary(to: Lowering, node: Node, x: Value) -> Value:
    name = UNARY[node.target._schema.name.removeprefix("aten::")]  # type: ignore[union-attr]
    made = x.made if x.fill is None else x.shape
    return to.step(name, (to.need(x, made),), made).seen(x.shape)


@of("elu", "leaky_relu")
def bent(to: Lowering, node: Node, x: Value, slope: float | None = None) -> Value:
    name = node.target._schema.name.removeprefix("aten::")  # type: ignore[union-attr]
    number = {"elu": 1.0, "leaky_relu": 0.01}[name] if slope is None else float(slope)
    return to.step(name, (to.need(x, x.made),), x.made, alpha=number).seen(x.shape)


@of(*BINARY)
def binary(to: Lowering, node: Node, x: Any, y: Any) -> Value:
    if node.kwargs.get("alpha", 1) != 1:
        y = paired(to, "mul", y, float(node.kwargs["alpha"]))  # type: ignore[arg-type]
    return paired(to, BINARY[node.target._schema.name.removeprefix("aten::")], x, y)  # type: ignore[union-attr]


def paired(to: Lowering, name: str, x: Any, y: Any) -> Value:
    """NNEF begins with the first dimension where torch begins with the last, so both get the same number of them."""
    one, other = _number(x), _number(y)
    if one is None and other is None:
        rank = max(len(x.shape), len(y.shape))
        shapes = [(1,) * (rank - len(value.shape)) + value.shape for value in (x, y)]
        wanted = tuple(b if a == 1 else a for a, b in zip(*shapes, strict=True))
        if name == "add":  # The place of a client in a stack of one is 0.
            for value, rest, shape in ((x, y, shapes[1]), (y, x, shapes[0])):
                if value.known is not None and not value.known.any() and shape == wanted:
                    unchanged: Value = rest
                    return unchanged.seen(wanted)
        fixed = 0
        while fixed < rank - 1 and shapes[0][fixed] == shapes[1][fixed] == 1:
            fixed += 1
        names = [to.need(value, shape[fixed:]) for value, shape in zip((x, y), shapes, strict=True)]
        return to.step(name, names, wanted[fixed:]).seen(wanted)
    if one is not None and other is not None:
        given = x if isinstance(x, Value) else y
        return to.full(float(FOLDED[name](one, other)), given.shape if isinstance(given, Value) else ())
    tensor = y if other is None else x
    made = to.need(tensor, tensor.made)
    inputs = (one, made) if other is None else (made, other)
    return to.step(name, [one for one in inputs if one is not None], tensor.made).seen(tensor.shape)


def _number(value: Any) -> float | None:
    if not isinstance(value, Value):
        return float(value)
    if value.known is not None and value.known.numel() == 1 and not value.shape:
        return float(value.known)
    return value.fill


@of("clamp", "hardtanh")
def clamped(to: Lowering, node: Node, x: Value, low: float | None = None, high: float | None = None) -> Value:
    if node.target._schema.name.endswith("hardtanh"):  # type: ignore[union-attr]
        low, high = -1.0 if low is None else low, 1.0 if high is None else high
    for name, limit in (("max", low), ("min", high)):
        x = x if limit is None else paired(to, name, x, float(limit))
    return x


@of("_softmax")
def softmax(to: Lowering, node: Node, x: Value, axis: int, _: bool) -> Value:
    return to.step("softmax", (to.need(x),), x.shape, axes=[axis % len(x.shape)])


# -- products ------------------------------------------------------------------------------------------------------


@of("mm", "bmm")
def product(to: Lowering, node: Node, x: Value, y: Value) -> Value:
    """A stack of one is a matrix."""
    wanted = to.shape_of(node)
    fixed = len(wanted) - 2 if wanted[0] == 1 else 0
    names = (to.need(x, x.shape[fixed:]), to.need(y, y.shape[fixed:]))
    return to.step("matmul", names, wanted[fixed:]).seen(wanted)


@of("addmm", "baddbmm")
def added_product(to: Lowering, node: Node, bias: Value, x: Value, y: Value) -> Value:
    return paired(to, "add", product(to, node, x, y), bias)


@of("embedding")
def embedded(to: Lowering, node: Node, vectors: Value, numbers: Value, *_: Any) -> Value:
    table, width = to.need(vectors), vectors.shape[-1]
    found = to.step("gather", (table, to.need(numbers, numbers.made)), (*numbers.made, width), size=vectors.shape[0])
    return found.seen(to.shape_of(node))


# -- images --------------------------------------------------------------------------------------------------------


@of("convolution")
def convolution(
    to: Lowering,
    node: Node,
    x: Value,
    kernel: Value,
    bias: Value | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    _: list[int],
    groups: int,
) -> Value:
    if transposed:
        raise NotHeld("the network has a transposed convolution, for which there is no translation")
    inputs = [to.need(x), to.need(kernel)]
    inputs += [] if bias is None else [to.need(bias, (1, *bias.shape))]
    sides = [(size, size) for size in padding]
    about: dict[str, Any] = {"padding": sides, "stride": stride, "dilation": dilation, "groups": groups}
    return to.step("conv", inputs, to.shape_of(node), **about)


@of("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    to: Lowering,
    node: Node,
    x: Value,
    size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | None = None,
    dilation: list[int] | None = None,
    ceil: bool = False,
) -> list[Value]:
    about = _windows(x, size, stride, padding, dilation, ceil)
    return [to.step("max_pool", (to.need(x),), to.shape_of(node, 0), border="ignore", **about)]


@of("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    to: Lowering,
    node: Node,
    x: Value,
    size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | None = None,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    if divisor is not None:
        raise NotHeld("the network has an average pooling with a divisor of its own")
    about = _windows(x, size, stride, padding, None, ceil)
    border = "constant" if count_padding else "ignore"
    return to.step("avg_pool", (to.need(x),), to.shape_of(node), border=border, **about)


def _windows(
    x: Value,
    size: list[int],
    stride: list[int] | None,
    padding: list[int] | None,
    dilation: list[int] | None,
    ceil: bool,
) -> dict[str, Any]:
    """In all dimensions, also in those that are not pooled."""
    if ceil:
        raise NotHeld("the network has a pooling with ceil_mode, for which there is no translation")
    rest, along = [1] * (len(x.shape) - len(size)), len(size)
    sides = _each(padding or [0], along)
    return {
        "size": [*rest, *size],
        "padding": [*[(0, 0)] * len(rest), *[(side, side) for side in sides]],
        "stride": [*rest, *(stride or size)],
        "dilation": [*rest, *_each(dilation or [1], along)],
    }


def _each(sizes: list[int], count: int) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else list(sizes)


# -- sums and normalisation ------------------------------------------------------------------------------------------

REDUCTIONS = {"mean": "mean_reduce", "sum": "sum_reduce", "amax": "max_reduce", "amin": "min_reduce"}


@of(*REDUCTIONS)
def reduced(to: Lowering, node: Node, x: Value, axes: list[int] | None = None, *_: Any) -> Value:
    """Over some axes, or all of them but the rows'."""
    name = REDUCTIONS[node.target._schema.name.removeprefix("aten::")]  # type: ignore[union-attr]
    along = sorted(axis % len(x.shape) for axis in (axes or range(len(x.shape))))
    return _over(to, name, x, along).seen(to.shape_of(node))


def _over(to: Lowering, name: str, x: Value, axes: list[int]) -> Value:
    kept: Shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    for axis in axes:
        whole(x.shape[axis])
    return to.step(name, (to.need(x),), kept, axes=axes)


@of("_native_batch_norm_legit_no_training")
def batch_norm(
    to: Lowering,
    node: Node,
    x: Value,
    scale: Value | None,
    offset: Value | None,
    mean: Value,
    variance: Value,
    _: float,
    epsilon: float,
) -> list[Value]:
    """Normalise by running statistics, which are weights too. Nothing is folded into the layer before."""
    channels: Shape = (1, *mean.shape)
    given = (mean, variance, offset or to.full(0.0, mean.shape), scale or to.full(1.0, mean.shape))
    names = [to.need(x), *(to.need(one, channels) for one in given)]
    return [to.step("batch_normalization", names, x.shape, epsilon=float(epsilon))]


@of("native_group_norm")
def group_norm(
    to: Lowering,
    node: Node,
    x: Value,
    scale: Value | None,
    offset: Value | None,
    rows: Any,
    channels: int,
    area: int,
    groups: int,
    epsilon: float,
) -> list[Value]:
    values = _normal(to, x.seen((x.shape[0], groups, channels // groups * area)), [2], epsilon).seen(x.shape)
    shape = (1, channels, *[1] * (len(x.shape) - 2))
    return [_scaled(to, values, scale, offset, shape)]


@of("native_layer_norm")
def layer_norm(
    to: Lowering, node: Node, x: Value, shape: list[int], scale: Value | None, offset: Value | None, epsilon: float
) -> list[Value]:
    rank, last = len(x.shape), len(shape)
    values = _normal(to, x, list(range(rank - last, rank)), epsilon)
    return [_scaled(to, values, scale, offset, (*[1] * (rank - last), *shape))]


def _normal(to: Lowering, x: Value, axes: list[int], epsilon: float) -> Value:
    centred = paired(to, "sub", x, _over(to, "mean_reduce", x, axes))
    variance = _over(to, "mean_reduce", paired(to, "mul", centred, centred), axes)
    spread = paired(to, "add", variance, float(epsilon))
    return paired(to, "div", centred, to.step("sqrt", (to.need(spread),), spread.shape))


def _scaled(to: Lowering, values: Value, scale: Value | None, offset: Value | None, shape: Shape) -> Value:
    values = values if scale is None else paired(to, "mul", values, scale.seen(shape))
    return values if offset is None else paired(to, "add", values, offset.seen(shape))
