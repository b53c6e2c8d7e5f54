"""Embeddings over a stack of clients."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fedpareto.tensors.training import Current


def embedded(vectors: Tensor, numbers: Tensor) -> Tensor:
    """The embedding of each index: `[n, k, e]` and `[n, ...]` to `[n, ..., e]`."""
    n, k, width = vectors.shape
    first = torch.arange(n, device=numbers.device).view(-1, *[1] * (numbers.dim() - 1)) * k
    return F.embedding(numbers.long() + first, vectors.reshape(n * k, width))


def embedding(layer: Any, name: str, current: Current, numbers: Tensor) -> Tensor:
    """torch's nn.Embedding; the gradient of a padding index, which vmap finds for the first client only, is 0."""
    del name
    vectors = layer.weight
    if layer.padding_idx is not None:
        is_padding = torch.arange(len(vectors), device=vectors.device) == layer.padding_idx
        vectors = torch.where(is_padding.unsqueeze(1), vectors.detach(), vectors)
    result: Tensor = current.now.call(embedded, vectors, numbers)
    return result
