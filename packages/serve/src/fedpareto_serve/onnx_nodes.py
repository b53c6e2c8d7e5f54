"""The nodes of a graph of ONNX, as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

OPSET, IR_VERSION = 17, 8
"""Versions of 2022: old enough for every runtime in use."""


class Nodes:
    """Nodes in their order."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []
        self._constants: dict[tuple[Any, ...], str] = {}

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """A node; returns the name of its output."""
        from onnx import helper

        name = output or f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Numbers that no update changes; returns their name."""
        from onnx import numpy_helper

        array = np.array(value, dtype=dtype)
        key = array.tobytes(), array.shape, array.dtype.str
        if key not in self._constants:
            self._constants[key] = self.add("Constant", value=numpy_helper.from_array(array))
        return self._constants[key]

    def initialiser(self, value: Any, name: str = "") -> str:
        """A tensor of the model in single precision; returns its name."""
        from onnx import numpy_helper

        name = name or f"weight_{len(self.initialisers)}"
        self.initialisers.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=np.float32), name))
        return name

    def whole(self, numbers: Sequence[int]) -> str:
        """A list of whole numbers, such as axes."""
        return self.constant(np.array(numbers), np.int64)
