"""A network as ONNX: its initialisers are the weights, in the layout's order, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto_space.formats.graph import INPUT, OUTPUT, ROWS, Graph, Step, identifier

if TYPE_CHECKING:
    from fedpareto_serve.onnx_nodes import Nodes

SAME = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "max": "Max", "min": "Min"},
    **{"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "neg": "Neg"},
    **{"abs": "Abs", "rcp": "Reciprocal", "sin": "Sin", "cos": "Cos", "matmul": "MatMul"},
}
"""Operations without attributes, under the names that ONNX has for them."""
REDUCTIONS = {"mean_reduce": "ReduceMean", "max_reduce": "ReduceMax", "min_reduce": "ReduceMin"}
ACTIVATIONS = {"elu": "Elu", "leaky_relu": "LeakyRelu"}


def to_proto(graph: Graph, tensors: Mapping[str, np.ndarray]) -> Any:
    """A model whose rows are left open."""
    from onnx import TensorProto, helper

    from fedpareto_serve.onnx_nodes import IR_VERSION, OPSET, Nodes

    made = Nodes()
    names = {identifier(label): made.initialiser(tensors[label], label) for label in graph.variables}
    for name, numbers in graph.constants.items():
        names[name] = made.constant(numbers, numbers.dtype)
    for step in graph.steps:
        inputs = [made.constant(one) if isinstance(one, float) else names.get(one, one) for one in step.inputs]
        names[step.output] = _node(made, step, inputs)
    made.add("Identity", names.get(graph.output, graph.output), output=OUTPUT)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(graph.dtype))
    given = helper.make_tensor_value_info(INPUT, kind, list(graph.shape))
    answer = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, list(graph.output_shape))
    whole = helper.make_graph(made.nodes, "network", [given], [answer], made.initialisers)
    return helper.make_model(
        whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="fedpareto"
    )


def _node(made: Nodes, step: Step, inputs: list[str]) -> str:
    """The node, or nodes, of one step; the name of the output."""
    name, about = step.operation, step.attributes
    if name in SAME:
        return made.add(SAME[name], *inputs)
    if name in REDUCTIONS:
        return made.add(REDUCTIONS[name], *inputs, axes=about["axes"], keepdims=1)
    if name in ACTIVATIONS:
        return made.add(ACTIVATIONS[name], *inputs, alpha=about["alpha"])
    return _OTHERS[name](made, step, inputs)


def _pool(made: Nodes, step: Step, inputs: list[str]) -> str:
    """ONNX pools along all dimensions but the first two."""
    about = step.attributes
    sides, strides, size = _sides(about["padding"][2:]), about["stride"][2:], about["size"][2:]
    more: dict[str, Any] = {"kernel_shape": size, "pads": sides, "strides": strides}
    if step.operation == "max_pool":
        return made.add("MaxPool", *inputs, dilations=about["dilation"][2:], **more)
    return made.add("AveragePool", *inputs, count_include_pad=int(about["border"] == "constant"), **more)


def _conv(made: Nodes, step: Step, inputs: list[str]) -> str:
    about = step.attributes
    data, kernel, *bias = inputs
    flat = [made.add("Squeeze", one, made.whole([0])) for one in bias]
    sides = _sides(about["padding"])
    strides, dilations, group = about["stride"], about["dilation"], about["groups"]
    return made.add("Conv", data, kernel, *flat, pads=sides, strides=strides, dilations=dilations, group=group)


def _batch_normalization(made: Nodes, step: Step, inputs: list[str]) -> str:
    data, *rest = inputs
    mean, variance, offset, scale = (made.add("Squeeze", one, made.whole([0])) for one in rest)
    epsilon = step.attributes["epsilon"]
    return made.add("BatchNormalization", data, scale, offset, mean, variance, epsilon=epsilon)


def _constant(made: Nodes, step: Step, inputs: list[str]) -> str:
    """As large as the rows that are given."""
    number = made.constant(step.attributes["value"])
    if ROWS not in step.shape:
        return made.add("Expand", number, made.whole([int(size) for size in step.shape]))
    rows = made.add("Slice", made.add("Shape", INPUT), made.whole([0]), made.whole([1]))
    sizes = [rows if size == ROWS else made.whole([int(size)]) for size in step.shape]
    return made.add("Expand", number, made.add("Concat", *sizes, axis=0))


def _slice(made: Nodes, step: Step, inputs: list[str]) -> str:
    places = [made.whole(step.attributes[name]) for name in ("begin", "end", "axes")]
    return made.add("Slice", *inputs, *places)


def _cast(made: Nodes, step: Step, inputs: list[str]) -> str:
    from onnx import helper

    return made.add("Cast", *inputs, to=helper.np_dtype_to_tensor_dtype(np.dtype(step.attributes["dtype"])))


def _softmax(made: Nodes, step: Step, inputs: list[str]) -> str:
    return made.add("Softmax", *inputs, axis=step.attributes["axes"][0])


_OTHERS: dict[str, Callable[[Nodes, Step, list[str]], str]] = {
    "conv": _conv,
    "max_pool": _pool,
    "avg_pool": _pool,
    "batch_normalization": _batch_normalization,
    "constant": _constant,
    "slice": _slice,
    "cast": _cast,
    "softmax": _softmax,
    "rsqrt": lambda made, step, inputs: made.add("Reciprocal", made.add("Sqrt", *inputs)),
    "silu": lambda made, step, inputs: made.add("Mul", *inputs, made.add("Sigmoid", *inputs)),
    "gather": lambda made, step, inputs: made.add("Gather", *inputs, axis=0),
    "concat": lambda made, step, inputs: made.add("Concat", *inputs, axis=step.attributes["axis"]),
    "reshape": lambda made, step, inputs: made.add("Reshape", *inputs, made.whole(step.attributes["shape"])),
    "transpose": lambda made, step, inputs: made.add("Transpose", *inputs, perm=step.attributes["axes"]),
    "tile": lambda made, step, inputs: made.add("Tile", *inputs, made.whole(step.attributes["repeats"])),
    "sum_reduce": lambda made, step, inputs: made.add(
        "ReduceSum", *inputs, made.whole(step.attributes["axes"]), keepdims=1
    ),
}


def _sides(padding: Sequence[tuple[int, int]]) -> list[int]:
    """First all beginnings, then all ends."""
    return [before for before, _ in padding] + [after for _, after in padding]
