"""Layers that are not the same for a stack of clients as for one: statistics of rows, and what is dropped at random.

Each is torch's own forward pass written again, for `prepared` modules: for a minibatch of which some rows are padding,
with randomness from the client's stream, and with new statistics left in `Now` instead of in the module.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from fedpareto.errors import UserError
from fedpareto.networks.attention import attention
from fedpareto.networks.convolution import conv2d
from fedpareto.networks.embedding import embedding
from fedpareto.networks.recurrent import recurrent
from fedpareto.networks.training import Current

NORMALISATIONS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
CHANNELS = {nn.Dropout1d: 3, nn.Dropout2d: 0, nn.Dropout3d: 5, nn.FeatureAlphaDropout: 0}
"""Layers that drop whole channels, and how many dimensions a minibatch has for them (0: any); with fewer dimensions
torch takes it for one row."""
ALPHA = -1.7580993408473766
"""What a self-normalising network takes instead of a dropped value (Klambauer et al., 2017)."""


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
    """Refuses what would give wrong numbers in a stack."""
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
    """Whether a layer without parameters draws random numbers."""
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
    """One number for each value, or for each channel."""
    dimensions = next((count for kind, count in CHANNELS.items() if isinstance(layer, kind)), None)
    if dimensions is None:
        return tuple(rows.shape)
    which = 1 if rows.dim() == dimensions - 1 else 2
    return (*rows.shape[:which], *[1] * (rows.dim() - which))


# -- batch normalisation -------------------------------------------------------------------------------------------


def batch_norm(layer: Any, name: str, current: Current, rows: Tensor) -> Tensor:
    """Ioffe and Szegedy, 2015: by the minibatch's real rows in training, by running statistics in evaluation.

    A minibatch of one row has a variance of 0, where torch refuses it: a client's last one may be so small.
    """
    now, mean, variance = current.now, layer.running_mean, layer.running_var
    if not now.training:
        # A server's long step, or its noise, may leave a variance below 0.
        return F.batch_norm(rows, mean, variance.clamp_min(0), layer.weight, layer.bias, False, 0.0, layer.eps)
    assert now.mask is not None, "which is what training means"
    if len(rows) != len(now.mask):
        raise UserError(
            f"the layer '{name}' gets {len(rows)} rows of a minibatch of {len(now.mask)}; padding could not be told "
            "apart, so batch normalisation needs one row for each row of data"
        )
    values = rows.to(mean.dtype)
    over = [0, *range(2, rows.dim())]
    real = now.mask.view(-1, *[1] * (rows.dim() - 1))
    count = (now.mask.sum() * (rows[0, 0].numel() if rows.dim() > 2 else 1)).clamp_min(1)
    here = (values * real).sum(over, keepdim=True) / count
    # Padding is set to the mean: where real rows hardly differ, it would grow from layer to layer until it overflows.
    centred = (values - here) * real
    spread = centred.square().sum(over, keepdim=True) / count
    unbiased = spread * (count / (count - 1).clamp_min(1))
    for part, old, new in (("running_mean", mean, here), ("running_var", variance, unbiased)):
        before = now.buffers.get(f"{name}.{part}", old)
        now.buffers[f"{name}.{part}"] = torch.lerp(before, new.detach().flatten(), layer.momentum)
    result: Tensor = centred * (spread + layer.eps).rsqrt()
    if layer.weight is not None:
        channels = (1, -1, *[1] * (rows.dim() - 2))
        result = result * layer.weight.view(channels) + layer.bias.view(channels)
    return result.to(rows.dtype)


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
"""By torch's forward pass, ours: a layer of somebody's own, with another one, stays as it is."""
