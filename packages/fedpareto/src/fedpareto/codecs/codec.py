"""Formats in which float32 numbers travel: their type, whether as difference to what both ends hold, and a lossless
coder.

A codec is one word that a user types, such as `int8-delta`: TYPE[-delta][+CODER]. What the other end will hold is
defined to the last bit (see docs/codecs.md), so both ends can go on from the same model.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedpareto.codecs import lossless, numbers, sparse
from fedpareto.codecs.errors import CodecError
from fedpareto.codecs.lossless import Coder
from fedpareto.config.errors import UnknownName, UserError

TYPES = ("float32", "float16", "bfloat16", "int8", "int4")
LEVELS = {"int8": 127, "int4": 7}
"""Largest multiples of the step."""
EXAMPLES = (*TYPES, "float32-delta", "float16-delta", "bfloat16-delta", "int8-delta", "int4-delta", "top10%-delta")
"""For messages; any percentage is allowed, and +none, +ccsds121 or +zstd behind each."""

_WORD = re.compile(r"(?P<type>[a-z]+\d+)(?P<share>%|\.\d+%)?(?P<delta>-delta)?(?:\+(?P<coder>[a-z0-9]+))?")
_NOT_FINITE = np.int8(numbers.BAD).tobytes()
"""A quantised vector with a number that is not finite."""


@dataclass(frozen=True)
class Codec:
    """One way to write a vector of float32 numbers; `Codec.parse("int8-delta")`."""

    type: str = "float32"
    """float32, float16, bfloat16, int8, int4 or top."""
    delta: bool = False
    """True if the difference to a base is written."""
    coder: str = "none"
    """none, ccsds121 or zstd."""
    percent: float = 100.0
    """Percentage of the entries that `top` keeps."""

    @classmethod
    def parse(cls, text: str) -> Codec:
        """Parse a word such as `int8-delta`; UserError with the known ones if it is none."""
        match = _WORD.fullmatch(text)
        if match is None:
            raise _unknown(text)
        kind, delta, percent = match["type"], match["delta"] is not None, 100.0
        if match["share"] is not None and kind.startswith("top"):
            percent, kind, delta = float(kind[3:] + match["share"][:-1]), "top", True
            if not 0 < percent <= 100:
                raise UserError(f"codec {text}: the percentage is {percent:g}; it is above 0 and at most 100")
        elif kind not in TYPES or match["share"] is not None:
            raise _unknown(text)
        coder = match["coder"] or default_coder(kind, delta)
        lossless.coder(coder)
        return cls(kind, delta, coder, percent)

    def __str__(self) -> str:
        kind = f"top{self.percent:g}%" if self.type == "top" else self.type
        coder = "" if self.coder == default_coder(self.type, self.delta) else f"+{self.coder}"
        return f"{kind}{'-delta' if self.delta else ''}{coder}"

    @property
    def lossless(self) -> bool:
        """True if the other end holds the very same numbers."""
        return self.type == "float32"

    @property
    def plain(self) -> bool:
        """True if numbers travel as they are."""
        return self == Codec()

    # -- coding ------------------------------------------------------------------------------------------------------

    def encode(self, values: np.ndarray, base: np.ndarray | None = None) -> bytes:
        """Numbers `[d]` as bytes. With -delta as their difference to `base` `[d]`, or to 0 if there is none."""
        values, base = self._checked(values, base)
        if not len(values):
            return b""
        if self.lossless:
            if self.plain:
                return values.astype("<f4", copy=False).tobytes()
            return self._coder.pack(numbers.differences(values, base), 32)
        change = _change(values, base)
        if self.type == "top":
            return sparse.encode(change, self.percent, self.coder)
        if self.type in LEVELS:
            levels, exponents = numbers.quantised(change, LEVELS[self.type])
            if exponents[0] == numbers.BAD:
                return _NOT_FINITE
            return exponents.tobytes() + self._pack(numbers.folded(levels))
        return self._pack(_halves(change, self.type))

    def decode(self, data: bytes, size: int, base: np.ndarray | None = None) -> np.ndarray:
        """The numbers `[size]` that the other end encoded with the same base; CodecError if the bytes are damaged."""
        if not size:
            if data:
                raise CodecError(f"{len(data)} bytes for no numbers")
            return np.empty(0, dtype=np.float32)
        base = self._base(base, size)
        if self.lossless:
            if self.plain:
                return self._coder.unpack(data, size, 32).view(np.float32)
            return numbers.undifferenced(self._coder.unpack(data, size, 32), base)
        if self.type == "top":
            change = sparse.decode(data, size, self.percent, self.coder)
        elif self.type in LEVELS:
            change = self._unpack_levels(data, size)
        else:
            change = _whole(self._coder.unpack(data, size, self._bits), self.type, self.coder)
        return _moved(base, change)

    def decoded(self, values: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """Values that the other end will hold, `[..., d]`: `decode(encode())` of each row to the last bit, without
        coding."""
        values, base = self._checked(values, base)
        if self.lossless or not values.size:
            return values
        change = _change(values, base)
        if self.type == "top":
            kept = sparse.kept(change, self.percent)
        elif self.type in LEVELS:
            kept = numbers.multiples(*numbers.quantised(change, LEVELS[self.type]))
        else:
            kept = _whole(_halves(change, self.type), self.type)
        return _moved(base, kept)

    def sizes(self, values: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """The bytes of `encode` for each row of `[n, d]`: `[n]`."""
        values, base = self._checked(values, base)
        if not values.shape[1]:
            return np.zeros(len(values), dtype=np.int64)
        if self.lossless:
            whole = values.view(np.uint32) if self.plain else numbers.differences(values, base)
            return self._coder.sizes(whole, 32)
        change = _change(values, base)
        if self.type == "top":
            return np.array([len(sparse.encode(row, self.percent, self.coder)) for row in change])
        if self.type in LEVELS:
            levels, exponents = numbers.quantised(change, LEVELS[self.type])
            coded = self._coder.sizes(numbers.folded(levels), self._bits)
            return np.where(exponents[:, 0] == numbers.BAD, len(_NOT_FINITE), coded + exponents.shape[1])
        return self._coder.sizes(self._numbers(_halves(change, self.type)), self._bits)

    @property
    def _coder(self) -> Coder:
        return lossless.coder(self.coder)

    @property
    def _bits(self) -> int:
        return {"float32": 32, "int8": 8, "int4": 4}.get(self.type, 16)

    def _pack(self, whole: np.ndarray) -> bytes:
        return self._coder.pack(self._numbers(whole), self._bits)

    def _numbers(self, whole: np.ndarray) -> np.ndarray:
        """Halves are folded before they are coded: small ones of either sign are small numbers."""
        is_half = self._bits == 16 and self.coder == "ccsds121"
        return numbers.folded(_ordered_half(whole.view(np.int16))) if is_half else whole

    def _unpack_levels(self, data: bytes, size: int) -> np.ndarray:
        if data == _NOT_FINITE:
            return np.full(size, np.nan, dtype=np.float32)
        head = numbers.pieces(size)
        if len(data) < head:
            raise CodecError("the exponents end too early")
        exponents = np.frombuffer(data, dtype=np.int8, count=head)
        if exponents.min() < numbers.SMALLEST_EXPONENT or exponents.max() >= numbers.TOO_LARGE:
            raise CodecError("an exponent is none that an encoder writes")
        levels = numbers.unfolded(self._coder.unpack(data[head:], size, self._bits))
        if max(int(levels.max()), -int(levels.min())) > LEVELS[self.type]:
            raise CodecError(f"a level is beyond {LEVELS[self.type]}")
        return numbers.multiples(levels, exponents)

    # -- arguments ---------------------------------------------------------------------------------------------------

    def _checked(self, values: np.ndarray, base: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
        if values.dtype != np.float32:
            raise UserError(f"a codec writes float32 numbers, not {values.dtype}")
        return np.ascontiguousarray(values), self._base(base, values.shape[-1])

    def _base(self, base: np.ndarray | None, size: int) -> np.ndarray | None:
        if base is None or not self.delta:
            return None
        if base.dtype != np.float32 or base.shape[-1] != size:
            raise UserError(f"the base is {base.dtype} of {base.shape[-1]} numbers, not float32 of {size}")
        return np.ascontiguousarray(base)


class Sent(NamedTuple):
    """Result of a sender with error feedback for one vector, or a stack of them, `[..., d]`."""

    values: np.ndarray
    """Values to be encoded: the vector with the losses of before."""
    held: np.ndarray
    """Values that the other end will hold."""
    residual: np.ndarray
    """Loss of this time."""


@dataclass(frozen=True)
class ErrorFeedback:
    """Error feedback: the loss of a lossy codec is kept by the sender and added to the next vector.

    Seide et al., "1-bit stochastic gradient descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD", 2019.
    """

    codec: Codec

    def send(self, values: np.ndarray, base: np.ndarray | None, residual: np.ndarray) -> Sent:
        """Send one vector or a stack, with the losses so far: 0 at first."""
        with np.errstate(invalid="ignore", over="ignore"):
            wanted = values + residual
            held = self.codec.decoded(wanted, base)
            lost = wanted - held
        # A row with a number that is not finite is refused by the other end: nothing of it is carried on.
        sound = np.isfinite(lost).all(axis=-1, keepdims=True)
        return Sent(wanted, held, np.where(sound, lost, residual))


def default_coder(kind: str, delta: bool) -> str:
    small = kind in LEVELS or kind == "top" or (kind == "float32" and delta)
    return "ccsds121" if small else "none"


def _unknown(text: str) -> UserError:
    return UnknownName("codec", text, EXAMPLES)


def _change(values: np.ndarray, base: np.ndarray | None) -> np.ndarray:
    if base is None:
        return values
    with np.errstate(invalid="ignore", over="ignore"):
        found: np.ndarray = np.subtract(values, base, dtype=np.float32)
        return found


def _moved(base: np.ndarray | None, change: np.ndarray) -> np.ndarray:
    if base is None:
        return change
    with np.errstate(invalid="ignore", over="ignore"):
        found: np.ndarray = np.add(base, change, dtype=np.float32)
        return found


def _halves(change: np.ndarray, kind: str) -> np.ndarray:
    return numbers.to_float16(change) if kind == "float16" else numbers.to_bfloat16(change)


def _whole(bits: np.ndarray, kind: str, coder: str = "none") -> np.ndarray:
    if coder == "ccsds121":
        bits = _ordered_half(numbers.unfolded(bits)).view(np.uint16)
    return numbers.from_float16(bits) if kind == "float16" else numbers.from_bfloat16(bits)


def _ordered_half(bits: np.ndarray) -> np.ndarray:
    """`numbers.ordered` of 16 bits; it undoes itself."""
    found: np.ndarray = bits ^ ((bits >> 15) & np.int16(0x7FFF))
    return found
