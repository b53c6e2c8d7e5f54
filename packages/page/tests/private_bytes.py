"""Looks for numbers that nobody may see in what a server says, in every form in which they could stand there."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable

DECIMALS = range(5, 18)
"""Fewer would be found by chance: similarities, for one, are written with four."""
NUMBER = re.compile(rb"\d*\.\d+(?:[eE][-+]?\d+)?")
SAVED = re.compile(rb'<script[^>]* id="saved"[^>]*>(.*?)</script>', re.DOTALL)


def written(value: float) -> set[bytes]:
    """A number as text: in full, rounded, as a share and in percent, and as what single precision makes of it."""
    (single,) = struct.unpack("<f", struct.pack("<f", value))
    forms = {repr(one) for one in (value, single)}
    forms |= {f"{scale * one:.{places}f}" for one in (value, single) for scale in (1, 100) for places in DECIMALS}
    return {form.encode() for form in forms}


def packed(value: float) -> set[bytes]:
    """A number as bytes: in single and double precision, whichever end comes first."""
    return {struct.pack(form, value) for form in ("<f", ">f", "<d", ">d")}


def saved_answers(page: bytes) -> dict[str, bytes]:
    """By the path with which it would be asked for, each answer in a saved page."""
    inlined = SAVED.search(page)
    assert inlined is not None
    return {path: unpacked(answer) for path, answer in json.loads(inlined[1]).items()}


def unpacked(answer: dict[str, object]) -> bytes:
    """The columns of an answer, or all of it as text."""
    frame = answer.get("frame")
    return base64.b64decode(frame) if isinstance(frame, str) else json.dumps(answer).encode()


def found(secrets: Iterable[float], content: bytes) -> set[float]:
    """Those of the secret numbers that stand in an answer."""
    numbers = set(NUMBER.findall(content))
    return {one for one in secrets if written(one) & numbers or any(form in content for form in packed(one))}
