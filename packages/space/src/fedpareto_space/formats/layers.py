"""Operators of torch that are whole layers: products, convolutions, pooling, means and normalisation."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from fedpareto_space.formats.graph import Shape
from fedpareto_space.formats.lowering import Lowering, NotHeld, Value, whole
from fedpareto_space.formats.operators import of, paired

# -- products ------------------------------------------------------------------------------------------------------


@of("mm", "bmm")
def product(to: Lowering, node: Node, x: Value, y: Value) -> Value:
    """A stack of one is a matrix."""
    wanted = to.shape_of(node)
    fixed = len(wanted) - 2 if wanted[0] == 1 else 0
    names = (to.need(x, x.shape[fixed:]), to.need(y, y.shape[fixed:]))
    return to.step("matmul", names, wanted[fixed:]).seen(wanted)


@of("addmm", "baddbmm")
def added_product(to: Lowering, node: Node, bias: Value, x: Value, y: Value) -> Value:
    """x·y + b."""
    return paired(to, "add", product(to, node, x, y), bias)


@of("embedding")
def embedded(to: Lowering, node: Node, vectors: Value, numbers: Value, *_: Any) -> Value:
    """The vector of each number."""
    table, width = to.need(vectors), vectors.shape[-1]
    found = to.step("gather", (table, to.need(numbers, numbers.made)), (*numbers.made, width), size=vectors.shape[0])
    return found.seen(to.shape_of(node))


# -- images --------------------------------------------------------------------------------------------------------


@of("convolution")
def convolution(
    to: Lowering,
    node: Node,
    x: Value,
    kernel: Value,
    bias: Value | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    _: list[int],
    groups: int,
) -> Value:
    """Also of one dimension or three."""
    if transposed:
        raise NotHeld("the network has a transposed convolution, for which there is no translation")
    inputs = [to.need(x), to.need(kernel)]
    inputs += [] if bias is None else [to.need(bias, (1, *bias.shape))]
    sides = [(size, size) for size in padding]
    about: dict[str, Any] = {"padding": sides, "stride": stride, "dilation": dilation, "groups": groups}
    return to.step("conv", inputs, to.shape_of(node), **about)


@of("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    to: Lowering,
    node: Node,
    x: Value,
    size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | None = None,
    dilation: list[int] | None = None,
    ceil: bool = False,
) -> list[Value]:
    """The largest of each window."""
    about = _windows(x, size, stride, padding, dilation, ceil)
    return [to.step("max_pool", (to.need(x),), to.shape_of(node, 0), border="ignore", **about)]


@of("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    to: Lowering,
    node: Node,
    x: Value,
    size: list[int],
    stride: list[int] | None = None,
    padding: list[int] | None = None,
    ceil: bool = False,
    count_padding: bool = True,
    divisor: int | None = None,
) -> Value:
    """The mean of each window; padding counts as zeros, or not at all."""
    if divisor is not None:
        raise NotHeld("the network has an average pooling with a divisor of its own")
    about = _windows(x, size, stride, padding, None, ceil)
    border = "constant" if count_padding else "ignore"
    return to.step("avg_pool", (to.need(x),), to.shape_of(node), border=border, **about)


def _windows(
    x: Value,
    size: list[int],
    stride: list[int] | None,
    padding: list[int] | None,
    dilation: list[int] | None,
    ceil: bool,
) -> dict[str, Any]:
    """In all dimensions, also in those that are not pooled."""
    if ceil:
        raise NotHeld("the network has a pooling with ceil_mode, for which there is no translation")
    rest, along = [1] * (len(x.shape) - len(size)), len(size)
    sides = _each(padding or [0], along)
    return {
        "size": [*rest, *size],
        "padding": [*[(0, 0)] * len(rest), *[(side, side) for side in sides]],
        "stride": [*rest, *(stride or size)],
        "dilation": [*rest, *_each(dilation or [1], along)],
    }


def _each(sizes: list[int], count: int) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else list(sizes)


# -- sums and normalisation ------------------------------------------------------------------------------------------

REDUCTIONS = {"mean": "mean_reduce", "sum": "sum_reduce", "amax": "max_reduce", "amin": "min_reduce"}


@of(*REDUCTIONS)
def reduced(to: Lowering, node: Node, x: Value, axes: list[int] | None = None, *_: Any) -> Value:
    """Over some axes, or all of them but the rows'."""
    name = REDUCTIONS[node.target._schema.name.removeprefix("aten::")]  # type: ignore[union-attr]
    along = sorted(axis % len(x.shape) for axis in (axes or range(len(x.shape))))
    return _over(to, name, x, along).seen(to.shape_of(node))


def _over(to: Lowering, name: str, x: Value, axes: list[int]) -> Value:
    kept: Shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    for axis in axes:
        whole(x.shape[axis])
    return to.step(name, (to.need(x),), kept, axes=axes)


@of("_native_batch_norm_legit_no_training")
def batch_norm(
    to: Lowering,
    node: Node,
    x: Value,
    scale: Value | None,
    offset: Value | None,
    mean: Value,
    variance: Value,
    _: float,
    epsilon: float,
) -> list[Value]:
    """By running statistics, which are weights too. Nothing is folded into the layer before."""
    channels: Shape = (1, *mean.shape)
    given = (mean, variance, offset or to.full(0.0, mean.shape), scale or to.full(1.0, mean.shape))
    names = [to.need(x), *(to.need(one, channels) for one in given)]
    return [to.step("batch_normalization", names, x.shape, epsilon=float(epsilon))]


@of("native_group_norm")
def group_norm(
    to: Lowering,
    node: Node,
    x: Value,
    scale: Value | None,
    offset: Value | None,
    rows: Any,
    channels: int,
    area: int,
    groups: int,
    epsilon: float,
) -> list[Value]:
    """Mean 0 and variance 1 in each group of channels, then a scale and an offset for each channel."""
    values = _normal(to, x.seen((x.shape[0], groups, channels // groups * area)), [2], epsilon).seen(x.shape)
    shape = (1, channels, *[1] * (len(x.shape) - 2))
    return [_scaled(to, values, scale, offset, shape)]


@of("native_layer_norm")
def layer_norm(
    to: Lowering, node: Node, x: Value, shape: list[int], scale: Value | None, offset: Value | None, epsilon: float
) -> list[Value]:
    """Mean 0 and variance 1 over the last dimensions."""
    rank, last = len(x.shape), len(shape)
    values = _normal(to, x, list(range(rank - last, rank)), epsilon)
    return [_scaled(to, values, scale, offset, (*[1] * (rank - last), *shape))]


def _normal(to: Lowering, x: Value, axes: list[int], epsilon: float) -> Value:
    centred = paired(to, "sub", x, _over(to, "mean_reduce", x, axes))
    variance = _over(to, "mean_reduce", paired(to, "mul", centred, centred), axes)
    spread = paired(to, "add", variance, float(epsilon))
    return paired(to, "div", centred, to.step("sqrt", (to.need(spread),), spread.shape))


def _scaled(to: Lowering, values: Value, scale: Value | None, offset: Value | None, shape: Shape) -> Value:
    values = values if scale is None else paired(to, "mul", values, scale.seen(shape))
    return values if offset is None else paired(to, "add", values, offset.seen(shape))
