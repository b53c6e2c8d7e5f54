"""A model as NNEF: a folder with graph.nnef, which is the same for all weights, and a tensor file for each of them.

For a link that carries files, `packed` makes one of it, as the standard has it: a tar.
"""

from __future__ import annotations

import io
import math
import re
import struct
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedpareto.config import limits
from fedpareto.config.errors import DAMAGE, DamagedFile, UserError, in_words, reading
from fedpareto.config.files import read_bytes, write_atomically
from fedpareto_space.formats.graph import Graph
from fedpareto_space.formats.nnef_text import CONSTANTS, Line, from_text, to_text

T = TypeVar("T")
GRAPH = "graph.nnef"
LONGEST = 255
"""Letters of a file's path."""
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
"""Permitted name of a tensor file: nothing outside of the folder."""
MAGIC = b"\x4e\xef"
VERSION = (1, 0)
HEADER = 128
MOST_DIMENSIONS = 8
TYPES = {(0, 16): "<f2", (0, 32): "<f4", (0, 64): "<f8", (1, 8): "u1", (4, 8): "i1", (4, 32): "<i4", (4, 64): "<i8"}
"""Types of numbers by the header's code and bits; those with quantisation are not read."""
_LAYOUT = struct.Struct("<2sBBII8III76x")
assert _LAYOUT.size == HEADER, "as the standard has it"


