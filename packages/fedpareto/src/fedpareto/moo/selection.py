"""Order statistics of long rows."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

SHORT_ROW, SAMPLE = 4096, 2048


def kth_smallest(rows: Tensor, k: int) -> Tensor:
    """The k-th smallest entry of each row, exactly: `[n, d]` to `[n, 1]`, k from 1 to d.

    On the CPU long rows are narrowed down by a sorted sample first (Floyd and Rivest, 1975), which is several times
    faster than a selection over the whole row.
    """
    if rows.is_cuda or rows.shape[1] < SHORT_ROW:
        return rows.kthvalue(k, dim=1, keepdim=True).values
    found = np.array([[_select(row, k)] for row in rows.numpy()])
    return torch.as_tensor(found, dtype=rows.dtype)


def _select(row: np.ndarray, k: int) -> float:
    # An odd step, so that a sample of a layer's matrix runs through all its columns and not through every eighth.
    sample = np.sort(row[:: len(row) // SAMPLE | 1])
    # The sample's quantile is off by at most √len / 2 places (one deviation); two and a half are allowed for.
    centre, margin = k * len(sample) / len(row), 1.25 * math.sqrt(len(sample))
    low = sample[max(0, math.floor(centre - margin))]
    high = sample[min(len(sample) - 1, math.ceil(centre + margin))]
    below = int(np.count_nonzero(row < low))
    middle = row[(row >= low) & (row <= high)]
    if below < k <= below + len(middle):
        return float(np.partition(middle, k - below - 1)[k - below - 1])
    return float(np.partition(row, k - 1)[k - 1])  # The sample was not representative: rare, and then only slower.
