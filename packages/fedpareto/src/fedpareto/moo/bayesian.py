"""Multi-objective Bayesian optimisation: which point to try next, from few that were tried.

Each objective has a Gaussian process of its own (Rasmussen and Williams, "Gaussian processes for machine learning",
2006, algorithm 2.1) with a Matérn kernel, ν = 5/2. Its length scale and noise are those of a few with the largest
marginal likelihood: with a handful of points there is no more to be learnt. Of a lattice of points, that one is next
whose expected improvement of the hypervolume is largest. Nothing here is drawn at random.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from fedpareto.moo._points import Array
from fedpareto.moo.dominance import front

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Length scales of the kernel, in units of the cube's edge."""
NOISES = (1e-6, 1e-2, 1e-1)
"""Variances of the noise, in units of the observations' variance."""
ENOUGH = 2
"""Fewest observations for a process; before that, points are spread out."""


def lattice(dimensions: int, steps: int) -> Array:
    """The points `[stepsᵈ, d]` of the unit cube that are multiples of 1 / (steps − 1)."""
    return np.array(list(itertools.product(np.linspace(0, 1, steps), repeat=dimensions)))


def proposal(tried: Array, values: Array, reference: Array, candidates: Array) -> Array:
    """The one of `candidates` `[c, d]` to try next, `[d]`.

    `tried` `[t, d]` are the points so far, `values` `[s, 2]` the objectives, to be minimised, of the first s ≤ t of
    them: of the others none are known yet, and the processes' means stand for them, so that they are not tried again.
    """
    measured, waiting = tried[: len(values)], tried[len(values) :]
    if len(values) < ENOUGH:
        return np.asarray(candidates[_distances(candidates, tried).min(axis=1).argmax()])
    if len(waiting):
        means, _ = predicted(measured, values, waiting)
        measured, values = tried, np.vstack([values, means])
    means, deviations = predicted(measured, values, candidates)
    return np.asarray(candidates[expected_improvement(means, deviations, values, reference).argmax()])


def predicted(points: Array, values: Array, candidates: Array) -> tuple[Array, Array]:
    """Means and standard deviations `[c, m]` of what `candidates` `[c, d]` would give, after `values` `[t, m]`."""
    found = [_process(points, column, candidates) for column in values.T]
    return np.stack([mean for mean, _ in found], axis=1), np.stack([deviation for _, deviation in found], axis=1)


def expected_improvement(means: Array, deviations: Array, values: Array, reference: Array) -> Array:
    """Expected gain of hypervolume of `values`, `[c]`, by points with normally distributed objectives, `[c, 2]`.

    The area below the front, down to −∞ and up to the reference, is cut into strips. A point u in there is gained if
    the new one is below it in both objectives, which are independent; integrated over a strip that is a product:
    ∫_{−∞}^{b} Φ((u − μ) / σ) du = (b − μ) Φ(t) + σ φ(t) with t = (b − μ) / σ.
    """
    within = values[(values < reference).all(axis=1)]
    ends = front(within) if len(within) else within
    ends = ends[np.argsort(ends[:, 0])]
    rights = np.append(ends[:, 0], reference[0])
    heights = np.append(reference[1], ends[:, 1])
    areas = _below(rights, means[:, :1], deviations[:, :1])
    widths = np.diff(areas, axis=1, prepend=0.0)
    return np.asarray((widths * _below(heights, means[:, 1:], deviations[:, 1:])).sum(axis=1))


def _below(bounds: Array, mean: Array, deviation: Array) -> Array:
    """∫_{−∞}^{b} Φ((u − μ) / σ) du for each bound, `[c, b]`."""
    from scipy.special import ndtr  # Every run imports this file; scipy is for those that search.

    deviation = np.maximum(deviation, np.finfo(float).tiny ** 0.5)
    t = (bounds - mean) / deviation
    return np.asarray((bounds - mean) * ndtr(t) + deviation * np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi))


def _process(points: Array, values: Array, candidates: Array) -> tuple[Array, Array]:
    """Posterior mean and deviation `[c]` of one objective, under the most likely length scale and noise."""
    from scipy.linalg import cho_factor, cho_solve

    centre, scale = values.mean(), values.std() or 1.0
    targets = (values - centre) / scale
    best, found = -math.inf, (np.zeros(len(candidates)), np.ones(len(candidates)))
    for length, noise in itertools.product(LENGTHS, NOISES):
        covariance = _kernel(points, points, length) + noise * np.eye(len(points))
        factor = cho_factor(covariance, lower=True)
        solved = cho_solve(factor, targets)
        likelihood = -targets @ solved / 2 - np.log(np.diag(factor[0])).sum()
        if likelihood > best:
            across = _kernel(candidates, points, length)
            explained = (across * cho_solve(factor, across.T).T).sum(axis=1)
            best, found = likelihood, (across @ solved, np.sqrt(np.maximum(1 - explained, 0)))
    mean, deviation = found
    return centre + scale * mean, scale * deviation


def _kernel(some: Array, others: Array, length: float) -> Array:
    """Matérn, ν = 5/2, with variance 1."""
    r = math.sqrt(5) * _distances(some, others) / length
    return np.asarray((1 + r + r**2 / 3) * np.exp(-r))


def _distances(some: Array, others: Array) -> Array:
    return np.asarray(np.linalg.norm(some[:, None] - others[None], axis=-1))
