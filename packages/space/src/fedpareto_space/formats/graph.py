"""A network as both formats have it: named tensors, and steps from the input to the output.

Steps bear the names of NNEF's operations, which are few and well described; `onnx_files` has them as ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Size = int | str
"""Size of a dimension; a text if it depends on how many rows there are."""
Shape = tuple[Size, ...]
ROWS = "rows"
"""As many as are given; other texts are multiples of it."""
INPUT, OUTPUT = "x", "scores"
FREE = -1
"""In the shape of a `reshape`: what is left."""


@dataclass(frozen=True)
class Step:
    """One operation on tensors."""

    operation: str
    inputs: tuple[str | float, ...]
    """Names of tensors, or numbers."""
    output: str
    shape: Shape
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """A whole network without its weights: the same for all weights."""

    shape: Shape
    """Shape of the input; the first dimension is the rows."""
    dtype: str
    """Type of the input's numbers, as NumPy calls it."""
    variables: Mapping[str, tuple[int, ...]]
    """The weights' names and shapes, in the layout's order."""
    constants: Mapping[str, np.ndarray]
    """Tensors that no update changes."""
    steps: tuple[Step, ...]
    output: str
    """The name of the tensor that is the answer."""
    output_shape: Shape


def identifier(name: str) -> str:
    """A weight's name as a word of letters, digits and underscores."""
    return "w_" + "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
