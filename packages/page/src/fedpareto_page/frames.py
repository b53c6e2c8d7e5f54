"""Columns of numbers as bytes: a head in JSON, then the numbers as they lie in memory."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpareto.config.files import json_text

STEP = 8
"""Everything begins at a multiple of so many bytes, as a browser's arrays of numbers must."""
TYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "i1": "|i1", "u1": "|u1"}


def frame(head: Mapping[str, Any], columns: Mapping[str, np.ndarray]) -> bytes:
    """The head and the columns in this order; numbers that float32 holds exactly are sent as such."""
    arrays = {name: _compact(np.asarray(column)) for name, column in columns.items()}
    described = [
        {"name": name, "type": array.dtype.str[1:], "shape": list(array.shape)} for name, array in arrays.items()
    ]
    text = json_text({**head, "columns": described}, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % STEP)
    parts = [struct.pack("<I", len(text)), text]
    for array in arrays.values():
        content = array.tobytes()
        parts += [content, bytes(-len(content) % STEP)]
    return b"".join(parts)


def _compact(array: np.ndarray) -> np.ndarray:
    if array.dtype.str[1:] in ("i1", "u1", "f4") or array.dtype == np.int32:
        return np.ascontiguousarray(array, dtype=TYPES[array.dtype.str[1:]])
    exact = array.astype("<f8")
    with np.errstate(over="ignore", invalid="ignore"):
        small = exact.astype("<f4")
    return small if np.array_equal(small.astype("<f8"), exact, equal_nan=True) else exact
