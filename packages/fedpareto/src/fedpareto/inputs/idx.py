"""IDX files, the format of MNIST: an array after a head of a few bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpareto.config.errors import DamagedFile

TYPES: Mapping[bytes, np.dtype[Any]] = {b"\0\0\x08": np.dtype(np.uint8), b"\0\0\x0c": np.dtype(">i4")}
"""Types of values, by the first bytes of an IDX file."""
MOST_DIMENSIONS = 4
"""Images, their rows, columns and colours."""


def parse_idx(content: bytes, source: str) -> np.ndarray:
    """The array in an IDX file: 0, 0, 8 (bytes) or 12 (whole numbers), the number of dimensions, sizes, values."""
    dtype = TYPES.get(content[:3])
    dimensions = content[3] if len(content) > 3 else 0
    start = 4 + 4 * dimensions
    sizes = np.frombuffer(content[4:start], dtype=">u4").tolist() if len(content) >= start else []
    # Beside a size of 0 the others may be any, and a file without values promise billions of empty images.
    fits = 0 < len(sizes) <= MOST_DIMENSIONS and all(sizes)
    if dtype is None or not fits or len(content) - start != math.prod(sizes) * dtype.itemsize:
        raise DamagedFile(f"{source} is not an IDX file of bytes, or is cut short")
    # A view, so that 47 MB are there once.
    return np.frombuffer(content, dtype=dtype, offset=start).reshape(sizes)
