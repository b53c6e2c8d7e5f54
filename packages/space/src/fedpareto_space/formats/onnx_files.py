"""A model as ONNX, whole, and its weights alone by three routes.

1. `rewrite`: the initialisers of a file are replaced.
2. `split` and `swap`: the file holds the graph alone, and the weights lie beside it; theirs is the only file replaced.
3. `Session`: a runtime is given other weights, and no file changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.config import limits
from fedpareto.config.errors import DamagedFile, UserError, in_words, reading
from fedpareto.config.files import read_bytes, write_atomically
from fedpareto_space.formats.graph import INPUT, Graph
from fedpareto_space.formats.nnef import must_fit
from fedpareto_space.formats.onnx_graph import to_proto

WEIGHTS = ".weights"
"""What the name of the file beside the graph ends with."""
FLOAT32 = 4
"""Bytes."""
PLACE = re.compile("[0-9]{1,10}")
"""In a file: up to 10 GB."""


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
    return _tensors(_read(path), path)


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The weights' names and shapes, in the file's order."""
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
        """Scores of rows."""
        with _running(self._where):
            (scores,) = self._session.run(None, {INPUT: x})
        return np.asarray(scores)


@contextmanager
def _running(where: str) -> Iterator[None]:
    """What onnxruntime says of a graph, which has exceptions of its own, becomes one line."""
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
    """Beside the graph."""
    return path.with_name(path.name + WEIGHTS)


def is_apart(path: Path) -> bool:
    """Whether the weights lie beside the graph."""
    return _is_apart(_read(path))


def _is_apart(proto: Any) -> bool:
    return any(one.external_data for one in proto.graph.initializer)


def need_onnx() -> None:
    """UserError without the package."""
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


def _tensors(proto: Any, path: Path) -> dict[str, np.ndarray]:
    beside = read_bytes(weights_file(path)) if _is_apart(proto) else b""
    return {one.name: _tensor(one, beside, path) for one in proto.graph.initializer}


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
    """Where a weight begins and ends in the file beside the graph."""
    about = {str(entry.key): str(entry.value) for entry in one.external_data}  # Bytes where they are no text.
    if about.get("location") != weights_file(path).name:
        raise DamagedFile(f"{path} names '{about.get('location')}' for its weights, and not {weights_file(path).name}")
    first, length = about.get("offset", "0"), about.get("length", "")
    if not PLACE.fullmatch(first) or not PLACE.fullmatch(length):
        raise DamagedFile(f"{path} is damaged: it does not say where '{one.name}' is")
    return int(first), int(first) + int(length)


def _bytes(tensor: np.ndarray) -> bytes:
    return np.ascontiguousarray(tensor, dtype="<f4").tobytes()
