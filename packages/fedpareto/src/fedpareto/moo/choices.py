"""NSGA-II over rows of choices: genomes of b genes, each of which is one of c alternatives.

Ranks, crowding and survival are those of `nsga2`; children come from one-point crossover of two tournament winners, and
each gene is drawn anew with probability 1 / b.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpareto.moo import nsga2
from fedpareto.moo._points import Array

Codes = NDArray[np.int64]
"""`[p, b]`, from 0 to c − 1."""


def survivors(codes: Codes, losses: Array, choices: int, population: int) -> Codes:
    """The best `population` of these, the best first; if fewer differ, they are there again in the same order."""
    genomes = np.eye(choices, dtype=np.bool_)[codes].reshape(len(codes), -1)
    if not genomes.shape[1]:
        return codes[:population]
    kept, _ = nsga2.survivors(genomes, losses, population)
    decoded = kept.reshape(len(kept), codes.shape[1], choices).argmax(axis=2)
    return np.asarray(np.resize(decoded, (population, codes.shape[1])))


def children(codes: Codes, choices: int, stream: np.random.Generator) -> Codes:
    """Children `[p, b]`, as many as parents, who are in order: the better of two is the earlier one."""
    p, b = codes.shape
    mothers, fathers = nsga2.parents(p, p, stream)
    cuts = stream.integers(b + 1, size=(p, 1))
    crossed = np.where(np.arange(b) < cuts, codes[mothers], codes[fathers])
    is_new = stream.random((p, b)) < 1 / max(b, 1)
    return np.where(is_new, stream.integers(choices, size=(p, b)), crossed)
