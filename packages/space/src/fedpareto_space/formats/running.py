"""A model in NNEF as a torch module, read from its files alone: nothing of the problem or its code is needed.

Each function has an operation's name and parameters as the standard has them. Its weights can be trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedpareto.config import limits
from fedpareto.config.errors import DamagedFile, UserError
from fedpareto_space.formats import nnef
from fedpareto_space.formats.nnef_text import CONSTANTS, Line, Name

Pairs = Sequence[tuple[int, int]]
REFUSED = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError)
"""Exceptions of torch and Python for arguments that make no sense."""


class Model(nn.Module):
    """Rows in, scores out."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._lines, tensors = nnef.read(folder)
        self._where, self._labels = str(folder / nnef.GRAPH), list(tensors)
        self._weights = nn.ParameterList(
            nn.Parameter(torch.from_numpy(tensor.copy()), requires_grad=not label.startswith(CONSTANTS))
            for label, tensor in tensors.items()
        )
        for line in self._lines:
            if line.operation not in OPERATIONS and line.operation not in ("external", "variable"):
                raise UserError(f"{self._where} has the operation '{line.operation}', which is not read")

    def forward(self, x: Tensor) -> Tensor:
        """As many rows as the graph says."""
        weights = dict(zip(self._labels, self._weights, strict=True))
        values: dict[str, Any] = {}
        for line in self._lines:
            if line.operation == "external":
                found: Any = self._given(x, line)
            elif line.operation == "variable":
                found = weights[line.named["label"]]
            else:
                found = self._step(line, values)
            values[line.results[0]] = found
        answer: Tensor = values[self._lines[-1].results[0]]
        return answer

    def _given(self, x: Tensor, line: Line) -> Tensor:
        if list(x.shape) != line.named.get("shape"):
            raise UserError(f"{self._where} reads {line.named.get('shape')}, and not {list(x.shape)}")
        return x.float()

    def _step(self, line: Line, values: dict[str, Any]) -> Any:
        def known(value: Any) -> Any:
            if isinstance(value, Name):
                return values[value.name]
            return [known(one) for one in value] if isinstance(value, list) else value

        try:
            arguments = [known(value) for value in line.arguments]
            found = OPERATIONS[line.operation](*arguments, **{name: known(value) for name, value in line.named.items()})
            _must_have_room(found.numel())
            return found
        except REFUSED as problem:
            why = str(problem).partition("\n")[0]
            raise DamagedFile(f"{self._where}: '{line.results[0]}' cannot be computed ({why})") from None


def _must_have_room(numbers: int) -> None:
    """A line doubles a tensor, and forty lines a trillion times."""
    if numbers > limits.NUMBERS:
        raise ValueError(f"it would have more than {limits.NUMBERS:,} numbers")


def tile(input: Tensor, repeats: list[int]) -> Tensor:
    _must_have_room(input.numel() * math.prod(repeats))
    return input.repeat(*repeats)


def _padded(input: Tensor, padding: Pairs, value: float = 0.0) -> Tensor:
    sizes = [size + sum(pair) for size, pair in zip(reversed(input.shape), reversed(padding), strict=False)]
    _must_have_room(math.prod(sizes) * math.prod(input.shape[: input.dim() - len(sizes)]))
    return F.pad(input, _sides(padding), value=value)


def _left(x: Any, y: Any) -> tuple[Any, Any]:
    """Dimensions are counted from the first: those that one of the two lacks are its last."""
    if isinstance(x, Tensor) and isinstance(y, Tensor):
        rank = max(x.dim(), y.dim())
        return x.reshape(*x.shape, *[1] * (rank - x.dim())), y.reshape(*y.shape, *[1] * (rank - y.dim()))
    return (x, torch.tensor(y)) if isinstance(x, Tensor) else (torch.tensor(x), y)


def _pair(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda x, y: function(*_left(x, y))


def reshape(input: Tensor, shape: list[int], axis_start: int = 0, axis_count: int = -1) -> Tensor:
    """A 0 keeps a size, a −1 is what is left."""
    last = input.dim() if axis_count == -1 else axis_start + axis_count
    own = input.shape[axis_start:last]
    wanted = [own[place] if size == 0 else size for place, size in enumerate(shape)]
    return input.reshape(*input.shape[:axis_start], *wanted, *input.shape[last:])


def slice_(input: Tensor, axes: list[int], begin: list[int], end: list[int]) -> Tensor:
    """An end of 0 is that of the tensor."""
    for axis, first, last in zip(axes, begin, end, strict=True):
        size = input.shape[axis]
        input = input.narrow(axis, first % size, (last or size) - first % size)
    return input


def conv(
    input: Tensor,
    filter: Tensor,
    bias: Any = 0.0,
    border: str = "constant",
    padding: Pairs = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
) -> Tensor:
    along = input.dim() - 2
    function: Any = (F.conv1d, F.conv2d, F.conv3d)[along - 1]
    flat = bias.reshape(-1) if isinstance(bias, Tensor) else None
    padded = _padded(input, padding)
    return function(padded, filter, flat, list(stride) or 1, 0, list(dilation) or 1, groups)  # type: ignore[no-any-return]


def max_pool(
    input: Tensor, size: list[int], border: str, padding: Pairs, stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Padding never wins."""
    padded = _padded(input, padding, -torch.inf)
    function: Any = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[input.dim() - 3]
    return function(padded, size[2:], list(stride)[2:], 0, list(dilation)[2:])  # type: ignore[no-any-return]


def avg_pool(
    input: Tensor, size: list[int], border: str, padding: Pairs, stride: Sequence[int], dilation: Sequence[int]
) -> Tensor:
    """Padding counts as zeros where the border is constant."""
    function: Any = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[input.dim() - 3]
    sides = [before for before, _ in padding][2:]
    return function(input, size[2:], list(stride)[2:], sides, False, border == "constant")  # type: ignore[no-any-return]


def _sides(padding: Pairs) -> list[int]:
    """torch begins with the last dimension."""
    return [size for pair in reversed(padding) for size in pair]


def batch_normalization(
    input: Tensor, mean: Tensor, variance: Tensor, offset: Any, scale: Any, epsilon: float
) -> Tensor:
    weight, bias = (one.reshape(-1) if isinstance(one, Tensor) else None for one in (scale, offset))
    return F.batch_norm(input, mean.reshape(-1), variance.reshape(-1), weight, bias, False, 0.0, epsilon)


def softmax(x: Tensor, axes: Sequence[int] = (1,)) -> Tensor:
    (axis,) = axes
    return x.softmax(axis)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "reshape": reshape,
    "slice": slice_,
    "conv": conv,
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "batch_normalization": batch_normalization,
    "softmax": softmax,
    "copy": lambda x: x,
    "transpose": lambda input, axes: input.permute(axes),
    "concat": torch.cat,
    "tile": tile,
    "matmul": lambda A, B: A @ B,
    "select": torch.where,
    "mean_reduce": lambda input, axes: input.mean(axes, keepdim=True),
    "sum_reduce": lambda input, axes: input.sum(axes, keepdim=True),
    "max_reduce": lambda input, axes: input.amax(axes, keepdim=True),
    "min_reduce": lambda input, axes: input.amin(axes, keepdim=True),
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "silu": F.silu,
    "rcp": lambda x: x.reciprocal(),
    **{name: getattr(torch, name) for name in ("relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "neg", "abs")},
    **{name: getattr(torch, name) for name in ("sin", "cos")},
    **{name: _pair(getattr(torch, name)) for name in ("add", "sub", "mul", "div", "pow", "eq")},
    "max": _pair(torch.maximum),
    "min": _pair(torch.minimum),
}
