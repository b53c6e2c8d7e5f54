"""A model as ONNX, whole, and its weights alone by three routes.

1. `rewrite`: the initialisers of a file are replaced.
2. `split` and `swap`: the file holds the graph alone, and the weights lie beside it; theirs is the only file replaced.
3. `Session`: a runtime is given other weights, and no file changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.config import limits
from fedpareto.config.errors import DamagedFile, UserError, in_words, reading
from fedpareto.config.files import read_bytes, write_atomically
from fedpareto_space.formats.graph import INPUT, OUTPUT, ROWS, Graph, Step, identifier
from fedpareto_space.formats.nnef import must_fit

if TYPE_CHECKING:
    from fedpareto_serve.onnx_nodes import Nodes

WEIGHTS = ".weights"
"""Ending of the name of the file beside the graph."""
FLOAT32 = 4
"""Bytes."""
PLACE = re.compile("[0-9]{1,10}")
"""In a file: up to 10 GB."""
SAME = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "max": "Max", "min": "Min"},
    **{"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "neg": "Neg"},
    **{"abs": "Abs", "rcp": "Reciprocal", "sin": "Sin", "cos": "Cos", "matmul": "MatMul"},
}
"""Operations without attributes, under the names that ONNX has for them."""
REDUCTIONS = {"mean_reduce": "ReduceMean", "max_reduce": "ReduceMax", "min_reduce": "ReduceMin"}
ACTIVATIONS = {"elu": "Elu", "leaky_relu": "LeakyRelu"}


def write(graph: Graph, tensors: Mapping[str, np.ndarray], path: Path, apart: bool = False) -> None:
    """A whole model; `apart`: the weights in a file beside it."""
    need_onnx()
    must_fit(graph.variables, tensors, str(path))
    proto = to_proto(graph, tensors)
    import onnx

    onnx.checker.check_model(proto, full_check=True)
    if apart:
        write_atomically(weights_file(path), split(proto, weights_file(path)))
    write_atomically(path, proto.SerializeToString(deterministic=True))


def parameters(path: Path) -> dict[str, np.ndarray]:
    """The weights of a file, in its order, wherever they lie."""
    proto = _read(path)
    beside = read_bytes(weights_file(path)) if _is_apart(proto) else b""
    return {one.name: _tensor(one, beside, path) for one in proto.graph.initializer}


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    return {one.name: tuple(one.dims) for one in _read(path).graph.initializer}


# -- the three routes ------------------------------------------------------------------------------------------------


def rewrite(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Route 1: the same file with other initialisers."""
    proto = _read(path)
    must_fit({one.name: tuple(one.dims) for one in proto.graph.initializer}, tensors, str(path))
    for one in proto.graph.initializer:
        one.raw_data = _bytes(tensors[one.name])
        del one.external_data[:], one.float_data[:]
        one.ClearField("data_location")
    write_atomically(path, proto.SerializeToString(deterministic=True))


def split(proto: Any, beside: Path) -> bytes:
    """Takes the weights out of a graph, which then names a file for them; gives that file's content, nothing else."""
    from onnx import TensorProto

    parts, place = [], 0
    for one in proto.graph.initializer:
        size = len(one.raw_data)
        parts.append(one.raw_data)
        one.ClearField("raw_data")
        one.data_location = TensorProto.EXTERNAL
        for key, value in (("location", beside.name), ("offset", place), ("length", size)):
            entry = one.external_data.add()
            entry.key, entry.value = key, str(value)
        place += size
    return b"".join(parts)