def write(graph: Graph, tensors: Mapping[str, np.ndarray], folder: Path, rows: int = 1) -> None:
    text, constants = to_text(graph, rows)
    try:
        (folder / CONSTANTS if constants else folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    _write_tensors(folder, graph.variables, tensors)
    _write_tensors(folder, {label: numbers.shape for label, numbers in constants.items()}, constants)
    write_atomically(folder / GRAPH, text)


def update(folder: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Weights alone: the tensor files are replaced, the graph stays."""
    _write_tensors(folder, weights(variables(lines(folder), folder)), tensors)


def _write_tensors(folder: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, np.ndarray]) -> None:
    """One file for each of the weights; all are checked before the first is written."""
    must_fit(shapes, tensors, str(folder))
    for label in shapes:
        if not LABEL.fullmatch(label):
            raise UserError(f"{folder}: a tensor file cannot be called '{label}'")
    for label in shapes:
        write_atomically(folder / f"{label}.dat", tensor_bytes(np.asarray(tensors[label], dtype=np.float32)))


def read(folder: Path) -> tuple[list[Line], dict[str, np.ndarray]]:
    found = lines(folder)
    shapes = variables(found, folder)
    tensors = {label: tensor_of(read_bytes(folder / f"{label}.dat"), f"{folder / label}.dat") for label in shapes}
    must_fit(shapes, tensors, str(folder))
    return found, tensors


def packed(folder: Path) -> bytes:
    """A model as one file, the same bytes for the same model: only what the graph names, in its order."""
    labels = variables(lines(folder), folder)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in (GRAPH, *(f"{label}.dat" for label in labels)):
            data, entry = read_bytes(folder / name), tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


def unpacked(data: bytes, folder: Path, where: str) -> None:
    """Writes a packed model into a folder; whatever is no part of a model is refused before anything is written."""
    found = _entries(data, where)
    try:
        for name in found:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"{folder} cannot be written: {problem.strerror or problem}") from None
    for name, content in found.items():
        write_atomically(folder / name, content)
    read(folder)


def _entries(data: bytes, where: str) -> dict[str, bytes]:
    """Files by name; their bytes are part of `data`, so they are no larger."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for entry in archive:
                if len(found) > limits.WEIGHTS or entry.size > len(data) or len(entry.name) > LONGEST:
                    raise DamagedFile(f"{where} holds more than {limits.WEIGHTS:,} files, or one larger than itself")
                file = archive.extractfile(entry) if entry.isreg() else None
                if file is None or (entry.name != GRAPH and not LABEL.fullmatch(entry.name.removesuffix(".dat"))):
                    raise DamagedFile(f"{where} holds '{entry.name}', which is no part of a model")
                if entry.name in found or (entry.name != GRAPH and not entry.name.endswith(".dat")):
                    raise DamagedFile(f"{where} holds '{entry.name}' twice, or it is no tensor file")
                found[entry.name] = file.read()
    except UserError:
        raise
    except (tarfile.TarError, OSError, *DAMAGE) as problem:  # Headers of headers are read by recursion.
        raise DamagedFile(f"{where} is damaged: it is no packed model ({in_words(problem)})") from None
    if GRAPH not in found:
        raise DamagedFile(f"{where} is damaged: it has no {GRAPH}")
    return found


def lines(folder: Path) -> list[Line]:
    content = read_bytes(folder / GRAPH, most=limits.GRAPH)
    try:
        return from_text(content.decode(), str(folder / GRAPH))
    except UnicodeDecodeError:
        raise DamagedFile(f"{folder / GRAPH} is damaged: it is no text") from None


def variables(found: list[Line], folder: Path) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for line in found:
        if line.operation == "variable":
            label, shape = line.named.get("label"), line.named.get("shape")
            if not isinstance(label, str) or not LABEL.fullmatch(label) or label in shapes:
                raise DamagedFile(f"{folder / GRAPH}: a tensor file cannot be called '{label}', or two are")
            if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
                raise DamagedFile(f"{folder / GRAPH}: '{label}' has no shape")
            shapes[label] = tuple(shape)
            if len(shapes) > limits.WEIGHTS or len(shape) > limits.DIMENSIONS:
                raise DamagedFile(
                    f"{folder / GRAPH} has more than {limits.WEIGHTS:,} weights, or {limits.DIMENSIONS} dimensions"
                )
    return shapes


def weights(shapes: Mapping[str, T]) -> dict[str, T]:
    return {label: one for label, one in shapes.items() if not label.startswith(CONSTANTS)}


def must_fit(shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, np.ndarray], where: str) -> None:
    if set(shapes) != set(tensors):
        other = sorted(set(shapes) ^ set(tensors))
        raise UserError(f"{where} has other weights: {', '.join(other[:3])}{' and others' if len(other) > 3 else ''}")
    for label, shape in shapes.items():
        if tensors[label].shape != shape:
            raise UserError(f"{where}: '{label}' is {list(tensors[label].shape)}; it should be {list(shape)}")


# -- tensor files (.dat): a header of 128 bytes, then the numbers, little-endian, last dimension first -----------------


def tensor_bytes(tensor: np.ndarray) -> bytes:
    dtype = tensor.dtype.newbyteorder("<")
    code, bits = next(kind for kind, name in TYPES.items() if np.dtype(name) == dtype)
    sizes = [*tensor.shape, *[0] * (MOST_DIMENSIONS - tensor.ndim)]
    numbers = np.ascontiguousarray(tensor, dtype=dtype).tobytes()
    return _LAYOUT.pack(MAGIC, *VERSION, len(numbers), tensor.ndim, *sizes, bits, code) + numbers


def tensor_of(data: bytes, where: str) -> np.ndarray:
    if len(data) < HEADER or data[:2] != MAGIC:
        raise DamagedFile(f"{where} is damaged: it is no tensor file of NNEF")
    _, major, minor, length, rank, *sizes, bits, code = _LAYOUT.unpack(data[:HEADER])
    if (major, minor) != VERSION:
        raise DamagedFile(f"{where} is of version {major}.{minor} of NNEF; 1.0 is read")
    if (code, bits) not in TYPES or rank > MOST_DIMENSIONS:
        raise DamagedFile(f"{where} is damaged: its header names no known type of number, or too many dimensions")
    dtype, shape = np.dtype(TYPES[code, bits]), tuple(sizes[:rank])
    if length != len(data) - HEADER or length != math.prod(shape) * dtype.itemsize:
        raise DamagedFile(f"{where} is damaged: its header says {list(shape)}, and it has {len(data) - HEADER} bytes")
    with reading(where):  # An array without numbers may still have sizes that are too large.
        return np.frombuffer(data, dtype, offset=HEADER).reshape(shape)
