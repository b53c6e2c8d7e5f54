"""Hidden units of a sequence of torch's layers, if it can be narrowed (see tensors.widths)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from torch import nn

from fedpareto.tensors.layout import Hidden

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NUMBER_BY_NUMBER = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Softsign),
    *(nn.Identity, nn.Dropout),
)
"""Layers that leave 0 as it is and mix no numbers. What is dropped is drawn for the widest network: a narrower one has
the same chances, not the same draws.
"""
CHANNEL_BY_CHANNEL = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d),
    *(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.LocalResponseNorm),
)
"""Layers on images that leave a channel of zeros as it is, and in which such a channel adds nothing to others: a local
response is normalised by the squares of neighbouring channels, and where these end by zeros.
"""


def hidden_layers(layers: Sequence[tuple[str, nn.Module]] | None, names: Collection[str]) -> tuple[Hidden, ...] | None:
    """The hidden layers of a network that runs `layers` one after the other; None: that is not known.

    `names` are the tensors of the whole network. What is before its first layer with weights or after its last one
    works on inputs or outputs, which stay whole.
    """
    if layers is None:
        return None
    weighted = [i for i, (_, layer) in enumerate(layers) if layer.state_dict()]
    if not weighted or any(type(layers[i][1]) not in (nn.Linear, *CONVOLUTIONS) for i in weighted):
        return None
    found = [_between(layers[first : second + 1], names) for first, second in pairwise(weighted)]
    known = tuple(hidden for hidden in found if hidden is not None)
    return known if len(known) == len(found) else None


def _between(layers: Sequence[tuple[str, Any]], names: Collection[str]) -> Hidden | None:
    """The outputs of the first of some layers, which are the inputs of the last; None: that is not known."""
    (before, first), *others, (after, last) = layers
    units, block = _units(first), _block(first, last, [layer for _, layer in others])
    bias = [(f"{before}.bias", 0, 1)] if first.bias is not None else []
    along = ((f"{before}.weight", 0, 1), *bias, (f"{after}.weight", 1, block))
    return Hidden(units, along) if block and all(name in names for name, *_ in along) else None


def _block(first: Any, last: Any, between: Sequence[nn.Module]) -> int:
    """Number of inputs of the last layer that each unit of the first one is, side by side; 0: that is not known."""
    on_images, flat = type(first) in CONVOLUTIONS, False
    for layer in between:
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            flat = True
        elif type(layer) not in (*NUMBER_BY_NUMBER, *(CHANNEL_BY_CHANNEL if on_images and not flat else ())):
            return 0
    if type(last) is nn.Linear:
        # Outputs of a linear layer may have more dimensions, of which the units are the last; images have them first.
        block, rest = divmod(last.in_features, _units(first))
        return block if not rest and (flat if on_images else block == 1) else 0
    return 1 if on_images and not flat and first.groups == 1 and last.groups == 1 else 0


def _units(layer: Any) -> int:
    return int(layer.out_features if type(layer) is nn.Linear else layer.out_channels)
