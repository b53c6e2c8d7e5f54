"""Between float32 and whole numbers, to the last bit; over stacks `[..., d]`."""

from __future__ import annotations

import numpy as np

SMALLEST_EXPONENT, TOO_LARGE = -126, 126
"""Exponents of a step 2ᵉ, so that it and its inverse are ordinary float32 numbers; differences from 2^126 on have none.
"""
BAD = -128
"""Mark in the place of the first exponent: something was not finite."""
PIECE = 4096
"""Entries that share a step: fewer lose less and need more bytes. With 4096 an int4 update of a convolutional network
takes 3 % of a model's file and loses 38 % of its length; with one step for all it takes 1 % and loses 69 %.
"""


# -- ordered integers ----------------------------------------------------------------------------------------------


def ordered(values: np.ndarray) -> np.ndarray:
    """float32 as int32 in the same order, one to one: neighbouring numbers differ by 1."""
    return _turned(values.view(np.int32))


def _turned(bits: np.ndarray) -> np.ndarray:
    """Negative numbers with all but the sign inverted; the same again undoes it."""
    found: np.ndarray = bits >> 31
    found &= np.int32(0x7FFFFFFF)
    found ^= bits
    return found


def differences(values: np.ndarray, base: np.ndarray | None) -> np.ndarray:
    """Ordered integers minus those of the base, modulo 2³², small ones of either sign as small unsigned numbers."""
    whole = ordered(values)
    if base is not None:
        whole -= ordered(base)
    return folded(whole)


def undifferenced(numbers: np.ndarray, base: np.ndarray | None) -> np.ndarray:
    """Inverse of `differences`."""
    whole = unfolded(numbers)
    if base is not None:
        whole += ordered(base)
    return _turned(whole).view(np.float32)


def folded(numbers: np.ndarray) -> np.ndarray:
    """0, −1, 1, −2, 2 … as 0, 1, 2, 3, 4 …, unsigned and of the same width."""
    found: np.ndarray = numbers >> (8 * numbers.dtype.itemsize - 1)
    found ^= numbers << 1
    return found.view(f"u{numbers.dtype.itemsize}")


def unfolded(numbers: np.ndarray) -> np.ndarray:
    """Inverse of `folded`."""
    kind = f"i{numbers.dtype.itemsize}"
    found = -(numbers & 1).view(kind)
    found ^= (numbers >> 1).view(kind)
    return found


# -- half precision ------------------------------------------------------------------------------------------------


def to_float16(values: np.ndarray) -> np.ndarray:
    """The bits of IEEE 754 binary16, rounded to nearest, ties to even; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).view(np.uint16)


def from_float16(bits: np.ndarray) -> np.ndarray:
    return bits.view(np.float16).astype(np.float32)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper half of float32, rounded to nearest, ties to even; any NaN becomes 7FC0."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


# -- quantisation --------------------------------------------------------------------------------------------------


def pieces(size: int) -> int:
    """Number of pieces of a vector, each with a step of its own."""
    return -(-size // PIECE)


def quantised(values: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole multiples, from −most to most, of a step 2ᵉ for each piece: int8 `[..., d]`, and all e `[..., pieces]`.

    e is the smallest from −126 on with most · 2ᵉ ≥ the largest magnitude of the piece. All are BAD if one magnitude of
    the vector is not below 2^126.
    """
    largest = np.maximum.reduceat(np.abs(values), np.arange(0, values.shape[-1], PIECE), axis=-1)
    usable = np.asarray((largest < np.float32(2.0**TOO_LARGE)).all(axis=-1))  # False for NaN.
    part, power = np.frexp(np.where(usable[..., None], largest, np.float32(0)))
    top, top_power = np.frexp(np.float32(most))
    exponents = np.maximum(power - top_power + (part > top), SMALLEST_EXPONENT).astype(np.int32)
    with np.errstate(invalid="ignore", over="ignore"):
        levels = values * _spread(np.ldexp(np.float32(1), -exponents), values.shape[-1])
        levels = np.rint(levels, out=levels).astype(np.int8)
    if not usable.all():
        levels[~usable] = 0
    return levels, np.where(usable[..., None], exponents, BAD).astype(np.int8)


def multiples(levels: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """q · 2ᵉ, which float32 holds exactly; NaN where exponents are BAD."""
    steps = np.ldexp(np.float32(1), exponents.astype(np.int32))
    steps[exponents == BAD] = np.nan
    found = levels.astype(np.float32)
    found *= _spread(steps, levels.shape[-1])
    return found


def _spread(steps: np.ndarray, size: int) -> np.ndarray:
    """The step of each entry, `[..., d]`."""
    found: np.ndarray = np.repeat(steps, PIECE, axis=-1)[..., :size] if size > PIECE else steps
    return found
