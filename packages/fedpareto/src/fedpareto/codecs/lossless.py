"""Unsigned numbers as bytes and back, without loss: as they are, with CCSDS 121.0-B, or with zstd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec

import numpy as np

from fedpareto.codecs import ccsds121
from fedpareto.codecs.ccsds121 import Format
from fedpareto.codecs.errors import CodecError
from fedpareto.config import plugins
from fedpareto.config.errors import UnknownName, UserError

GROUP = "fedpareto.codecs"
"""The entry points by which packages offer lossless coders: subclasses of Coder, by name."""
LEVEL = 9
"""Level of zstd: higher ones take many times as long for a percent."""

FORMATS = {bits: Format(bits, block=16, interval=16, padded=True, restricted=bits == 4) for bits in (4, 8, 16, 32)}
"""CCSDS 121 formats by the bits of a number. Intervals are short, so that a decoder reads many side by side."""
_LENGTHS = {4: "u1", 8: "<u2", 16: "<u2", 32: "<u2"}
"""Types that hold the bytes of an interval, which are at most those of its numbers and a few."""
_TYPES = {4: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32}


class Coder(ABC):
    """Codes vectors of at least one unsigned number of 4, 8, 16 or 32 bits, without loss."""

    @abstractmethod
    def pack(self, numbers: np.ndarray, bits: int) -> bytes:
        """Numbers `[d]` as bytes."""

    @abstractmethod
    def unpack(self, data: bytes, count: int, bits: int) -> np.ndarray:
        """The numbers `[count]`, or CodecError: the bytes may be a stranger's."""

    def sizes(self, numbers: np.ndarray, bits: int) -> np.ndarray:
        """Bytes of `pack` for each row of `[n, d]`, `[n]`."""
        return np.array([len(self.pack(row, bits)) for row in numbers])


class Plain(Coder):
    """Numbers as they are, little-endian; two numbers of 4 bits share a byte, the first in the upper half."""

    def pack(self, numbers: np.ndarray, bits: int) -> bytes:
        if bits == 4:
            even = np.append(numbers, numbers.dtype.type(0)) if len(numbers) % 2 else numbers
            found: bytes = (even[0::2] << 4 | even[1::2]).astype(np.uint8).tobytes()
            return found
        return numbers.astype(f"<u{bits // 8}", copy=False).tobytes()

    def unpack(self, data: bytes, count: int, bits: int) -> np.ndarray:
        if len(data) != self._size(count, bits):
            raise CodecError(f"{len(data)} bytes instead of {self._size(count, bits)}")
        if bits == 4:
            both = np.frombuffer(data, dtype=np.uint8)
            halves = np.stack([both >> 4, both & 15], axis=1).reshape(-1)
            if count % 2 and halves[-1]:
                raise CodecError("the half byte behind the last number is not 0")
            return halves[:count]
        return np.frombuffer(data, dtype=f"<u{bits // 8}").astype(_TYPES[bits])

    def sizes(self, numbers: np.ndarray, bits: int) -> np.ndarray:
        return np.full(len(numbers), self._size(numbers.shape[1], bits))

    def _size(self, count: int, bits: int) -> int:
        return (count * bits + 7) // 8


class CCSDS121(Coder):
    """CCSDS 121.0-B, with the lengths of its intervals before the data."""

    def pack(self, numbers: np.ndarray, bits: int) -> bytes:
        data, lengths = ccsds121.encode(numbers, FORMATS[bits])
        return lengths[:-1].astype(_LENGTHS[bits]).tobytes() + data

    def unpack(self, data: bytes, count: int, bits: int) -> np.ndarray:
        form = FORMATS[bits]
        kind, intervals = np.dtype(_LENGTHS[bits]), (count - 1) // form.samples
        index = kind.itemsize * intervals
        if len(data) < index:
            raise CodecError("the coded bytes end too early")
        lengths = np.frombuffer(data, dtype=kind, count=intervals).astype(np.int64)
        lengths = np.append(lengths, len(data) - index - lengths.sum())
        return ccsds121.decode(data[index:], count, form, lengths).astype(_TYPES[bits])

    def sizes(self, numbers: np.ndarray, bits: int) -> np.ndarray:
        lengths = ccsds121.sizes(numbers, FORMATS[bits])
        found: np.ndarray = lengths.sum(axis=1) + np.dtype(_LENGTHS[bits]).itemsize * (lengths.shape[1] - 1)
        return found


class Zstd(Plain):
    """Zstandard of plain numbers: first the lowest bytes of all numbers, then the next."""

    def __init__(self) -> None:
        if find_spec("zstandard") is None:
            raise UserError("the codec needs zstandard; try: pip install 'fedpareto[space]'")

    def pack(self, numbers: np.ndarray, bits: int) -> bytes:
        import zstandard

        planes = np.frombuffer(super().pack(numbers, bits), dtype=np.uint8).reshape(-1, max(bits // 8, 1)).T
        return zstandard.ZstdCompressor(level=LEVEL).compress(planes.tobytes())

    def unpack(self, data: bytes, count: int, bits: int) -> np.ndarray:
        import zstandard

        size = self._size(count, bits)
        try:
            if zstandard.get_frame_parameters(data).content_size != size:
                raise CodecError(f"the coded bytes do not unpack to {size} bytes")
            plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
        except zstandard.ZstdError as problem:
            raise CodecError(f"zstd cannot read the coded bytes: {problem}") from None
        if len(plain) != size:
            raise CodecError(f"the coded bytes do not unpack to {size} bytes")
        planes = np.frombuffer(plain, dtype=np.uint8).reshape(max(bits // 8, 1), -1)
        return super().unpack(planes.T.tobytes(), count, bits)

    def sizes(self, numbers: np.ndarray, bits: int) -> np.ndarray:
        return Coder.sizes(self, numbers, bits)


OWN: dict[str, type[Coder]] = {"none": Plain, "ccsds121": CCSDS121, "zstd": Zstd}


def coder_names() -> list[str]:
    return [*OWN, *sorted({point.name for point in entry_points(group=GROUP)} - OWN.keys())]


@cache
def coder(name: str) -> Coder:
    """The coder of a name; UserError if there is none, or what it needs is not installed."""
    if name in OWN:
        return OWN[name]()
    for point in entry_points(group=GROUP, name=name):
        found: Coder = plugins.loaded(point)()
        return found
    raise UnknownName("lossless coder", name, coder_names())
