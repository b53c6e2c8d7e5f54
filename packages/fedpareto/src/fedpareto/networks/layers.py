"""Layers that are not the same for a stack of clients as for one: statistics of rows, and what is dropped at random.

Each is torch's own forward pass written again, for `prepared` modules: for a minibatch of which some rows are padding,
with randomness from the client's stream, and with new statistics left in `Now` instead of in the module.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from fedpareto.config.errors import UserError
from fedpareto.networks.attention import attention
from fedpareto.networks.batch_norm import batch_norm
from fedpareto.networks.convolution import conv2d
from fedpareto.networks.embedding import embedding
from fedpareto.networks.recurrent import recurrent
from fedpareto.tensors.training import Current

NORMALISATIONS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
CHANNELS = {nn.Dropout1d: 3, nn.Dropout2d: 0, nn.Dropout3d: 5, nn.FeatureAlphaDropout: 0}
"""Layers that drop whole channels, and how many dimensions a minibatch has for them (0: any); with fewer dimensions
torch takes it for one row."""
ALPHA = -1.7580993408473766
"""Value that a self-normalising network takes instead of a dropped one (Klambauer et al., 2017)."""


def prepared(module: nn.Module, current: Current) -> nn.Module:
    """A copy whose layers look at `current` where torch's own cannot be stacked, or not without a generator."""
    own = copy.deepcopy(module)
    for name, layer in own.named_modules():
        _check(name, layer)
        forward = FORWARDS.get(type(layer).forward)
        if forward is not None:
            layer.forward = partial(forward, layer, name, current)
        # torch's shortcuts for evaluation cannot be stacked.
        if isinstance(layer, nn.TransformerEncoderLayer):
            layer.activation_relu_or_gelu = 0
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False
    return own


def _check(name: str, layer: nn.Module) -> None:
    """Refuse layers that would give wrong numbers in a stack."""
    if isinstance(layer, _BatchNorm) and (not layer.track_running_stats or layer.momentum is None):
        raise UserError(
            f"the layer '{name}' keeps no running statistics with a momentum, without which what is said of a row "
            "depends on the other rows; leave track_running_stats and momentum as they are"
        )
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        raise UserError(f"the layer '{name}' is an InstanceNorm with running statistics; only BatchNorm may have them")
    if isinstance(layer, nn.Embedding) and (layer.max_norm is not None or layer.scale_grad_by_freq or layer.sparse):
        raise UserError(f"the layer '{name}' has max_norm, scale_grad_by_freq or sparse, which are not stacked")


def is_noisy(layer: nn.Module) -> bool:
    """True if a layer without parameters draws random numbers."""
    return type(layer).forward in DROPOUTS


# -- dropout -------------------------------------------------------------------------------------------------------


def dropout(layer: Any, name: str, current: Current, rows: Tensor) -> Tensor:
    """Any of torch's layers that drop values or whole channels, rescaled so that the mean stays."""
    now, p = current.now, float(layer.p)
    if not now.training or not p:
        return rows
    if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
        keeps = now.keeps(name, _dropped_together(layer, rows), p, rows.dtype)
        scale = 0.0 if p == 1 else ((1 - p) * (1 + p * ALPHA**2)) ** -0.5
        return scale * (rows * keeps + ALPHA * (1 - keeps)) - scale * ALPHA * p
    return now.dropped(name, rows, p, _dropped_together(layer, rows))


def _dropped_together(layer: nn.Module, rows: Tensor) -> tuple[int, ...]:
    """Shape of the draws: one number for each value, or for each channel."""
    dimensions = next((count for kind, count in CHANNELS.items() if isinstance(layer, kind)), None)
    if dimensions is None:
        return tuple(rows.shape)
    which = 1 if rows.dim() == dimensions - 1 else 2
    return (*rows.shape[:which], *[1] * (rows.dim() - which))


DROPOUTS = {
    kind.forward
    for kind in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
}
FORWARDS: dict[Callable[..., Any], Callable[..., Any]] = {
    **dict.fromkeys(DROPOUTS, dropout),
    _BatchNorm.forward: batch_norm,
    nn.SyncBatchNorm.forward: batch_norm,
    nn.Conv2d.forward: conv2d,
    nn.MultiheadAttention.forward: attention,
    nn.Embedding.forward: embedding,
    nn.RNN.forward: recurrent,
    nn.LSTM.forward: recurrent,
    nn.GRU.forward: recurrent,
}
"""Own forward passes by torch's: a layer of somebody's own, with another one, stays as it is."""
