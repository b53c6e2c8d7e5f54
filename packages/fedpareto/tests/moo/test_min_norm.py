from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.config.errors import UserError
from fedpareto.moo.min_norm import min_norm_weights, normalised, project_to_simplex, projected_gradient

quick = settings(deadline=None, max_examples=60, derandomize=True)


@st.composite
def gradients(draw: st.DrawFn) -> np.ndarray:
    """m vectors of length d, some of them parallel, equal or zero."""
    m, d = draw(st.integers(1, 7)), draw(st.integers(1, 9))
    rows = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).standard_normal((m, d))
    for row in range(1, m):
        kind = draw(st.sampled_from(["own", "own", "own", "parallel", "equal", "opposed", "zero", "long"]))
        factor = {"own": None, "parallel": 3.0, "equal": 1.0, "opposed": -0.5, "zero": 0.0, "long": None}[kind]
        if factor is not None:
            rows[row] = factor * rows[row - 1]
        if kind == "long":
            rows[row] *= 1e3
    return rows


def gap(gram: np.ndarray, weights: np.ndarray) -> float:
    """How much λᵀKλ could still fall, relative to K: 0 at the optimum and only there."""
    return float((weights @ gram @ weights - (gram @ weights).min()) / max(np.trace(gram), 1e-300))


@quick
@given(gradients())
def test_min_norm_weights_satisfy_the_optimality_conditions(rows: np.ndarray) -> None:
    """On the simplex, with Kλ ≥ λᵀKλ for every objective and equality where λ is positive."""
    gram = rows @ rows.T
    weights = min_norm_weights(gram)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    assert gap(gram, weights) <= 1e-8
    slack = (gram @ weights - weights @ gram @ weights) / max(np.trace(gram), 1e-300)
    assert np.abs(slack[weights > 1e-3]).max() <= 1e-6


@quick
@given(gradients())
def test_the_shortest_vector_descends_every_objective(rows: np.ndarray) -> None:
    """d·g_j ≥ ‖d‖² for all j."""
    direction = min_norm_weights(rows @ rows.T) @ rows
    assert (rows @ direction).min() >= direction @ direction - 1e-8 * (rows**2).sum()


@quick
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-12, 1e-3, 1.0, 1e6, 1e12]))
def test_min_norm_weights_of_two_have_a_closed_form_at_any_scale(seed: int, scale: float) -> None:
    a, b = np.random.default_rng(seed).standard_normal((2, 4)) * scale
    first = np.clip((b - a) @ b / ((a - b) @ (a - b)), 0, 1)
    rows = np.stack([a, b])
    assert min_norm_weights(rows @ rows.T) == pytest.approx([first, 1 - first], abs=1e-6)


@quick
@given(gradients(), st.integers(0, 1000))
def test_min_norm_weights_follow_a_permutation(rows: np.ndarray, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(rows))
    weights, permuted = min_norm_weights(rows @ rows.T), min_norm_weights(rows[order] @ rows[order].T)
    assert permuted @ rows[order] == pytest.approx(weights @ rows, abs=1e-5 * np.abs(rows).max())


@pytest.mark.parametrize("m", [2, 3, 6])
@pytest.mark.parametrize("scale", [0.0, 1e-200, 1.0])
def test_identical_or_vanishing_gradients_get_even_weights(m: int, scale: float) -> None:
    assert min_norm_weights(np.full((m, m), scale)) == pytest.approx(np.full(m, 1 / m), abs=1e-4)


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-9, 1e-12])
def test_nearly_parallel_gradients_are_no_trouble(angle: float) -> None:
    rows = np.array([[1.0, 0], [np.cos(angle), np.sin(angle)], [2.0, 0]])
    weights = min_norm_weights(rows @ rows.T)
    assert np.linalg.norm(weights @ rows) == pytest.approx(1)
    assert weights[2] == pytest.approx(0, abs=1e-6), "the longer of two parallel gradients is not needed"


def test_opposed_gradients_are_pareto_stationary() -> None:
    rows = np.array([[3.0, 0], [-1.0, 0]])
    weights = min_norm_weights(rows @ rows.T)
    assert weights == pytest.approx([0.25, 0.75], abs=1e-6)
    assert np.abs(weights @ rows).max() <= 1e-6


def test_gradients_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="not finite"):
        min_norm_weights(np.array([[1.0, np.nan], [np.nan, 1]]))
    with pytest.raises(ValueError, match="square"):
        min_norm_weights(np.ones((2, 3)))


@quick
@given(st.lists(st.floats(-20, 20), min_size=1, max_size=8))
def test_the_projection_onto_the_simplex_is_the_nearest_point(entries: list[float]) -> None:
    """(v − p)·(q − p) ≤ 0 for every q of the simplex, for which its corners suffice."""
    v = np.array(entries)
    p = project_to_simplex(v)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1)
    assert ((np.eye(len(v)) - p) @ (v - p)).max() <= 1e-9 * (1 + np.abs(v).max())
    assert project_to_simplex(p) == pytest.approx(p, abs=1e-12)


@pytest.mark.parametrize(
    ("vector", "expected"),
    [([1e30, 1, 1], [1, 0, 0]), ([-1e30, 1, 1], [0, 0.5, 0.5]), ([3e37, 3e37, -3e37], [0.5, 0.5, 0])],
)
def test_huge_numbers_are_projected_to_the_simplex_too(vector, expected):
    assert project_to_simplex(vector) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(8))
def test_projected_gradient_tends_to_the_min_norm_weights(seed: int) -> None:
    """With the step 1/L, λᵀKλ/2 is within L/steps of its least value after any number of steps."""
    rows = np.random.default_rng(seed).standard_normal((2 + seed % 5, 6))
    gram = normalised(rows @ rows.T)
    largest, exact = np.linalg.norm(gram, 2), min_norm_weights(gram)
    start = np.full(len(rows), 1 / len(rows))
    for steps in (10, 100, 1000):
        found = projected_gradient(gram, start, steps, step_size=1 / largest)
        assert (found @ gram @ found - exact @ gram @ exact) / 2 <= largest / steps


def test_projected_gradient_by_hand() -> None:
    """One step of 0.1 on K/κ, κ = ((1 + 2)/2)², from (½, ½): the gradient is (½, 2)/2.25; the mean is taken off."""
    gram = np.diag([1.0, 4.0])
    after = projected_gradient(gram, [0.5, 0.5], steps=1, step_size=0.1)
    slope = np.array([0.5, 2.0]) / 2.25
    assert after == pytest.approx(0.5 - 0.1 * (slope - slope.mean()))
