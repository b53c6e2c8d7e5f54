"""Layers that are not the same for a stack of clients as for one: statistics of rows, and what is dropped at random.

Each is torch's own forward pass written again, for `prepared` modules: for a minibatch of which some rows are padding,
with randomness from the client's stream, and with new statistics left in `Now` instead of in the module.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from fedpareto.config.errors import UserError
from fedpareto.networks.convolution import conv2d
from fedpareto.networks.embedding import embedding
from fedpareto.networks.lstm import stacked_lstm
from fedpareto.tensors.training import Current, Now

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


# -- attention -----------------------------------------------------------------------------------------------------


def attention(
    layer: Any,
    name: str,
    current: Current,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Vaswani et al., 2017, as torch's nn.MultiheadAttention has it; `is_causal` only explains `attn_mask` there."""
    del is_causal
    if layer.bias_k is not None or layer.add_zero_attn:
        raise UserError(f"the layer '{name}' has add_bias_kv or add_zero_attn, which is not stacked; leave it out")
    if query.dim() != 3:
        raise UserError(f"the layer '{name}' gets {query.dim()} dimensions; attention is stacked for minibatches")
    if not layer.batch_first:
        query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    heads = [
        _split(F.linear(tensor, weight, bias), layer.num_heads)
        for tensor, (weight, bias) in zip((query, key, value), _projections(layer), strict=True)
    ]
    scores = heads[0] @ heads[1].mT / math.sqrt(layer.head_dim)  # [b, heads, t, s]
    if attn_mask is not None:
        whole = attn_mask.view(-1, *scores.shape[1:]) if attn_mask.dim() == 3 else attn_mask
        scores = scores + _added(whole, scores)
    if key_padding_mask is not None:
        scores = scores + _added(key_padding_mask[:, None, None], scores)
    weights = current.now.dropped(name, scores.softmax(-1), layer.dropout)
    values = F.linear((weights @ heads[2]).transpose(1, 2).flatten(2), layer.out_proj.weight, layer.out_proj.bias)
    if not layer.batch_first:
        values = values.transpose(0, 1)
    if not need_weights:
        return values, None
    return values, weights.mean(1) if average_attn_weights else weights


def _split(values: Tensor, heads: int) -> Tensor:
    return values.view(*values.shape[:2], heads, -1).transpose(1, 2)


def _projections(layer: Any) -> list[tuple[Tensor, Tensor | None]]:
    if layer.in_proj_weight is not None:
        weights = layer.in_proj_weight.chunk(3)
    else:
        weights = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    return list(zip(weights, biases, strict=True))


def _added(mask: Tensor, scores: Tensor) -> Tensor:
    """Values that a mask adds to scores: minus infinity where it is true, or its own numbers."""
    if mask.dtype != torch.bool:
        return mask.to(scores.dtype)
    return torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask, -math.inf)


# -- batch normalisation -------------------------------------------------------------------------------------------


