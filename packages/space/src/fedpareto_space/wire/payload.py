"""Named arrays as bytes, in the order of a manifest: coded by the agreed codec, or as they are."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping

import numpy as np

from fedpareto.codecs import Codec, CodecError
from fedpareto_space.wire.manifest import Manifest, Tensor
from fedpareto_space.wire.refusals import ProtocolError, Refusal

SMALLEST_CODED = 64
"""Values; with fewer, what a codec writes beside them is more than it saves."""
_LENGTH = struct.Struct(">I")
"""Before the bytes of a coded tensor: how many."""


def pack(tensors: Mapping[str, np.ndarray], codec: Codec, bases: Mapping[str, np.ndarray]) -> tuple[Manifest, bytes]:
    """The manifest and the bytes of some arrays.

    Coded are float32 arrays of at least SMALLEST_CODED values that have a base of the same shape; all others travel as
    they are.
    """
    coded = frozenset(name for name, array in tensors.items() if is_coded(name, array, bases))
    manifest = Manifest.of(tensors, coded)
    parts = []
    for entry in manifest.tensors:
        array = tensors[entry.name]
        if not entry.coded:
            parts.append(np.ascontiguousarray(array, dtype=entry.dtype.numpy).tobytes())
            continue
        data = codec.encode(_flat(array), _flat(bases[entry.name]))
        parts += [_LENGTH.pack(len(data)), data]
    return manifest, b"".join(parts)


def is_coded(name: str, array: np.ndarray, bases: Mapping[str, np.ndarray]) -> bool:
    known = name in bases and bases[name].shape == array.shape
    return known and array.dtype == np.float32 and array.size >= SMALLEST_CODED


def unpack(manifest: Manifest, data: bytes, codec: Codec, bases: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The other way: ProtocolError if the bytes do not fit the manifest, or a base is missing."""
    reader, found = _Bytes(data), {}
    for entry in manifest.tensors:
        values = _decoded(entry, reader, codec, bases) if entry.coded else _plain(entry, reader)
        found[entry.name] = values.reshape(entry.shape)
    if reader.place != len(data):
        raise ProtocolError(Refusal.TRAILING, f"{len(data) - reader.place} bytes follow the payload")
    return found


class _Bytes:
    """A place in some bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = memoryview(data), 0

    def take(self, size: int, name: str) -> memoryview:
        if self.place + size > len(self.data):
            raise ProtocolError(Refusal.TRUNCATED, f"the payload ends within {name}")
        self.place += size
        return self.data[self.place - size : self.place]


def _plain(entry: Tensor, reader: _Bytes) -> np.ndarray:
    raw = reader.take(entry.size * entry.dtype.numpy.itemsize, entry.name)
    if entry.dtype.numpy == np.bool_ and max(raw, default=0) > 1:
        raise ProtocolError(Refusal.OUT_OF_RANGE, f"{entry.name} has a byte that is neither true nor false")
    return np.frombuffer(raw, dtype=entry.dtype.numpy).astype(entry.dtype.numpy.newbyteorder("="))


def _decoded(entry: Tensor, reader: _Bytes, codec: Codec, bases: Mapping[str, np.ndarray]) -> np.ndarray:
    base = bases.get(entry.name)
    if base is None or base.shape != entry.shape:
        raise ProtocolError(Refusal.INCONSISTENT, f"{entry.name} is coded against a base of another shape, or of none")
    (size,) = _LENGTH.unpack(reader.take(_LENGTH.size, entry.name))
    data = bytes(reader.take(size, entry.name))
    try:
        return codec.decode(data, entry.size, _flat(base))
    except CodecError as problem:
        raise ProtocolError(Refusal.OUT_OF_RANGE, f"{entry.name}: {problem}") from None


def _flat(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, dtype=np.float32).reshape(-1)


def digest(tensors: Mapping[str, np.ndarray]) -> bytes:
    """SHA-256 over all values in the mapping's order, lowest byte first: equal if and only if every bit is."""
    found = hashlib.sha256()
    for array in tensors.values():
        found.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes())
    return found.digest()


def short(data: bytes) -> bytes:
    """The first 8 bytes of the SHA-256 of some bytes."""
    return hashlib.sha256(data).digest()[:8]
