"""The shortest vector in the convex hull of m gradients, found on their Gram matrix K `[m, m]` alone.

Its weights λ solve min λᵀKλ over the simplex (MGDA: Désidéri, 2012). The vector is zero exactly where the gradients'
point is Pareto stationary; elsewhere it has a positive inner product with every gradient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.config.errors import UserError

Array = NDArray[np.float64]

RIDGE = 1e-10
"""Weight added to the normalised K: of equally good weights (identical gradients) the most even ones are chosen."""


def min_norm_weights(gram: ArrayLike) -> Array:
    """λ `[m]`, exact up to rounding; even where all gradients are zero.

    Found by non-negative least squares: the minimum over λ ≥ 0 of λᵀKλ + (1ᵀλ − 1)² has Kλ ≥ (1 − 1ᵀλ)1 with equality
    on λ's support, which is the optimality condition on the simplex up to λ's length.
    """
    from scipy.optimize import nnls

    scaled = normalised(gram)
    m = len(scaled)
    values, vectors = np.linalg.eigh(scaled)
    root = np.sqrt(values.clip(min=0) + RIDGE)[:, None] * vectors.T
    solution, _ = nnls(np.vstack([root, np.ones(m)]), np.append(np.zeros(m), 1.0), maxiter=100 * m)
    return np.asarray(solution / solution.sum())


def projected_gradient(gram: ArrayLike, start: ArrayLike, steps: int, step_size: float) -> Array:
    """λ after `steps` of λ ← Π(λ − step_size·Kλ) on the normalised K, from `start` (FedCMOO's weights)."""
    scaled, weights = normalised(gram), project_to_simplex(start)
    for _ in range(steps):
        v = weights - step_size * (scaled @ weights)
        v -= v.max()
        inside = v - (v.sum() - 1) / len(v)
        weights = inside if inside.min() >= 0 else project_to_simplex(v)
    return weights


def project_to_simplex(vector: ArrayLike) -> Array:
    """The nearest point of the simplex, exactly (Duchi et al., 2008)."""
    v = np.asarray(vector, dtype=np.float64)
    v = v - v.max()  # The nearest point is the same, and the 1 below is not lost to rounding beside huge numbers.
    shifted = v - (v.sum() - 1) / len(v)
    if shifted.min() >= 0:
        return np.asarray(shifted)  # The nearest point of the simplex's plane lies in the simplex already.
    descending = np.sort(v)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(v) + 1)
    support = int(np.count_nonzero(descending > excess))
    return np.asarray((v - excess[support - 1]).clip(min=0))


def normalised(gram: ArrayLike) -> Array:
    """K over the squared mean length of the gradients, as FedCMOO's published code has it; zero stays zero."""
    matrix = as_gram(gram, "the objectives' gradients")
    scale = np.sqrt(matrix.diagonal().clip(min=0)).mean() ** 2
    # Below the smallest normal number a quotient has no digits left: such gradients are zero.
    return matrix / scale if scale > np.finfo(np.float64).tiny else np.zeros_like(matrix)


def as_gram(gram: ArrayLike, what: str) -> Array:
    matrix = np.asarray(gram, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"a Gram matrix is square, not {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise UserError(f"{what} are not finite numbers; a smaller lr may help")
    return matrix
