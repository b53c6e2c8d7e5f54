"""A model as NNEF: a folder with graph.nnef, which is the same for all weights, and a tensor file for each of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from fedpareto.errors import DamagedFile, UserError
from fedpareto.files import read_bytes, write_atomically
from fedpareto.space.formats import nnef_tensor
from fedpareto.space.formats.graph import Graph
from fedpareto.space.formats.nnef_text import CONSTANTS, Line, from_text, to_text

T = TypeVar("T")
GRAPH = "graph.nnef"
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
"""What a tensor file may be called: nothing outside of the folder."""


def write(graph: Graph, tensors: Mapping[str, np.ndarray], folder: Path, rows: int = 1) -> None:
    """A whole model that reads `rows` rows at once."""
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
        write_atomically(folder / f"{label}.dat", nnef_tensor.to_bytes(np.asarray(tensors[label], dtype=np.float32)))


def read(folder: Path) -> tuple[list[Line], dict[str, np.ndarray]]:
    """A whole model: the lines of its graph, and its weights."""
    found = lines(folder)
    shapes = variables(found, folder)
    tensors = {label: nnef_tensor.from_bytes(_bytes(folder, label), f"{folder / label}.dat") for label in shapes}
    must_fit(shapes, tensors, str(folder))
    return found, tensors


def lines(folder: Path) -> list[Line]:
    """The graph."""
    content = read_bytes(folder / GRAPH)
    try:
        return from_text(content.decode(), str(folder / GRAPH))
    except UnicodeDecodeError:
        raise DamagedFile(f"{folder / GRAPH} is damaged: it is no text") from None


def variables(found: list[Line], folder: Path) -> dict[str, tuple[int, ...]]:
    """The weights' names and shapes, in the graph's order."""
    shapes: dict[str, tuple[int, ...]] = {}
    for line in found:
        if line.operation == "variable":
            label, shape = line.named.get("label"), line.named.get("shape")
            if not isinstance(label, str) or not LABEL.fullmatch(label) or label in shapes:
                raise DamagedFile(f"{folder / GRAPH}: a tensor file cannot be called '{label}', or two are")
            if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
                raise DamagedFile(f"{folder / GRAPH}: '{label}' has no shape")
            shapes[label] = tuple(shape)
    return shapes


def weights(shapes: Mapping[str, T]) -> dict[str, T]:
    """Without constants."""
    return {label: one for label, one in shapes.items() if not label.startswith(CONSTANTS)}


def must_fit(shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, np.ndarray], where: str) -> None:
    """Refuses weights of another network."""
    if set(shapes) != set(tensors):
        other = sorted(set(shapes) ^ set(tensors))
        raise UserError(f"{where} has other weights: {', '.join(other[:3])}{' and others' if len(other) > 3 else ''}")
    for label, shape in shapes.items():
        if tensors[label].shape != shape:
            raise UserError(f"{where}: '{label}' is {list(tensors[label].shape)}; it should be {list(shape)}")


def _bytes(folder: Path, label: str) -> bytes:
    return read_bytes(folder / f"{label}.dat")
