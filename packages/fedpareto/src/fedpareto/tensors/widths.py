"""Narrower networks as slices of a wide one: the first units of each hidden layer, and 0 in place of the others.

Such a slice is the narrower network itself, in training too, if what lies between two layers leaves 0 as it is and
mixes no units, as ReLU does. All that comes into a unit that is left out is 0, and so is all that goes out of it.

- Nothing comes in, so its activation is f(0) = 0: it adds to the next layer what a unit adds that is not there.
- The gradient of what goes out is this activation times what comes back, 0.
- What comes back to the unit has passed through what goes out, and is 0; so is the gradient of what comes in.

A step whose gradient is 0 leaves 0 as it is, with momentum, Adam, weight decay and a clipped gradient as well. So
slices of all widths are trained as one stack of models `[n, d]`. Which layers allow that is for networks to say, in
`Layout.hidden`: one with f(0) ≠ 0 (a sigmoid) does not, nor one that mixes units (normalisation layers).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.tensors.layout import Layout

ROUNDING = 1e-9
"""0.3 of 10 units are 3, whatever the floating-point product is."""


def slice_of(layout: Layout, share: float | Sequence[float]) -> Tensor:
    """True for entries of a flat model in its slice of this width, or of one for each hidden layer, booleans `[d]`.

    Every hidden layer keeps its first ⌈share · units⌉ units; inputs and outputs of the whole network stay as they are.
    The entries that are kept, in their order, are the flat model of the narrower network.
    """
    layers = 1 if layout.hidden is None else len(layout.hidden)
    shares = [share] * layers if isinstance(share, float | int) else share
    if all(each == 1 for each in shares):
        return torch.ones(layout.size, dtype=torch.bool)
    if layout.hidden is None:
        raise UserError(f"the model cannot be narrowed to {min(shares):g} of its width: {_reason(layout)}")
    shapes = dict(zip(layout.dense.names, layout.dense.shapes, strict=True))
    marks = {name: torch.ones(shape, dtype=torch.bool) for name, shape in shapes.items()}
    for hidden, each in zip(layout.hidden, shares, strict=True):
        kept = math.ceil(each * hidden.units - ROUNDING)
        for name, dimension, block in hidden.along:
            unit = torch.arange(shapes[name][dimension]) // block % hidden.units
            marks[name].index_fill_(dimension, (unit >= kept).nonzero().flatten(), False)
    return layout.of_dense(layout.flatten(marks))


def cost_of(layout: Layout, mask: Tensor) -> tuple[float, float]:
    """Share of a network's multiplications that a slice needs, and share of its entries that it has.

    Each weight counts once; in a convolution it is used as often as any other of the same layer, but a layer that sees
    more pixels counts no more than others.
    """
    if bool(mask.all()):
        return 1.0, 1.0
    shapes = dict(zip(layout.dense.names, layout.dense.shapes, strict=True))
    used = {name for hidden in layout.hidden or () for name, *_ in hidden.along}
    factors = layout.marked(name for name in used if len(shapes[name]) > 1)
    return float(mask[factors].double().mean()), float(mask.double().mean())


def _reason(layout: Layout) -> str:
    if layout.normalisation:
        return f"'{layout.normalisation[0]}' is of a normalisation layer, which a narrower network has otherwise"
    return "only linear and convolutional layers with ReLU or the like between them, f(0) = 0, are known to allow it"
