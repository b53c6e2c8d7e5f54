"""Multi-head attention, written so that it can be stacked and that what it drops comes from the client's stream."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.tensors.training import Current


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