def swap(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Route 2: the file with the weights is replaced in one step, and the graph is not touched."""
    proto = _read(path)
    must_fit({one.name: tuple(one.dims) for one in proto.graph.initializer}, tensors, str(path))
    if not _is_apart(proto):
        raise UserError(f"{path} holds its weights itself; they are not in a file beside it")
    content = bytearray(read_bytes(weights_file(path)))
    for one in proto.graph.initializer:  # Each where the graph says: other writers leave gaps.
        first, last = _place(one, path)
        data = _bytes(tensors[one.name])
        if last - first != len(data) or last > len(content):
            raise DamagedFile(f"{path} is damaged: it has no room for '{one.name}'")
        content[first:last] = data
    write_atomically(weights_file(path), bytes(content))


class Session:
    """Route 3: onnxruntime on a file, with other weights if they are given; the files stay as they are."""

    def __init__(self, path: Path, tensors: Mapping[str, np.ndarray] | None = None) -> None:
        if find_spec("onnxruntime") is None:
            raise UserError('running ONNX needs other packages; try: pip install "fedpareto[onnx]"')
        import onnxruntime

        self._weights: list[Any] = []
        options, model = onnxruntime.SessionOptions(), str(path)
        options.log_severity_level = 3  # Errors; it warns of weights that only training uses, such as a critic's.
        if tensors is not None:
            must_fit(shapes(path), tensors, str(path))
            # Only weights that lie outside of a graph are replaced before the graph is optimised. Of those inside
            # onnxruntime folds some first (add_initializer), and the answers are wrong without a word.
            proto = _read(path)
            if not _is_apart(proto):
                split(proto, weights_file(path))
            model = proto.SerializeToString()
            # It drops those that no node reads, and then misses them.
            used = {name for node in proto.graph.node for name in node.input} & set(tensors)
            # onnxruntime reads these for as long as it runs, and does not keep them alive itself.
            self._weights = [np.ascontiguousarray(tensors[name], dtype=np.float32) for name in sorted(used)]
            self._weights += [onnxruntime.OrtValue.ortvalue_from_numpy(tensor) for tensor in self._weights]
            options.add_external_initializers(sorted(used), self._weights[len(used) :])
        self._where = str(path)
        with _running(self._where):
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        with _running(self._where):
            (scores,) = self._session.run(None, {INPUT: x})
        return np.asarray(scores)


@contextmanager
def _running(where: str) -> Iterator[None]:
    """Turn exceptions of onnxruntime, which has classes of its own, into one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as problem:
        raise UserError(f"{where} is not read by onnxruntime: {in_words(problem)}") from None


def update(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Weights alone, by the route that the file is made for."""
    (swap if is_apart(path) else rewrite)(path, tensors)


# -- files -----------------------------------------------------------------------------------------------------------


def weights_file(path: Path) -> Path:
    return path.with_name(path.name + WEIGHTS)


def is_apart(path: Path) -> bool:
    return _is_apart(_read(path))


def _is_apart(proto: Any) -> bool:
    return any(one.external_data for one in proto.graph.initializer)


def need_onnx() -> None:
    if find_spec("onnx") is None:
        raise UserError('ONNX needs other packages; try: pip install "fedpareto[onnx]"')


def _read(path: Path) -> Any:
    """A model as it was written here: initialisers are weights in single precision."""
    need_onnx()
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto = onnx.ModelProto.FromString(read_bytes(path))
    except DecodeError:
        raise DamagedFile(f"{path} is damaged: it is no file of ONNX") from None
    names = [one.name for one in proto.graph.initializer]
    if len(names) > limits.WEIGHTS or any(len(one.dims) > limits.DIMENSIONS for one in proto.graph.initializer):
        raise DamagedFile(
            f"{path} has more than {limits.WEIGHTS:,} weights, or one of more than {limits.DIMENSIONS} dimensions"
        )
    if not names or len(set(names)) != len(names):
        raise DamagedFile(f"{path} is damaged: it has no weights, or two of one name")
    if any(one.data_type != onnx.TensorProto.FLOAT for one in proto.graph.initializer):
        raise DamagedFile(f"{path} has weights that are not in single precision; fedpareto space model writes others")
    return proto


def _tensor(one: Any, beside: bytes, path: Path) -> np.ndarray:
    """From the file itself, or from the one beside it: never from another that it may name."""
    if one.external_data:
        first, last = _place(one, path)
        data = beside[first:last]
    else:
        data = bytes(one.raw_data) or np.array(one.float_data, dtype="<f4").tobytes()
    shape = tuple(one.dims)
    if min(shape, default=0) < 0 or len(data) != FLOAT32 * int(np.prod(shape, dtype=object)):
        raise DamagedFile(f"{path} is damaged: '{one.name}' should have {list(shape)} numbers")
    with reading(str(path)):  # Arrays have a limit of their own for dimensions, and for the product of those above 0.
        return np.frombuffer(data, "<f4").reshape(shape)


def _place(one: Any, path: Path) -> tuple[int, int]:
    about = {str(entry.key): str(entry.value) for entry in one.external_data}  # Bytes where they are no text.
    if about.get("location") != weights_file(path).name:
        raise DamagedFile(f"{path} names '{about.get('location')}' for its weights, and not {weights_file(path).name}")
    first, length = about.get("offset", "0"), about.get("length", "")
    if not PLACE.fullmatch(first) or not PLACE.fullmatch(length):
        raise DamagedFile(f"{path} is damaged: it does not say where '{one.name}' is")
    return int(first), int(first) + int(length)


def _bytes(tensor: np.ndarray) -> bytes:
    return np.ascontiguousarray(tensor, dtype="<f4").tobytes()


# -- from a graph: its initialisers are the weights, in the layout's order, and nothing else --------------------------


def to_proto(graph: Graph, tensors: Mapping[str, np.ndarray]) -> Any:
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
