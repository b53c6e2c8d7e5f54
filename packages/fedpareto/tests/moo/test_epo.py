from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.moo.epo import adjustments, epo_weights

quick = settings(deadline=None, max_examples=60, derandomize=True)


def test_losses_on_the_ray_are_uniform_and_others_are_not() -> None:
    preference = np.array([0.2, 0.3, 0.5])
    on_ray, anchor = adjustments(1 / preference, preference)
    assert on_ray == pytest.approx(0, abs=1e-12)
    assert anchor == pytest.approx(np.zeros(3), abs=1e-12)
    assert adjustments([1, 1, 1], preference)[0] > 0


def test_non_uniformity_by_hand() -> None:
    """r ⊙ l = (1, 3): shares ¼ and ¾, μ = ¼ log ½ + ¾ log 3/2."""
    mu = 0.25 * np.log(0.5) + 0.75 * np.log(1.5)
    found, anchor = adjustments([2, 2], [0.5, 1.5])
    assert found == pytest.approx(mu)
    assert anchor == pytest.approx([0.5 * (np.log(0.5) - mu), 1.5 * (np.log(1.5) - mu)])


@quick
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.floats(0.1, 10))
def test_a_small_step_along_the_weights_makes_the_losses_more_uniform_or_smaller(
    seed: int, m: int, scale: float
) -> None:
    """With gradients G of the losses, l − t·GGᵀα is more uniform if it was not, and nowhere larger if it was."""
    stream = np.random.default_rng(seed)
    rows, preference = stream.standard_normal((m, 12)), stream.dirichlet(np.full(m, 2.0)) + 0.05
    losses = stream.uniform(0.5, 2, m) * scale
    gram = rows @ rows.T
    weights = epo_weights(losses, gram, preference, tolerance=1e-2)
    assert weights.min() >= -1e-9
    assert weights.sum() == pytest.approx(1)
    before, anchor = adjustments(losses, preference)
    moved = losses - 1e-6 * scale * gram @ weights
    if before > 1e-2:
        if (anchor @ gram @ weights) > 0:
            assert adjustments(moved, preference)[0] < before
    else:
        assert (moved <= losses + 1e-12 * scale).all()


@quick
@given(st.integers(0, 2**32 - 1))
def test_the_weights_of_three_equal_a_search_over_the_simplex(seed: int) -> None:
    """The linear programme's optimum is not below the best point of a fine grid that keeps its constraints."""
    stream = np.random.default_rng(seed)
    rows, losses = stream.standard_normal((3, 5)), stream.uniform(0.2, 3, 3)
    gram = rows @ rows.T
    mu, anchor = adjustments(losses, np.full(3, 1 / 3))
    towards = gram @ anchor
    weights = epo_weights(losses, gram, np.ones(3))
    if mu <= 1e-2 or not (towards > 0).any():
        return
    at_least = np.where(towards > 0, -np.inf, towards)
    at_least[losses >= 0.9 * losses.max()] = 0
    ticks = np.linspace(0, 1, 41)
    grid = np.array([(a, b, 1 - a - b) for a in ticks for b in ticks if a + b <= 1])
    allowed = grid[(grid @ gram >= at_least - 1e-9).all(axis=1)]
    assert (gram @ weights >= at_least - 1e-6).all()
    assert len(allowed) == 0 or towards @ weights >= (allowed @ towards).max() - 1e-6


def test_an_objective_of_no_importance_is_left_out() -> None:
    gram = np.array([[1.0, -0.9], [-0.9, 1]])
    assert epo_weights([1.0, 1], gram, [0, 1]) == pytest.approx([0, 1])
    three = epo_weights([1.0, 1, 5], np.eye(3), [0.5, 0.5, 0])
    assert three[2] == 0
    assert three.sum() == pytest.approx(1)


def test_the_larger_a_weighted_loss_the_larger_its_weight() -> None:
    for preference, leader in (([0.8, 0.2], 0), ([0.2, 0.8], 1)):
        assert epo_weights([1.0, 1], np.eye(2), preference).argmax() == leader


@pytest.mark.parametrize("losses", [[0.0, 1.0], [0.0, 0.0], [1e-300, 1e-300]])
@pytest.mark.parametrize("gram", [np.zeros((2, 2)), np.ones((2, 2)), np.diag([0.0, 1.0])])
def test_vanishing_losses_and_gradients_give_weights_all_the_same(losses: list[float], gram: np.ndarray) -> None:
    weights = epo_weights(losses, gram, [0.5, 0.5])
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_the_scale_of_the_gradients_does_not_matter(scale: float) -> None:
    rows = np.random.default_rng(3).standard_normal((3, 6))
    gram, losses = rows @ rows.T, np.array([1.0, 2, 4])
    assert epo_weights(losses, gram * scale, np.ones(3)) == pytest.approx(epo_weights(losses, gram, np.ones(3)))


@quick
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.floats(0.01, 100))
def test_only_the_ratios_of_a_preference_matter(seed: int, m: int, scale: float) -> None:
    stream = np.random.default_rng(seed)
    rows, losses, preference = stream.standard_normal((m, 5)), stream.uniform(0.2, 3, m), stream.dirichlet(np.ones(m))
    gram = rows @ rows.T
    assert epo_weights(losses, gram, scale * preference) == pytest.approx(epo_weights(losses, gram, preference))


def test_all_alike_is_the_same_preference_however_it_is_written() -> None:
    losses, gram = [1, 2], [[1, -0.5], [-0.5, 1]]
    assert epo_weights(losses, gram, [1, 1]) == pytest.approx(epo_weights(losses, gram, [0.5, 0.5]))
