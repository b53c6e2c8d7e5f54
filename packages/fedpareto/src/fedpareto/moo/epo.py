"""Exact Pareto optimal search: Mahapatra and Rajan, "Multi-task learning with user preferences", 2020.

A preference r asks for the point of the front where r_1 l_1 = … = r_m l_m: the larger r_j, the smaller that loss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.moo.min_norm import Array, min_norm_weights, normalised

NEAR_LARGEST = 0.9
"""Losses r_j l_j from this share of the largest on must not grow while balancing (published code; paper: 1)."""


def epo_weights(losses: ArrayLike, gram: ArrayLike, preference: ArrayLike, tolerance: float = 1e-2) -> Array:
    """Weights α `[m]` of the objectives' gradients, from their losses, their Gram matrix C and a preference r.

    Far from the ray (non-uniformity above `tolerance`) α leads towards it, allowing losses that are already small to
    grow; near it α descends all losses. Objectives of preference 0 are left out.

    Only the ratios of r matter for the ray; but the bounds of the linear programme grow with r while its left side does
    not, so r is scaled to a sum of 1, as preferences are everywhere here: all alike are 1/m each.
    """
    r = np.asarray(preference, dtype=np.float64)
    r = r / r.sum()
    wanted = r > 0
    if not wanted.all():
        weights = np.zeros(len(r))
        matrix = np.asarray(gram, dtype=np.float64)[np.ix_(wanted, wanted)]
        weights[wanted] = epo_weights(np.asarray(losses)[wanted], matrix, r[wanted], tolerance)
        return weights
    c = normalised(gram)
    uniformity, adjustment = adjustments(losses, r)
    towards = c @ adjustment
    if uniformity <= tolerance:
        return programme(c, objective=c.sum(axis=0), at_least=np.zeros(len(r)))
    at_least = np.where(towards > 0, -np.inf, towards)
    weighted = r * np.asarray(losses)
    at_least[weighted >= NEAR_LARGEST * weighted.max()] = 0
    if not (towards > 0).any():
        at_least = np.zeros(len(r))
    return programme(c, objective=towards, at_least=at_least)


def adjustments(losses: ArrayLike, preference: ArrayLike) -> tuple[float, Array]:
    """The non-uniformity μ_r(l), which is the divergence of the normalised r ⊙ l from uniform, and the anchor a `[m]`.

    Moving the losses along −a makes them more uniform. Losses are at least 0; 0 is taken as the smallest number above.
    """
    weighted = np.asarray(preference, dtype=np.float64) * np.asarray(losses, dtype=np.float64)
    weighted = weighted.clip(min=np.finfo(np.float64).tiny)
    share = weighted / weighted.sum()
    # The share of a vanishing loss may underflow to 0, whose logarithm times 0 is 0.
    logarithm = np.log(share.clip(min=np.finfo(np.float64).tiny) * len(share))
    uniformity = float(share @ logarithm)
    return uniformity, np.asarray(preference * (logarithm - uniformity))


def programme(c: Array, objective: Array, at_least: Array) -> Array:
    """The α of the simplex that maximises αᵀobjective subject to Cα ≥ at_least."""
    from scipy.optimize import linprog

    m, bounded = len(c), np.isfinite(at_least)
    solution = linprog(
        -objective,
        A_ub=-c[bounded],
        b_ub=-at_least[bounded],
        A_eq=np.ones((1, m)),
        b_eq=np.ones(1),
        bounds=(0, 1),
        method="highs",
    )
    # The shortest vector keeps every constraint, as no entry of `at_least` is positive: only rounding brings us here.
    return np.asarray(solution.x) if solution.success else min_norm_weights(c)
