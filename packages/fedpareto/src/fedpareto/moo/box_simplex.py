"""The shortest vector among mixtures of n updates that stay near given weights (FedMGDA+: Hu et al., 2022, eq. 25).

On the updates' Gram matrix K `[n, n]` alone: min λᵀKλ over the simplex with |λ_i − λ0_i| ≤ ε. With ε = 1 the box is no
constraint and the mixture is MGDA's common direction of descent; with ε = 0 it is the one with the weights λ0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpareto.config.errors import UserError
from fedpareto.moo.min_norm import Array, as_gram

Mask = NDArray[np.bool_]

RIDGE = 1e-10
"""Weight of ‖λ − λ0‖² beside the normalised λᵀKλ: of equally good weights those nearest λ0 are chosen."""
TOLERANCE = 1e-12
"""The Frank-Wolfe gap of the problem with the ridge, in the normalised K, below which λ counts as optimal."""
CHANGES = 30
"""Most changes of the active-set method."""
STEPS = 60
"""Most steps of the interior-point method; it mostly takes 6 to 16."""


@dataclass(frozen=True)
class BoxSimplex:
    """The weights λ with Σλ = 1 and low ≤ λ ≤ high."""

    low: Array
    high: Array

    @classmethod
    def around(cls, centre: ArrayLike, radius: float) -> BoxSimplex:
        """The part of the simplex where no weight is further than ε = `radius` from `centre`, a point of it."""
        middle = np.asarray(centre, dtype=np.float64)
        if middle.ndim != 1 or not len(middle) or middle.min() < 0 or abs(middle.sum() - 1) > 1e-6:
            raise ValueError(f"the weights to stay near are no point of the simplex: {middle}")
        if not 0 <= radius <= 1:
            raise UserError(f"epsilon is {radius}; weights are at most 1 apart: it is between 0 and 1")
        return cls((middle - radius).clip(min=0), (middle + radius).clip(max=1))

    def project(self, vector: ArrayLike) -> Array:
        """The nearest point, exactly: clip(vector − τ) with the τ at which its sum is 1.

        The sum falls piecewise linearly in τ, with a kink where an entry reaches or leaves a bound.
        """
        v = np.asarray(vector, dtype=np.float64)
        kinks = np.sort(np.concatenate([v - self.low, v - self.high]))
        first, last = 0, len(kinks) - 1
        while last - first > 1:
            middle = (first + last) // 2
            if np.minimum(np.maximum(v - kinks[middle], self.low), self.high).sum() >= 1:
                first = middle
            else:
                last = middle
        left, right = self._clipped(v - kinks[first]), self._clipped(v - kinks[last])
        fall = left.sum() - right.sum()
        share = min(max((left.sum() - 1) / fall, 0.0), 1.0) if fall > 0 else 0.0
        return left + share * (right - left)

    def _clipped(self, vector: Array) -> Array:
        return np.minimum(np.maximum(vector, self.low), self.high)

    def lowest(self, gradient: Array) -> Array:
        """The corner where gradient · λ is smallest: what is left beyond `low` goes to the smallest entries first."""
        order = np.argsort(gradient, kind="stable")
        room = (self.high - self.low)[order]
        left = 1 - self.low.sum()
        taken = np.minimum(room, (left - (np.cumsum(room) - room)).clip(min=0))
        corner = self.low.copy()
        corner[order] += taken
        return corner

    def gap(self, weights: Array, gradient: Array) -> float:
        """The Frank-Wolfe gap, an upper bound on how far λ's value is above the optimum of a convex function."""
        return float(gradient @ (weights - self.lowest(gradient)))


def box_min_norm_weights(gram: ArrayLike, centre: ArrayLike, radius: float = 1.0) -> Array:
    """λ `[n]` that minimises λᵀKλ on the simplex with |λ − centre| ≤ radius; `centre` where K is zero.

    An active-set method mostly finds it at once. Where it does not (in one of ten adversarial cases), an
    interior-point method gets close enough to identify the active set. The Frank-Wolfe gap decides.
    """
    box = BoxSimplex.around(centre, radius)
    middle = box.project(centre)
    if not radius or len(middle) == 1:
        return middle
    scaled = by_mean_diagonal(gram)
    if len(scaled) != len(middle):
        raise ValueError(f"a Gram matrix of {len(scaled)} updates, but {len(middle)} weights")
    if not scaled.any():
        return middle
    programme = _Programme(scaled, middle, box)
    weights = programme.active_set(middle)
    if programme.gap(weights) > TOLERANCE:
        weights = programme.active_set(programme.interior_point())
    return weights


def by_mean_diagonal(gram: ArrayLike) -> Array:
    """K over the mean of its diagonal, and exactly symmetric: solvers fail on numbers such as 1e-12; zero stays so."""
    matrix = as_gram(gram, "the clients' updates")
    scale = matrix.diagonal().mean()
    # Below the smallest normal number a quotient has no digits left: such updates are zero.
    if scale < np.finfo(np.float64).tiny:
        return np.zeros_like(matrix)
    return np.asarray((matrix + matrix.T) / (2 * scale))


