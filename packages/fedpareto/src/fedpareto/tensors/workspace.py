"""Memory that is used again and again: on a CPU, new memory can cost more than a small product."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Workspace:
    """Tensors by name, whose values are lost as soon as the same name is taken again."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor on the CPU, with any values in it."""
        size, kept = math.prod(shape), self._kept.get(name)
        if kept is None or len(kept) < size or kept.dtype != dtype:
            kept = self._kept[name] = torch.empty(size, dtype=dtype)
        return kept[:size].view(shape)
