"""Reading JSON that may be damaged or altered: every error names the file and the line."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpareto.config.errors import DAMAGE, DamagedFile
from fedpareto.config.files import read_bytes

Array = NDArray[np.float64]
Clusters = tuple[tuple[int, ...], ...]
LARGEST = 2**63 - 1
"""Largest whole number: numpy has room for no larger one."""


def read_text(path: Path) -> str:
    return read_bytes(path).decode("utf-8", errors="replace") if path.is_file() else ""


def as_object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DamagedFile(f"{where}: expected an object, got {type(value).__name__}")
    return value


def get(data: dict[str, Any], key: str, kind: type, where: str, default: object = None) -> Any:
    """Return the entry `key`, checked for its kind; without a default it must be there."""
    value = data.get(key, default)
    # True is an int for Python, but not a count.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        problem = "is missing" if value is None else f"is {value!r}, expected {kind.__name__}"
        raise DamagedFile(f"{where}: '{key}' {problem}")
    if isinstance(value, int) and abs(value) > LARGEST:
        raise DamagedFile(f"{where}: '{key}' is {value}; it has to be below 2^63")
    return value


def number(value: object, where: str) -> float:
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedFile(f"{where} is {value!r}, expected a number")
    return float(value)


def numbers(value: object, where: str) -> Array:
    """`[k]`; null is NaN."""
    if not isinstance(value, list):
        raise DamagedFile(f"{where}: expected a list of numbers")
    plain = value if all(type(entry) is float for entry in value) else [number(entry, where) for entry in value]
    return np.array(plain, dtype=np.float64)


def texts(value: object) -> dict[str, str]:
    """Names with what they stand for, in words; nothing where there is no object."""
    return {printable(k): printable(v) for k, v in value.items()} if isinstance(value, dict) else {}


def matrix(value: object, m: int, where: str) -> Array:
    """`[k, m]`; null, for a client or a single value, is NaN."""
    rows = [[None] * m if row is None else row for row in value] if isinstance(value, list) else value
    try:
        result = np.array(rows, dtype=np.float64)
    except DAMAGE:
        raise DamagedFile(f"{where}: expected rows of {m} numbers") from None
    if not result.size:
        return np.zeros((0, m))
    if result.ndim != 2 or result.shape[1] != m:
        raise DamagedFile(f"{where}: expected rows of {m} numbers, got shape {result.shape}")
    return result


def square(value: object, where: str) -> Array:
    return matrix(value, len(value) if isinstance(value, list) else 0, where)


def integers(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(entry) is not int or abs(entry) > LARGEST for entry in value):
        raise DamagedFile(f"{where}: expected a list of whole numbers below 2^63")
    return tuple(value)


def id_groups(value: object, where: str) -> Clusters:
    """Lists of client ids; empty ones are left out."""
    groups = value if isinstance(value, list) else [value]
    return tuple(integers(group, where) for group in groups if group != [])


def printable(text: object) -> str:
    """`text` on one line without control characters: refused replies carry untrusted text."""
    # Cf holds the marks that turn the reading direction round; Cs cannot be written as UTF-8.
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter) in ("Cc", "Cf", "Cs") else letter
        for letter in " ".join(str(text).split())
    )
