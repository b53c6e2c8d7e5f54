"""Bayesian optimisation against closed forms, sampling and a known front."""

from __future__ import annotations

import numpy as np

from fedpareto.moo import bayesian
from fedpareto.moo.indicators import hypervolume

REFERENCE = np.array([1.0, 1.0])
CORNERS = np.array([[0.2, 0.8], [0.5, 0.5], [0.8, 0.1]])


def test_without_uncertainty_the_expectation_is_the_improvement_itself():
    points = np.array([[0.1, 0.1], [0.3, 0.6], [0.6, 0.6], [1.2, 0.0], [0.9, 0.05]])
    found = bayesian.expected_improvement(points, np.zeros_like(points), CORNERS, REFERENCE)
    before = hypervolume(CORNERS, REFERENCE)
    improvement = [hypervolume(np.vstack([CORNERS, point]), REFERENCE) - before for point in points]
    np.testing.assert_allclose(found, improvement, atol=1e-12)


def test_the_expectation_is_that_of_many_draws():
    mean, deviation = np.array([[0.55, 0.55]]), np.array([[0.2, 0.1]])
    draws = mean + deviation * np.random.default_rng(0).standard_normal((20_000, 2))
    sure = bayesian.expected_improvement(draws, np.zeros_like(draws), CORNERS, REFERENCE)
    found = bayesian.expected_improvement(mean, deviation, CORNERS, REFERENCE)[0]
    assert abs(found - sure.mean()) <= 4 * sure.std() / np.sqrt(len(sure))
    assert bayesian.expected_improvement(mean, 0 * deviation, CORNERS, REFERENCE)[0] == 0 < found


def test_a_process_goes_through_what_was_seen_and_is_unsure_elsewhere():
    points = bayesian.lattice(1, 9)
    values = np.stack([np.sin(3 * points[:, 0]), points[:, 0] ** 2], axis=1)
    means, deviations = bayesian.predicted(points, values, np.array([[0.25], [0.3], [5.0]]))
    np.testing.assert_allclose(means[0], values[2], atol=1e-3)
    np.testing.assert_allclose(means[1], [np.sin(0.9), 0.09], atol=2e-2)
    assert (deviations[2] > 10 * deviations[:2]).all()


def test_proposals_approach_a_known_front():
    """Squared distances to two corners of the square: the front is the edge between them."""

    def values(points):
        return np.stack([(points**2).sum(1), ((points - [1.0, 0.0]) ** 2).sum(1)], axis=1) / 2

    candidates = bayesian.lattice(2, 21)
    tried = np.array([[0.5, 0.75]])
    for _ in range(20):
        found = bayesian.proposal(tried, values(tried[:-1]), REFERENCE, candidates)  # The last is still on its way.
        assert (np.abs(tried - found).max(axis=1) > 0).all(), "nothing is tried twice"
        tried = np.vstack([tried, found])
    best = hypervolume(values(candidates), REFERENCE)
    spread = hypervolume(values(np.random.default_rng(1).random((21, 2))), REFERENCE)
    found = hypervolume(values(tried), REFERENCE)
    assert found >= 0.97 * best
    assert found > spread
