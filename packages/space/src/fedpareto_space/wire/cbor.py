"""Deterministic CBOR (RFC 8949, section 4.2) and nothing else: every value has one encoding, all others are refused.

Of CBOR the protocol uses whole numbers, floats, byte and text strings, arrays, maps with whole-number or text keys,
true, false and null. Tags, undefined, other simple values and NaN are refused.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from fedpareto_space.wire.refusals import ProtocolError, Refusal

DEEPEST = 12
"""Arrays and maps that may be open at a time; a message with a trigger of four levels has nine."""
MOST_ITEMS = 50_000
"""Values in a message."""
MOST_WHOLE = 2**64 - 1

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _OTHER = range(8)
_LENGTHS = {24: ">B", 25: ">H", 26: ">I", 27: ">Q"}
_LEAST = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}
"""The least number that needs so many bytes."""
_FIRST = tuple(bytes([first]) for first in range(256))
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_SIMPLE = {20: False, 21: True, 22: None}


# -- writing -------------------------------------------------------------------------------------------------------


def encode(value: Any) -> bytes:
    """The one encoding of a plain value; a tuple is an array."""
    if type(value) is int:  # Most keys of a map.
        return _whole(value)
    out: list[bytes] = []
    _write(value, out)
    return b"".join(out)


def _whole(value: int) -> bytes:
    return _head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value)


def _write(value: Any, out: list[bytes]) -> None:
    if value is None or isinstance(value, bool):
        out.append({False: b"\xf4", True: b"\xf5", None: b"\xf6"}[value])
    elif isinstance(value, int):
        out.append(_whole(value))
    elif isinstance(value, float):
        out.append(_float(value))
    elif isinstance(value, bytes):
        out += [_head(_BYTES, len(value)), value]
    elif isinstance(value, str):
        text = value.encode()
        out += [_head(_TEXT, len(text)), text]
    elif isinstance(value, list | tuple):
        out.append(_head(_ARRAY, len(value)))
        for item in value:
            _write(item, out)
    elif isinstance(value, dict):
        out.append(_head(_MAP, len(value)))
        keys = {encode(key): key for key in value}
        for key in sorted(keys):
            out.append(key)
            _write(value[keys[key]], out)
    else:
        raise TypeError(f"{type(value).__name__} is no value of a message")


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return _FIRST[major << 5 | number]
    for short, form in _LENGTHS.items():
        if number < 1 << 8 * struct.calcsize(form):
            return bytes([major << 5 | short]) + struct.pack(form, number)
    raise ProtocolError(Refusal.OUT_OF_RANGE, f"{number} does not fit into 64 bits")


def _float(value: float) -> bytes:
    if math.isnan(value):
        raise ProtocolError(Refusal.FORBIDDEN, "a message holds no NaN")
    for short, form in _FLOATS.items():
        try:
            packed = struct.pack(form, value)
        except OverflowError:
            continue
        if struct.unpack(form, packed)[0] == value:
            return bytes([_OTHER << 5 | short]) + packed
    raise AssertionError("a double holds every float")


# -- reading -------------------------------------------------------------------------------------------------------


def decode(data: bytes) -> Any:
    """The value of an encoding; ProtocolError says by name why it is not deterministic CBOR."""
    value, end = decode_at(data, 0)
    if end != len(data):
        raise ProtocolError(Refusal.TRAILING, f"the message has ended, and bytes follow: {len(data) - end}")
    return value


def decode_at(data: bytes, place: int) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends."""
    reader = _Reader(data)
    reader.place = place
    return reader.value(0), reader.place


class _Reader:
    """A place in some bytes. It never asks for more memory than the bytes that are there."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place, self.items = data, 0, 0

    def take(self, size: int) -> bytes:
        end = self.place + size
        if end > len(self.data):
            missing = end - len(self.data)
            raise ProtocolError(Refusal.TRUNCATED, f"the message ends early; bytes that are missing: {missing}")
        taken = self.data[self.place : end]
        self.place = end
        return taken

    def longer(self, major: int, short: int) -> int:
        """The number of a value, where it is not in its first byte."""
        if short == 31:
            raise ProtocolError(Refusal.INDEFINITE, "a length is left open; the protocol writes every length")
        if short > 27:
            raise ProtocolError(Refusal.FORBIDDEN, f"byte {major << 5 | short:#04x} is reserved in CBOR")
        if major == _OTHER:
            return 0
        size = 1 << short - 24
        number = int.from_bytes(self.take(size))
        if number < _LEAST[short]:
            raise ProtocolError(Refusal.NOT_SHORTEST, f"{number} is not written in its shortest form")
        return number

    def value(self, depth: int) -> Any:
        self.items += 1
        if self.items > MOST_ITEMS:
            raise ProtocolError(Refusal.TOO_LARGE, f"the message has more than {MOST_ITEMS} values")
        if self.place == len(self.data):
            raise ProtocolError(Refusal.TRUNCATED, "the message ends early: another value should follow")
        first = self.data[self.place]
        self.place += 1
        major, short = first >> 5, first & 31
        number = short if short < 24 else self.longer(major, short)
        if major == _UNSIGNED:
            return number
        if major == _NEGATIVE:
            return -1 - number
        if major == _BYTES:
            return self.take(number)
        if major == _TEXT:
            return self.text(number)
        if major == _OTHER:
            return self.other(short)
        if major == _TAG:
            raise ProtocolError(Refusal.FORBIDDEN, f"tag {number}: the protocol has no tags")
        if depth == DEEPEST:
            raise ProtocolError(Refusal.TOO_DEEP, f"arrays and maps are nested more than {DEEPEST} deep")
        if number > len(self.data) - self.place:
            raise ProtocolError(Refusal.TRUNCATED, f"the message ends before the {number} entries that it announces")
        if major == _ARRAY:
            return [self.value(depth + 1) for _ in range(number)]
        return self.map(number, depth + 1)

    def text(self, size: int) -> str:
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise ProtocolError(Refusal.NOT_TEXT, "a text is not UTF-8") from None

    def other(self, short: int) -> Any:
        if short in _SIMPLE:
            return _SIMPLE[short]
        if short not in _FLOATS:
            raise ProtocolError(Refusal.FORBIDDEN, f"simple value {short}: the protocol has true, false and null")
        packed = self.take(struct.calcsize(_FLOATS[short]))
        (value,) = struct.unpack(_FLOATS[short], packed)
        if math.isnan(value):
            raise ProtocolError(Refusal.FORBIDDEN, "a message holds no NaN")
        if value == 0 and math.copysign(1, value) < 0:
            raise ProtocolError(Refusal.FORBIDDEN, "zero has no sign in the protocol")
        if _float(value)[1:] != packed:
            raise ProtocolError(Refusal.NOT_SHORTEST, f"{value} is not written in its shortest form")
        return value

    def map(self, size: int, depth: int) -> dict[int | str, Any]:
        found: dict[int | str, Any] = {}
        before = b""
        for _ in range(size):
            began = self.place
            key = self.value(depth)
            if isinstance(key, bool) or not isinstance(key, int | str):
                raise ProtocolError(Refusal.FORBIDDEN, "a key of a map is neither a whole number nor a text")
            now = self.data[began : self.place]
            if now <= before:
                raise _misplaced(key, now == before)
            before = now
            found[key] = self.value(depth)
        return found


def _misplaced(key: int | str, again: bool) -> ProtocolError:
    if again:
        return ProtocolError(Refusal.DUPLICATE_KEY, f"key {key!r:.40} comes twice")
    return ProtocolError(Refusal.WRONG_ORDER, f"key {key!r:.40} comes after one that it should precede")
