"""State that survives a reset: plain values and arrays in one piece, with a digest that finds any altered byte."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedpareto.config import limits
from fedpareto.config.errors import DamagedFile, in_words
from fedpareto.config.files import ARCHIVE_DAMAGE

_DIGEST = 32
_VALUES = "values"


@dataclass
class Saved:
    """Plain (JSON) values, and arrays by name."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(self.values, sort_keys=True).encode(), dtype=np.uint8)
        arrays: Any = {_VALUES: text} | {f"a/{name}": array for name, array in self.arrays.items()}
        np.savez(buffer, **arrays)
        written = buffer.getvalue()
        return hashlib.sha256(written).digest() + written

    @classmethod
    def from_bytes(cls, data: bytes, what: str) -> Saved:
        """The other way; DamagedFile names `what` if a byte was altered."""
        if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
            raise DamagedFile(f"{what} is damaged")
        try:
            with np.load(io.BytesIO(data[_DIGEST:]), allow_pickle=False) as found:
                limits.must_unpack(found.zip, len(data), what)
                arrays = {name.removeprefix("a/"): found[name] for name in found.files if name != _VALUES}
                return cls(json.loads(found[_VALUES].tobytes()), arrays)
        except ARCHIVE_DAMAGE as problem:
            raise DamagedFile(f"{what} is damaged: {in_words(problem)}") from None

    def put(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        self.arrays |= {f"{name}/{part}": array for part, array in arrays.items()}

    def get(self, name: str) -> dict[str, np.ndarray]:
        place = f"{name}/"
        return {key.removeprefix(place): one for key, one in self.arrays.items() if key.startswith(place)}
