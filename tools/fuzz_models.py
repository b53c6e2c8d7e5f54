"""What `fuzz.py` tries of models on their way: files of ONNX and NNEF."""

from __future__ import annotations

import random
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from fuzz_mutations import of_bytes
from fuzz_readers import Reader

from fedpareto_space.formats import nnef, onnx_files
from fedpareto_space.formats.graph import Graph, Step
from fedpareto_space.formats.running import Model

ODD = ("-1", "0", "1.5", "1e40", "99999999999999999999", "'../x'", "true", "[1, [2, [3, [4]]]]", "x", "(1, 2)", "")
GRAPH = Graph(
    shape=("rows", 3),
    dtype="float32",
    variables={"a.weight": (3, 2), "a.bias": (2,)},
    constants={},
    steps=(
        Step("matmul", ("x", "w_a_weight"), "t0", ("rows", 2)),
        Step("reshape", ("w_a_bias",), "t1", (1, 2), {"shape": [1, 2]}),
        Step("add", ("t0", "t1"), "t2", ("rows", 2)),
        Step("slice", ("t2",), "t3", ("rows", 1), {"axes": [1], "begin": [0], "end": [1]}),
        Step("softmax", ("t3",), "t4", ("rows", 1), {"axes": [1]}),
    ),
    output="t4",
    output_shape=("rows", 1),
)
TENSORS = {"a.weight": np.ones((3, 2), np.float32), "a.bias": np.ones(2, np.float32)}


def of_text(draw: random.Random, content: bytes) -> bytes:
    """Another word in the place of one, or lost and repeated lines; often other bytes."""
    if draw.random() < 0.3:
        return of_bytes(draw, content)
    lines = content.decode().split("\n")
    if draw.random() < 0.3:
        place = draw.randrange(len(lines))
        lines[place : place + 1] = [lines[place]] * draw.choice((0, 2))
        return "\n".join(lines).encode()
    words = list(re.finditer(r"[\w.']+|[^\s\w]", content.decode()))
    word = draw.choice(words)
    return (word.string[: word.start()] + draw.choice(ODD) + word.string[word.end() :]).encode()


def of_proto(draw: random.Random, content: bytes) -> bytes:
    """Other sizes, types, names and places of weights; often other bytes."""
    if draw.random() < 0.4:
        return of_bytes(draw, content)
    proto = onnx.ModelProto.FromString(content)
    one = draw.choice(proto.graph.initializer)
    kind = draw.randrange(5)
    if kind == 0:
        one.dims[0] = draw.choice((-1, 0, 2**31, 2**62, 3))
    elif kind == 1:
        one.data_type = draw.choice((0, 1, 7, 11, 99))
    elif kind == 2:
        one.name = draw.choice(("", "a.weight", "b", "../x"))
    elif kind == 3 and one.external_data:
        entry = draw.choice(one.external_data)
        entry.value = draw.choice(("-1", "", "../model", "/etc/hosts", "1" * 5000, "24", "²", "0"))
    else:
        one.raw_data = draw.randbytes(draw.choice((0, 1, 8, 24, 4000)))
    return bytes(proto.SerializeToString())


def readers(folder: Path) -> list[Reader]:
    """All of them."""
    whole, apart, text = folder / "whole.onnx", folder / "apart.onnx", folder / "nnef"
    onnx_files.write(GRAPH, TENSORS, whole)
    onnx_files.write(GRAPH, TENSORS, apart, apart=True)
    nnef.write(GRAPH, TENSORS, text, rows=2)
    graph, tensor = text / nnef.GRAPH, text / "a.bias.dat"
    good = {path: path.read_bytes() for path in (whole, apart, graph, tensor)}

    def read_onnx(content: bytes) -> object:
        path = folder / "tried.onnx"
        path.write_bytes(content)
        onnx_files.weights_file(path).write_bytes(bytes(32))
        onnx_files.update(path, onnx_files.parameters(path))
        return onnx_files.parameters(path)

    def read_graph(content: bytes) -> object:
        graph.write_bytes(content)
        tensor.write_bytes(good[tensor])
        with torch.no_grad():
            return Model(text)(torch.ones(2, 3))

    def read_packed(content: bytes) -> object:
        with TemporaryDirectory(dir=folder) as place:
            return nnef.unpacked(content, Path(place), "a file")

    def read_tensor(content: bytes) -> object:
        return nnef.tensor_of(content, "a tensor file")

    packed = nnef.packed(text)
    return [
        Reader("models as ONNX", (good[whole], good[apart].replace(b"apart", b"tried")), of_proto, read_onnx),
        Reader("models as NNEF", (good[graph],), of_text, read_graph),
        Reader("packed models", (packed,), of_bytes, read_packed),
        Reader("tensors of NNEF", (good[tensor],), of_bytes, read_tensor),
    ]
