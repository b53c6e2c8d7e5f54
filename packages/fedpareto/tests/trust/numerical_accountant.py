"""An accountant that shares nothing with ours: the privacy loss of a pair of mixtures of Gaussians, by numerical
integration, composed by Fourier transforms (Koskela, Jälkö and Honkela, 2020), each of its points on the safe side
(connect the dots: Doroshenko et al., 2022).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

POINTS, CELLS = 2**16, 2**15
"""Of the grid of losses, a power of two for the Fourier transform; and of what is seen."""


class Pair:
    """Two mixtures of N(shift, σ²) of which an observer sees one: P with a client as it is, Q with its neighbour."""

    def __init__(self, p, q, deviation):
        """`p` and `q`: weights and shifts."""
        shifts = [shift for _, shift in (*p, *q)]
        edges = np.linspace(min(shifts) - 12 * deviation, max(shifts) + 12 * deviation, CELLS)
        self.p, self.q = (self._cells(mixture, edges, deviation) for mixture in (p, q))

    @classmethod
    def of(cls, p, q):
        """Of probabilities that are known."""
        pair = cls.__new__(cls)
        pair.p, pair.q = p, q
        return pair

    @staticmethod
    def _cells(mixture, edges, deviation):
        """How likely it is that what is seen lies in each of many small cells."""
        middle = np.average([shift for _, shift in mixture], weights=[weight for weight, _ in mixture])
        # The tail that is smaller is the one that is computed: differences near 1 would lose it.
        lower = sum(weight * ndtr((edges - shift) / deviation) for weight, shift in mixture)
        upper = sum(weight * ndtr((shift - edges) / deviation) for weight, shift in mixture)
        return np.where(edges[1:] < middle, np.diff(lower), -np.diff(upper))

    def deltas(self, losses):
        """δ(ε) = P(L > ε) − e^ε Q(L > ε) at each of these ε, by definition."""
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.nan_to_num(np.log(self.p) - np.log(self.q), nan=-np.inf)
        order = np.argsort(loss)
        first = np.searchsorted(loss[order], losses, side="right")
        above = [np.append(np.cumsum(cells[order][::-1])[::-1], 0.0)[first] for cells in (self.p, self.q)]
        return np.clip(above[0] - np.exp(losses) * above[1], 0, 1)

    def masses(self, losses):
        """Probabilities of these losses, evenly spaced, and of an infinite one: a pair that is no easier to hide."""
        ratios, deltas = np.exp(losses), self.deltas(losses)
        slopes = np.concatenate([[(1 - deltas[0]) / ratios[0]], -np.diff(deltas) / np.diff(ratios), [0.0]])
        return np.clip(ratios * (slopes[:-1] - slopes[1:]), 0, None), deltas[-1]


def epsilon(pairs, delta, widest=60.0):
    """The smallest ε at δ of all these pairs `(pair, times)` one after the other."""
    step = 2 * widest / POINTS
    grid = (np.arange(POINTS) - POINTS // 2) * step
    transformed, certain = 1.0 + 0j, 0.0
    for pair, times in pairs:
        masses, infinite = pair.masses(grid)
        transformed = transformed * np.fft.fft(np.fft.ifftshift(masses)) ** times
        certain = certain + times * infinite
    composed = np.fft.fftshift(np.fft.ifft(transformed).real)
    losses, composed = grid[grid > 0], np.clip(composed[grid > 0], 0, None)

    def excess(value):
        above = losses > value
        return certain + float((composed[above] * -np.expm1(value - losses[above])).sum()) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, losses[-1], xtol=1e-7))


def gaussian_epsilon(cost, delta):
    """Of one Gaussian mechanism of this (Δ / σ)², in closed form (Balle and Wang, 2018, theorem 8)."""
    mu = cost**0.5

    def excess(value):
        first, second = ndtr(mu / 2 - value / mu), np.exp(value + log_ndtr(-mu / 2 - value / mu))
        return first - second - delta

    return float(brentq(excess, 0.0, 10 + cost + 40 * mu, xtol=1e-9))
