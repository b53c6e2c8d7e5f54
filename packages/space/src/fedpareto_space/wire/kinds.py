"""Kinds of fields: how a value is checked, written as CBOR, and written as YAML."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from fedpareto.config.bounds import Bounds
from fedpareto.config.errors import UnknownName, UserError
from fedpareto_space.wire.refusals import ProtocolError, Refusal

MOST_WHOLE = 2**32 - 1
"""The largest whole number of a field, unless it says otherwise."""
LONGEST_TEXT = 120
"""Characters' bytes of a text, unless its field says otherwise."""


class Kind(ABC):
    """Kind of a field's values."""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """The value, in its one form; ProtocolError if it is none of this kind."""

    @abstractmethod
    def says(self) -> str:
        """Return what is right, in words."""

    def to_wire(self, value: Any) -> Any:
        """A checked value as CBOR's plain value."""
        return value

    def from_wire(self, data: Any) -> Any:
        """The other way; what it gives is checked by the record that takes it."""
        return data

    def to_plain(self, value: Any) -> Any:
        """A checked value as YAML's plain value."""
        return value

    def from_plain(self, plain: Any) -> Any:
        """The other way; what it gives is checked by the record that takes it."""
        return plain

    def _refuse(self, value: Any, code: Refusal = Refusal.WRONG_TYPE) -> ProtocolError:
        return ProtocolError(code, f"{shown(value)} is not {self.says()}")


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _large(number: int) -> str:
    return {2**32 - 1: "2^32 - 1", 2**53: "2^53", 2**64 - 1: "2^64 - 1"}.get(number, str(number))


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number."""

    least: int = 0
    most: int = MOST_WHOLE

    def check(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._refuse(value)
        if not self.least <= value <= self.most:
            raise self._refuse(value, Refusal.OUT_OF_RANGE)
        return int(value)

    def says(self) -> str:
        return f"a whole number from {self.least} to {_large(self.most)}"


@dataclass(frozen=True)
class Real(Bounds, Kind):
    """A finite number, which travels as a float; a YAML file may write it without a point."""

    def check(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._refuse(value)
        try:
            number = float(value)
        except OverflowError:
            raise self._refuse(value, Refusal.OUT_OF_RANGE) from None
        if math.isinf(number) or not self.holds(number):
            raise self._refuse(value, Refusal.OUT_OF_RANGE)
        return number + 0.0  # There is one zero.

    def says(self) -> str:
        if math.isinf(self.least):
            return "a finite number"
        least = f"{'above' if self.is_open else 'from'} {self.least:g}"
        return f"a finite number {least}" + ("" if math.isinf(self.most) else f" to {self.most:g}")

    def from_wire(self, data: Any) -> float:
        if not isinstance(data, float):
            raise self._refuse(data)
        return data


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    def check(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self._refuse(value)
        return value

    def says(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Text(Kind):
    """UTF-8 text without control characters."""

    most: int = LONGEST_TEXT
    least: int = 0

    def check(self, value: Any) -> str:
        if not isinstance(value, str):
            raise self._refuse(value)
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            raise ProtocolError(Refusal.NOT_TEXT, "a text is not UTF-8") from None
        if not self.least <= size <= self.most:
            raise self._refuse(value, Refusal.TOO_LARGE if size > self.most else Refusal.OUT_OF_RANGE)
        if not value.isprintable():
            raise ProtocolError(Refusal.FORBIDDEN, f"{shown(value)} has characters that cannot be printed")
        return value

    def says(self) -> str:
        return f"a text of {self.least} to {self.most} bytes"


@dataclass(frozen=True)
class Octets(Kind):
    """Bytes of one of some lengths; in YAML as hexadecimal digits."""

    sizes: tuple[int, ...] = ()
    most: int = 2**32 - 1
    """Without `sizes`."""

    def check(self, value: Any) -> bytes:
        if not isinstance(value, bytes):
            raise self._refuse(value)
        if (self.sizes and len(value) not in self.sizes) or len(value) > self.most:
            raise ProtocolError(Refusal.OUT_OF_RANGE, f"{len(value)} bytes are not {self.says()}")
        return value

    def says(self) -> str:
        return f"{' or '.join(map(str, self.sizes)) if self.sizes else f'at most {_large(self.most)}'} bytes"

    def to_plain(self, value: bytes) -> str:
        return value.hex()

    def from_plain(self, plain: Any) -> bytes:
        try:
            return bytes.fromhex(plain)
        except (TypeError, ValueError):
            raise UserError(f"{shown(plain)} is not {self.says()}, in hexadecimal digits and quotes") from None


@dataclass(frozen=True)
class Word(Kind):
    """One of some words; its number travels."""

    words: type[IntEnum]

    def check(self, value: Any) -> IntEnum:
        if not isinstance(value, self.words):
            raise self._refuse(value)
        return value

    def says(self) -> str:
        return f"one of {', '.join(map(spelled, self.words))}"

    def to_wire(self, value: IntEnum) -> int:
        return int(value)

    def from_wire(self, data: Any) -> IntEnum:
        if isinstance(data, bool) or not isinstance(data, int):
            raise self._refuse(data)
        try:
            return self.words(data)
        except ValueError:
            raise self._refuse(data, Refusal.NOT_UNDERSTOOD) from None

    def to_plain(self, value: IntEnum) -> str:
        return spelled(value)

    def from_plain(self, plain: Any) -> IntEnum:
        known = {spelled(word): word for word in self.words}
        if not isinstance(plain, str):
            raise self._refuse(plain)
        if plain not in known:
            raise UnknownName("word", plain, known)
        return known[plain]


def spelled(word: IntEnum) -> str:
    return word.name.lower().replace("_", "-")


@dataclass(frozen=True)
class Many(Kind):
    """A list of values of one kind."""

    of: Kind
    least: int = 0
    most: int = 16

    def check(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise self._refuse(value)
        if not self.least <= len(value) <= self.most:
            raise ProtocolError(Refusal.OUT_OF_RANGE, f"{len(value)} entries are not {self.says()}")
        return tuple(self.of.check(item) for item in value)

    def says(self) -> str:
        return f"a list of {self.least} to {self.most} entries, each {self.of.says()}"

    def to_wire(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.of.to_wire(item) for item in value]

    def from_wire(self, data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise self._refuse(data)
        if len(data) > self.most:
            raise ProtocolError(Refusal.TOO_LARGE, f"{len(data)} entries are not {self.says()}")
        return tuple(self.of.from_wire(item) for item in data)

    def to_plain(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.of.to_plain(item) for item in value]

    def from_plain(self, plain: Any) -> tuple[Any, ...]:
        if not isinstance(plain, list):
            raise self._refuse(plain)
        return tuple(self.of.from_plain(item) for item in plain)


@dataclass(frozen=True)
class Maybe(Kind):
    """A value or none; in a record its key is left out, in a variant and in YAML it is null."""

    of: Kind

    def check(self, value: Any) -> Any:
        return None if value is None else self.of.check(value)

    def says(self) -> str:
        return f"{self.of.says()}, or none"

    def to_wire(self, value: Any) -> Any:
        return None if value is None else self.of.to_wire(value)

    def from_wire(self, data: Any) -> Any:
        return None if data is None else self.of.from_wire(data)

    def to_plain(self, value: Any) -> Any:
        return None if value is None else self.of.to_plain(value)

    def from_plain(self, plain: Any) -> Any:
        return None if plain is None else self.of.from_plain(plain)


@dataclass(frozen=True)
class Later(Kind):
    """A kind that is defined further down: a condition holds conditions."""

    of: Callable[[], Kind]

    def check(self, value: Any) -> Any:
        return self.of().check(value)

    def says(self) -> str:
        return self.of().says()

    def to_wire(self, value: Any) -> Any:
        return self.of().to_wire(value)

    def from_wire(self, data: Any) -> Any:
        return self.of().from_wire(data)

    def to_plain(self, value: Any) -> Any:
        return self.of().to_plain(value)

    def from_plain(self, plain: Any) -> Any:
        return self.of().from_plain(plain)


@dataclass(frozen=True)
class Parameters(Kind):
    """Plain values by name: numbers, texts, true, false, null and lists of them. They are an algorithm's own."""

    most: int = 32

    def check(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self._refuse(value)
        if len(value) > self.most:
            raise ProtocolError(Refusal.TOO_LARGE, f"{len(value)} entries are not {self.says()}")
        name = Text(64, least=1)
        return MappingProxyType({name.check(key): _plain(value[key]) for key in sorted(value, key=str)})

    def says(self) -> str:
        return f"at most {self.most} plain values by name"

    def to_wire(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return dict(value)

    def to_plain(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: list(item) if isinstance(item, tuple) else item for name, item in value.items()}


def _plain(value: Any, deep: bool = False) -> Any:
    """A parameter's value in its one form."""
    if isinstance(value, list | tuple) and not deep:
        return Many(Anything(), 0, 64).check(value)
    if isinstance(value, str):
        return Text().check(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return Whole(-(2**63), 2**63 - 1).check(value)
    if isinstance(value, float) and not math.isnan(value):
        return value + 0.0
    raise ProtocolError(
        Refusal.WRONG_TYPE, f"{shown(value)} is not a number, a text, true, false, null or a list of them"
    )


@dataclass(frozen=True)
class Anything(Kind):
    """A single plain value."""

    def check(self, value: Any) -> Any:
        return _plain(value, deep=True)

    def says(self) -> str:
        return "a plain value"
