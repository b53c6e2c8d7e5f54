"""Integration of a global model by a client (table 6.2, row 5). Formulas are in float32, one operation at a time."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fedpareto_space.session.events import Arrays
from fedpareto_space.wire import rows


def integrated(
    rule: Any, new: Arrays, local: Arrays, base: Arrays, slices: Mapping[str, slice]
) -> dict[str, np.ndarray]:
    """Return the tensors from which training begins: those of the global message, each brought together with the local
    one.

    `local` is what the client has, `base` the global message from which that came; `slices` say where the named tensors
    of a model lie in a flat vector. A tensor that the client has no other version of is taken as it is.
    """
    return {
        name: _one(rule, array, local[name], base[name], slices) if _fits(name, array, local, base) else array.copy()
        for name, array in new.items()
    }


def _fits(name: str, array: np.ndarray, local: Arrays, base: Arrays) -> bool:
    versions = [some[name] for some in (local, base) if name in some]
    return len(versions) == 2 and all(one.shape == array.shape and one.dtype == array.dtype for one in versions)


def _one(rule: Any, new: np.ndarray, local: np.ndarray, base: np.ndarray, slices: Mapping[str, slice]) -> np.ndarray:
    match rule:
        case rows.Interpolate(share):
            return interpolated(local, new, share)
        case rows.Partial(tensors):
            return partly(local, new, tensors, slices)
        case rows.Rebase():
            # Where nothing was learnt the sum could turn −0 into 0.
            return np.where(local == base, new, new + (local - base))
    return new.copy()


def interpolated(local: np.ndarray, new: np.ndarray, share: float) -> np.ndarray:
    """Local + share × (new − local); 0 is the local one and 1 the new one, bit for bit."""
    if share in (0.0, 1.0):
        return (new if share else local).copy()
    return np.asarray(local + local.dtype.type(share) * (new - local))


def partly(local: np.ndarray, new: np.ndarray, patterns: tuple[str, ...], slices: Mapping[str, slice]) -> np.ndarray:
    """The local one, with those tensors of the new one whose names fit a pattern. The last dimension is the model's."""
    size = max((place.stop for place in slices.values()), default=0)
    if local.ndim == 0 or local.shape[-1] != size:
        return new.copy()
    found = local.copy()
    for name, place in slices.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            found[..., place] = new[..., place]
    return found
