"""Distributed noise: whole numbers whose sum hides a client as well as agreed, though nobody has all of the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numerical_accountant import Pair, gaussian_epsilon
from numerical_accountant import epsilon as numerical

from fedpareto.contract.privacy import Exposure, Privacy, epsilon
from fedpareto.trust.discrete import deviation, discrete_gaussian, enough, reach


def probabilities(sigma, widest):
    """Of −widest … widest, by definition."""
    weights = np.exp(-(np.arange(-widest, widest + 1) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


@pytest.mark.parametrize("sigma", [4.0, 7.3])
def test_numbers_are_as_frequent_as_they_should_be(sigma):
    drawn = discrete_gaussian(np.random.default_rng(1), sigma, 200_000)
    found = np.bincount(np.clip(drawn, -40, 40) + 40, minlength=81)
    wanted = len(drawn) * probabilities(sigma, 40)
    common = wanted > 20
    chi = float(((found - wanted)[common] ** 2 / wanted[common]).sum())
    assert abs(chi - common.sum()) < 5 * math.sqrt(2 * common.sum())


def test_large_ones_have_the_moments_of_a_gaussian():
    drawn = discrete_gaussian(np.random.default_rng(2), 3e7, 100_000) / 3e7
    assert abs(drawn.mean()) < 5 / math.sqrt(100_000)
    assert drawn.var() == pytest.approx(1, abs=5 * math.sqrt(2 / 100_000))
    assert (drawn**4).mean() == pytest.approx(3, abs=5 * math.sqrt(96 / 100_000))


@pytest.mark.parametrize(("noise", "times"), [(1.0, 1), (2.0, 4), (5.0, 30), (12.0, 100)])
def test_a_sum_of_shares_hides_a_client_as_epsilon_says(noise, times):
    """The sum's own probabilities, by convolution, against a client that reaches as far as it can; ours is above."""
    privacy, count = Privacy("distributed", clip=1.0, noise=noise), 6
    unit = 1 / 40
    sigma, shift = deviation(privacy, unit, 1, count), math.ceil(reach(privacy, unit, 1))
    widest = math.ceil(14 * sigma)
    whole = np.ones(1)
    for _ in range(enough(privacy, count)):
        whole = np.convolve(whole, probabilities(sigma, widest))
    none, moved = np.pad(whole, (0, shift)), np.pad(whole, (shift, 0))
    theirs = numerical([(Pair.of(moved, none), times)], privacy.delta)
    ours = epsilon(privacy, Exposure(times, times, count, count))
    assert theirs <= ours <= 1.2 * theirs + 0.05
    assert ours >= gaussian_epsilon(times / noise**2, privacy.delta), "discrete numbers are no better than real ones"
