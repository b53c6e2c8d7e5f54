"""Small programmes over the simplex, solved by trying all places where the optimum may be."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np


def projected(v):
    """The nearest point of the simplex, by trying how many entries are above zero."""
    ordered = np.sort(v)[::-1]
    shifts = [(ordered[:k].sum() - 1) / k for k in range(1, len(v) + 1)]
    return np.maximum(v - max(shifts), 0)


def shortest(k, low, high):
    """argmin λᵀKλ over low ≤ λ ≤ high with Σ λ = 1: each λ_i is at a bound or free, and the free ones solve KKT.

    Of all places at once: one row of `at` for each. Rows for bound ones say λ_i = its bound.
    """
    n = len(k)
    at = np.array(list(product((0, 1, 2) if (high < 1).any() else (0, 2), repeat=n)))
    left, right = np.zeros((len(at), n + 1, n + 1)), np.zeros((len(at), n + 1))
    left[:, :n, :n] = np.where((at == 2)[:, :, None], k, np.eye(n))
    left[:, :n, n], left[:, n, :n], right[:, n] = at == 2, 1, 1
    right[:, :n] = np.where(at == 2, 0, np.where(at == 1, high, low))
    # Where the free ones are not independent, the same mixture is found with fewer of them.
    regular = abs(np.linalg.det(left)) > 1e-9 * k.diagonal().mean() ** ((at == 2).sum(1) - 1)
    found = np.linalg.solve(left[regular], right[regular][..., None])[:, :n, 0]
    found = found[((found >= low - 1e-12) & (found <= high + 1e-12)).all(1)]
    return min(found, key=lambda weights: weights @ k @ weights)


def best_vertex(c, k, at_least):
    """argmax cᵀλ over the simplex with Kλ ≥ b, a linear programme: its optimum is a vertex; b may be −∞."""
    n, found = len(c), []
    bounds = np.vstack([np.eye(n), k[np.isfinite(at_least)]])
    levels = np.append(np.zeros(n), at_least[np.isfinite(at_least)])
    scales = abs(bounds).max(1)
    bounds, levels = bounds / scales[:, None], levels / scales
    for active in map(list, combinations(range(len(bounds)), n - 1)):
        left = np.vstack([np.ones(n), bounds[active]])
        if abs(np.linalg.det(left)) > 1e-9:
            weights = np.linalg.solve(left, np.append(1, levels[active]))
            if (bounds @ weights >= levels - 1e-10).all():
                found.append(weights)
    return max(found, key=lambda weights: c @ weights)