@dataclass(frozen=True)
class _Programme:
    """min ½λᵀKλ + ρ/2 ‖λ − λ0‖² over the box on the simplex, K normalised: strictly convex, so λ is unique."""

    gram: Array
    centre: Array
    box: BoxSimplex

    def gradient(self, weights: Array) -> Array:
        return np.asarray(self.gram @ weights + RIDGE * (weights - self.centre))

    def gap(self, weights: Array) -> float:
        return self.box.gap(weights, self.gradient(weights))

    def interior_point(self) -> Array:
        """Mehrotra's predictor-corrector method (1992), projected; the best iterate where it ends early.

        x has slacks s to both bounds, with multipliers z; Σx = 1 has the multiplier y.
        """
        from scipy.linalg import cho_factor, cho_solve

        n = len(self.centre)
        low, high = self.box.low, self.box.high
        quadratic = self.gram + RIDGE * np.eye(n)
        x, y = (low + high) / 2, 0.0
        s, z = np.stack([x - low, high - x]), np.ones((2, n))
        best, best_gap = self.centre, self.gap(self.centre)
        for _ in range(STEPS):
            weights = self.box.project(x)
            if (gap := self.gap(weights)) < best_gap:
                best, best_gap = weights, gap
            mean = float((s * z).mean())
            if best_gap <= TOLERANCE * 1e-4 or mean <= TOLERANCE * 1e-6:
                break
            dual = quadratic @ x - RIDGE * self.centre - y - z[0] + z[1]
            try:
                factor = cho_factor(quadratic + np.diag((z / s).sum(0)), check_finite=False)
            except np.linalg.LinAlgError:
                break
            ones = cho_solve(factor, np.ones(n), check_finite=False)
            target, turn = np.zeros((2, n)), np.zeros(2)
            for corrected in (False, True):
                # target is what s·z is to be; without one, the predictor's step says how far that may fall.
                right = -dual + (target[0] / s[0] - z[0]) - (target[1] / s[1] - z[1])
                plain = cho_solve(factor, right, check_finite=False)
                dy = (1 - x.sum() - plain.sum()) / ones.sum()
                dx = plain + dy * ones
                ds = np.stack([dx, -dx])
                dz = (target - z * ds) / s - z
                turn = np.array([_longest(s, ds), _longest(z, dz)])
                if not corrected:
                    ahead = float(((s + turn[0] * ds) * (z + turn[1] * dz)).mean())
                    target = mean * (ahead / mean) ** 3 - ds * dz
            x, s = x + 0.99 * turn[0] * dx, s + 0.99 * turn[0] * ds
            y, z = y + 0.99 * turn[1] * dy, z + 0.99 * turn[1] * dz
        return best

    def active_set(self, weights: Array) -> Array:
        """The best of `weights` and of the iterates of a primal-dual active-set method (Hintermüller et al., 2003).

        Those inside the box get the weights at which their gradients are equal; a weight that leaves the box is set to
        its bound, and one at a bound with a gradient of the wrong sign becomes free again.
        """
        best, best_gap = weights, self.gap(weights)
        at_low, at_high = self._bound(weights, 1e-7)
        for _ in range(CHANGES):
            if best_gap <= TOLERANCE * 1e-3:
                break
            free = ~(at_low | at_high)
            raw = np.where(at_low, self.box.low, self.box.high)
            try:
                raw[free], level = self._equal_gradients(raw, free)
            except np.linalg.LinAlgError:  # Rounding has made K indefinite by more than the ridge.
                break
            candidate = self.box.project(raw)
            gap = self.gap(candidate)
            if gap < best_gap:
                best, best_gap = candidate, gap
            slope = self.gradient(raw)
            before = at_low, at_high
            at_low = np.where(at_low, slope > level, raw < self.box.low)
            at_high = np.where(at_high, slope < level, raw > self.box.high) & ~at_low
            if np.array_equal(before[0], at_low) and np.array_equal(before[1], at_high):
                break
        return best

    def _bound(self, weights: Array, share: float) -> tuple[Mask, Mask]:
        """True for weights at a lower and at an upper bound, up to a share of the width between both."""
        margin = share * (self.box.high - self.box.low)
        at_low = weights - self.box.low <= margin
        return at_low, (self.box.high - weights <= margin) & ~at_low

    def _equal_gradients(self, weights: Array, free: Mask) -> tuple[Array, float]:
        """The free weights that make the sum 1 and their gradients equal, the others as they are; and that gradient."""
        from scipy.linalg import cho_factor, cho_solve

        if not free.any():
            return weights[free], float(np.median(self.gradient(weights)))
        inner = self.gram[np.ix_(free, free)] + RIDGE * np.eye(int(free.sum()))
        fixed = np.where(free, 0.0, weights)
        target = RIDGE * self.centre[free] - self.gram[free] @ fixed
        mass = 1 - fixed.sum()
        factor = cho_factor(inner, check_finite=False)
        # Two refinement steps correct the factor's rounding errors on a rank-deficient K.
        direction, base = np.zeros(len(target)), np.zeros(len(target))
        for _ in range(3):
            direction = direction + cho_solve(factor, 1 - inner @ direction, check_finite=False)
            base = base + cho_solve(factor, target - inner @ base, check_finite=False)
        level = float((mass - base.sum()) / direction.sum())
        return base + level * direction, level


def _longest(values: Array, change: Array) -> float:
    """The longest step, at most 1, that keeps the values positive."""
    falling = change < 0
    return min(1.0, float((values[falling] / -change[falling]).min())) if falling.any() else 1.0
