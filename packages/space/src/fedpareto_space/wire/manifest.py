"""Manifests of the tensors that travel: their order, names, shapes and types. Both ends hold the same one before they
use a payload.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Any

import numpy as np

from fedpareto_space.wire import cbor
from fedpareto_space.wire.kinds import Flag, Many, Text, Whole, Word
from fedpareto_space.wire.refusals import ProtocolError, Refusal
from fedpareto_space.wire.rows import SHORT
from fedpareto_space.wire.schema import Record, Struct

MOST_TENSORS = 1024
MOST_VALUES = 2**32 - 1
"""Values of one tensor."""


class Dtype(IntEnum):
    """Types of numbers; all travel with the lowest byte first."""

    FLOAT32 = 0
    FLOAT64 = 1
    INT32 = 2
    INT64 = 3
    UINT8 = 4
    BOOL = 5

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.name.lower()).newbyteorder("<")

    @classmethod
    def of(cls, array: np.ndarray) -> Dtype:
        try:
            return cls[array.dtype.name.upper()]
        except KeyError:
            known = ", ".join(one.name.lower() for one in cls)
            raise ProtocolError(Refusal.WRONG_TYPE, f"a tensor of {array.dtype.name}; there are {known}") from None


class Tensor(Record):
    """One tensor of a manifest."""

    name: Annotated[str, Text(64, least=1)]
    """Such as model, updates, losses."""
    shape: Annotated[tuple[int, ...], Many(Whole(), 0, 8)]
    """Dimensions of the tensor."""
    dtype: Annotated[Dtype, Word(Dtype)] = Dtype.FLOAT32
    """Type of its numbers."""
    coded: Annotated[bool, Flag()] = False
    """The message's codec is used; otherwise its numbers travel as they are."""

    def must_be_consistent(self) -> None:
        if self.size > MOST_VALUES:
            raise ProtocolError(Refusal.TOO_LARGE, f"{self.name} has {self.size} values; {MOST_VALUES} is the most")
        if self.coded and self.dtype is not Dtype.FLOAT32:
            what = f"{self.name} is {self.dtype.name.lower()}; only float32 is coded"
            raise ProtocolError(Refusal.INCONSISTENT, what)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Manifest(Record):
    """The tensors of a payload, in their order."""

    tensors: Annotated[tuple[Tensor, ...], Many(Struct(Tensor), 0, MOST_TENSORS)]
    """In the order of the payload."""

    def must_be_consistent(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ProtocolError(Refusal.INCONSISTENT, "two tensors of a manifest have one name")

    @classmethod
    def of(cls, tensors: Mapping[str, np.ndarray], coded: frozenset[str] = frozenset()) -> Manifest:
        return cls(
            tuple(Tensor(name, array.shape, Dtype.of(array), name in coded) for name, array in tensors.items()),
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.tensors)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {tensor.name: tensor.shape for tensor in self.tensors}

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(cbor.encode(MANIFEST.to_wire(self))).digest()[:SHORT]


MANIFEST = Struct(Manifest)