def batch_norm(layer: Any, name: str, current: Current, rows: Tensor) -> Tensor:
    """torch's layer: by the minibatch's real rows in training, by running statistics in evaluation.

    Ioffe and Szegedy, "Batch normalization: accelerating deep network training by reducing internal covariate shift",
    2015. A minibatch of one row has a variance of 0, where torch refuses it: a client's last one may be so small.
    """
    now, mean, variance = current.now, layer.running_mean, layer.running_var
    if not now.training:
        # A server's long step, or its noise, may leave a variance below 0.
        variance = variance.clamp_min(0)
        if rows.is_cuda:  # torch's own asks there how its rows lie, which vmap does not tell.
            channels = (1, -1, *[1] * (rows.dim() - 2))
            normal = (rows - mean.view(channels)) * (variance + layer.eps).rsqrt().view(channels)
            return _scaled(normal, layer).to(rows.dtype)
        return F.batch_norm(rows, mean, variance, layer.weight, layer.bias, False, 0.0, layer.eps)
    assert now.mask is not None, "which is what training means"
    if len(rows) != len(now.mask):
        raise UserError(
            f"the layer '{name}' gets {len(rows)} rows of a minibatch of {len(now.mask)}; padding could not be told "
            "apart, so batch normalisation needs one row for each row of data"
        )

    def kernel(rows: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return stacked_batch_norm(rows, mask, layer.eps)

    values: Tensor
    values, here, spread = now.call(kernel, rows.to(mean.dtype), now.mask.to(mean.dtype))
    for part, old, new in (("running_mean", mean, here), ("running_var", variance, spread)):
        before = now.buffers.get(f"{name}.{part}", old)
        now.buffers[f"{name}.{part}"] = torch.lerp(before, new, layer.momentum)
    return _scaled(values, layer).to(rows.dtype)


def _scaled(values: Tensor, layer: Any) -> Tensor:
    """Normal values `[b, c, ...]` by the layer's own weight and bias, if it has them."""
    if layer.weight is None:
        return values
    channels = (1, -1, *[1] * (values.dim() - 2))
    return torch.addcmul(layer.bias.view(channels), values, layer.weight.view(channels))


def stacked_batch_norm(inputs: Tensor, mask: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs `[n, b, c, ...]` with mean 0 and variance 1 over the real rows of `mask` `[n, b]`; padding is 0.

    Also the mean and the unbiased variance, `[n, c]` each, which have no gradient.
    """
    results: tuple[Tensor, Tensor, Tensor] = _StackedBatchNorm.apply(inputs, mask, eps)  # type: ignore[no-untyped-call]
    return results


class _StackedBatchNorm(torch.autograd.Function):
    # Its gradient is written out: what a ResNet-18 keeps for it takes 64 MiB where autograd kept 80.

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, mask: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        n, rows, channels = inputs.shape[:3]
        values = inputs.reshape(n, rows, channels, -1)
        real = mask.view(n, rows, 1, 1)
        count = (mask.sum(1) * values.shape[3]).clamp_min(1).view(n, 1, 1, 1)
        mean = (values * real).sum((1, 3), keepdim=True).div_(count)
        # Padding is set to 0: where real rows hardly differ, it would grow from layer to layer until it overflows.
        normal = (values - mean).mul_(real)
        variance = torch.linalg.vector_norm(normal, dim=(1, 3), keepdim=True).square_().div_(count)
        scale = (variance + eps).rsqrt_()
        normal.mul_(scale)
        ctx.save_for_backward(normal, real, scale, count)
        unbiased = variance * (count / (count - 1).clamp_min(1))
        statistics = mean.view(n, channels), unbiased.view(n, channels)
        ctx.mark_non_differentiable(*statistics)
        return normal.view(inputs.shape), *statistics

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        """Gradient of the inputs: without its mean and without its part along the outputs."""
        normal, real, scale, count = ctx.saved_tensors
        own = gradient.reshape(normal.shape) * real
        mean = own.sum((1, 3), keepdim=True).div_(count)
        along = (own * normal).sum((1, 3), keepdim=True).div_(count)
        own.sub_(mean).addcmul_(normal, along, value=-1).mul_(real).mul_(scale)
        return own.view(gradient.shape), None, None


# -- recurrent layers ----------------------------------------------------------------------------------------------


Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weights of the inputs `[g, e]`, of the state `[g, h]`, and a bias for each, `[g]`; g is h for each gate."""


def recurrent(layer: Any, name: str, current: Current, rows: Any, hx: Any = None) -> tuple[Tensor, Any]:
    """The outputs of torch's nn.RNN, nn.LSTM or nn.GRU, and its state after the last step."""
    if not isinstance(rows, Tensor) or rows.dim() != 3:
        raise UserError(f"the layer '{name}' is stacked for minibatches of equal length, [rows, steps, numbers]")
    if layer.proj_size:
        raise UserError(f"the layer '{name}' has a proj_size, which is not stacked; take a linear layer after it")
    now, values = current.now, rows if layer.batch_first else rows.transpose(0, 1)
    values = values.to(layer.weight_ih_l0.dtype)  # Where precision is mixed, layers before it may give a lower one.
    directions = 2 if layer.bidirectional else 1
    starts = _starts(layer, values, hx)
    ends = []
    for i in range(layer.num_layers):
        if i:
            values = now.dropped(f"{name} {i}", values, layer.dropout)
        outputs = []
        for direction in range(directions):
            here = values.flip(1) if direction else values
            before = [state[i * directions + direction] for state in starts]
            after, *end = _through(layer, now, here, before, _weights(layer, i, direction))
            outputs.append(after.flip(1) if direction else after)
            ends.append(end)
        values = torch.cat(outputs, dim=-1)
    states = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    return values if layer.batch_first else values.transpose(0, 1), states if len(states) > 1 else states[0]


def _starts(layer: Any, values: Tensor, hx: Any) -> tuple[Tensor, ...]:
    """The states before the first step, `[layers · directions, b, h]` each: an LSTM has two, others one."""
    given = () if hx is None else hx if isinstance(hx, tuple) else (hx,)
    if given:
        return given
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    nothing = values.new_zeros(count, values.shape[0], layer.hidden_size)
    return (nothing, nothing) if isinstance(layer, nn.LSTM) else (nothing,)


def _weights(layer: Any, number: int, direction: int) -> Weights:
    suffix = f"l{number}{'_reverse' if direction else ''}"
    of_input, of_state = getattr(layer, f"weight_ih_{suffix}"), getattr(layer, f"weight_hh_{suffix}")
    if not layer.bias:
        nothing = of_input.new_zeros(len(of_input))
        return of_input, of_state, nothing, nothing
    return of_input, of_state, getattr(layer, f"bias_ih_{suffix}"), getattr(layer, f"bias_hh_{suffix}")


def _through(layer: Any, now: Now, values: Tensor, before: list[Tensor], weights: Weights) -> tuple[Tensor, ...]:
    """Outputs `[b, steps, h]` of inputs `[b, steps, e]` through one layer in one direction, and its last state."""
    if isinstance(layer, nn.LSTM):
        lstm: tuple[Tensor, ...] = now.call(_lstm, values, *before, *weights)
        return lstm
    kernel: Callable[..., Tensor] = _gru
    if not isinstance(layer, nn.GRU):
        kernel = partial(_elman, torch.relu if layer.nonlinearity == "relu" else torch.tanh)
    outputs: Tensor = now.call(kernel, values, *before, *weights)
    return outputs, outputs[:, -1]


# -- kernels of a stack, `[n, b, steps, e]` ------------------------------------------------------------------------


def _lstm(values: Tensor, state: Tensor, cell: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    of_input, of_state, bias, more = weights
    steps_first = values.permute(2, 0, 1, 3)
    outputs, last = stacked_lstm(
        steps_first, of_input.mT.contiguous(), of_state.mT.contiguous(), bias + more, state, cell
    )
    return outputs.permute(1, 2, 0, 3), outputs[-1], last


def _elman(squash: Any, values: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
    """h ← σ(W x + b + U h + c)."""
    of_input, of_state, bias, more = weights
    of_values = values @ of_input.mT.unsqueeze(1) + (bias + more)[:, None, None]
    outputs = []
    for here in of_values.unbind(2):
        state = squash(torch.baddbmm(here, state, of_state.mT))
        outputs.append(state)
    return torch.stack(outputs, dim=2)


def _gru(values: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
    """Gates in the order reset, update, new (Cho et al., 2014, with torch's place of the reset gate)."""
    of_input, of_state, bias, more = weights
    of_values = values @ of_input.mT.unsqueeze(1) + bias[:, None, None]
    outputs = []
    for here in of_values.unbind(2):
        reset, update, new = here.chunk(3, dim=-1)
        of_reset, of_update, of_new = torch.baddbmm(more.unsqueeze(1), state, of_state.mT).chunk(3, dim=-1)
        kept = torch.sigmoid(update + of_update)
        fresh = torch.tanh(new + torch.sigmoid(reset + of_reset) * of_new)
        state = torch.lerp(fresh, state, kept)
        outputs.append(state)
    return torch.stack(outputs, dim=2)


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
