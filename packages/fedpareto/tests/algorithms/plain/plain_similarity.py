"""How alike vectors are."""

from __future__ import annotations

import numpy as np


def cosine(a, b):
    """0 with a vector of zeros."""
    length = np.linalg.norm(a) * np.linalg.norm(b)
    return a @ b / length if length else 0.0


def cosines(vectors, of=cosine):
    """Of each pair; a client is like itself."""
    found = np.array([[of(a, b) for b in vectors] for a in vectors])
    np.fill_diagonal(found, 1)
    return found


def layerwise(layers, ratio, a, b):
    """FedPref, equations 4.3 to 4.5: the cosine of the ⌈R·dim⌉ largest entries of each layer, the mean over layers."""
    return np.mean([cosine(_top(a[layer], ratio), _top(b[layer], ratio)) for layer in layers])


def _top(entries, ratio):
    keep = int(np.ceil(round(ratio * len(entries), 9)))
    least = np.sort(abs(entries))[-keep] if keep else 0
    return np.where(abs(entries) >= least, entries, 0)
