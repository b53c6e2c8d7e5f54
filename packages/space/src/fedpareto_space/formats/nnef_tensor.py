"""Tensor files of NNEF 1.0 (.dat): a header of 128 bytes, then the numbers, little-endian, last dimension first."""

from __future__ import annotations

import math
import struct

import numpy as np

from fedpareto.config.errors import DamagedFile, reading

MAGIC = b"\x4e\xef"
VERSION = (1, 0)
HEADER = 128
MOST_DIMENSIONS = 8
TYPES = {(0, 16): "<f2", (0, 32): "<f4", (0, 64): "<f8", (1, 8): "u1", (4, 8): "i1", (4, 32): "<i4", (4, 64): "<i8"}
"""Of numbers, by the header's code and bits; those with quantisation are not read."""
_LAYOUT = struct.Struct("<2sBBII8III76x")
assert _LAYOUT.size == HEADER, "as the standard has it"


def to_bytes(tensor: np.ndarray) -> bytes:
    """A tensor file."""
    dtype = tensor.dtype.newbyteorder("<")
    code, bits = next(kind for kind, name in TYPES.items() if np.dtype(name) == dtype)
    sizes = [*tensor.shape, *[0] * (MOST_DIMENSIONS - tensor.ndim)]
    numbers = np.ascontiguousarray(tensor, dtype=dtype).tobytes()
    return _LAYOUT.pack(MAGIC, *VERSION, len(numbers), tensor.ndim, *sizes, bits, code) + numbers


def from_bytes(data: bytes, where: str) -> np.ndarray:
    """What a tensor file holds; `where` is named if it is damaged."""
    if len(data) < HEADER or data[:2] != MAGIC:
        raise DamagedFile(f"{where} is damaged: it is no tensor file of NNEF")
    _, major, minor, length, rank, *sizes, bits, code = _LAYOUT.unpack(data[:HEADER])
    if (major, minor) != VERSION:
        raise DamagedFile(f"{where} is of version {major}.{minor} of NNEF; 1.0 is read")
    if (code, bits) not in TYPES or rank > MOST_DIMENSIONS:
        raise DamagedFile(f"{where} is damaged: its header names no known type of number, or too many dimensions")
    dtype, shape = np.dtype(TYPES[code, bits]), tuple(sizes[:rank])
    if length != len(data) - HEADER or length != math.prod(shape) * dtype.itemsize:
        raise DamagedFile(f"{where} is damaged: its header says {list(shape)}, and it has {len(data) - HEADER} bytes")
    with reading(where):  # An array without numbers may still have sizes that are too large.
        return np.frombuffer(data, dtype, offset=HEADER).reshape(shape)
