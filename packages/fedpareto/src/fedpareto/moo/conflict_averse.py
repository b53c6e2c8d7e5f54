"""The direction near a mean update that is best for the update it conflicts with most.

max_d min_i ⟨g_i, d⟩ subject to ‖d − g_0‖ ≤ c ‖g_0‖, on the updates' Gram matrix K `[n, n]` alone. Its dual, over the
simplex, is min_w ⟨g_w, g_0⟩ + c ‖g_0‖ ‖g_w‖ with g_w = Σ_i w_i g_i, and d = g_0 + c ‖g_0‖ g_w / ‖g_w‖ (Liu et al.,
"Conflict-averse gradient descent for multi-task learning", 2021).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedpareto.moo.box_simplex import box_min_norm_weights
from fedpareto.moo.min_norm import Array, normalised

SMALLEST = 1e-6
"""Smallest τ below, where updates have a length of about 1: below it g_w counts as zero."""
TOLERANCE = 1e-14


def conflict_averse_weights(gram: ArrayLike, shares: ArrayLike, radius: float) -> Array:
    """Weights added to the shares s of g_0 = Σ_i s_i g_i, `[n]`: Σ_i of it times g_i is d − g_0; c = `radius` < 1.

    For ‖g_w‖ = t given, w is the shortest mixture of the g_i + τ g_0 with τ = t / (c ‖g_0‖), which is found exactly;
    and t is where that mixture's ‖g_w‖ is t. The dual is convex in (w, t), so there is one such place.
    """
    from scipy.optimize import brentq

    k, s = normalised(gram), np.asarray(shares, dtype=np.float64)
    if not 0 <= radius < 1:
        raise ValueError(f"the radius is {radius}; from 1 on the ball holds the direction of nobody")
    reach = radius * math.sqrt(max(float(s @ k @ s), 0.0))
    if reach <= SMALLEST or len(s) == 1:
        return radius * s  # Along g_0 itself, if that is anywhere.
    along = k @ s

    def mixture(tau: float) -> Array:
        shifted = k + tau * (along[:, None] + along) + tau**2 * (s @ along)
        return box_min_norm_weights(shifted, s)

    def excess(tau: float) -> float:
        weights = mixture(tau)
        return math.sqrt(max(float(weights @ k @ weights), 0.0)) - tau * reach

    longest = math.sqrt(k.diagonal().max())
    if excess(SMALLEST) <= 0:
        return np.zeros_like(s)  # Nothing in the ball is better for the worst than g_0, but for rounding.
    tau = brentq(excess, SMALLEST, 2 * longest / reach, xtol=TOLERANCE)
    weights = mixture(tau)
    return np.asarray(weights / tau)
