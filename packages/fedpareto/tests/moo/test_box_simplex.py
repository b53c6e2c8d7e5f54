"""min λᵀKλ over the simplex within ε of λ0: optimality conditions, closed forms, and every stage for itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.config.errors import UserError
from fedpareto.moo import box_simplex
from fedpareto.moo.box_simplex import BoxSimplex, box_min_norm_weights, by_mean_diagonal
from fedpareto.moo.min_norm import min_norm_weights, project_to_simplex

quick = settings(deadline=None, max_examples=120, derandomize=True)


def directions(seed: int, n: int, d: int, lean: float = 0.0) -> np.ndarray:
    """n random unit vectors that lean to a common side."""
    stream = np.random.default_rng(seed)
    rows = stream.standard_normal((n, d)) + lean * stream.standard_normal(d)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@st.composite
def updates(draw: st.DrawFn) -> np.ndarray:
    """Unit vectors or zeros: random, of low rank, with copies, opposites, near-copies and clients at rest."""
    n = draw(st.integers(1, 40))
    rows = directions(
        draw(st.integers(0, 2**32 - 1)), n, draw(st.integers(1, 2 * n)), draw(st.sampled_from([0, 1, 10]))
    )
    kind = draw(st.sampled_from(["random", "copies", "opposed", "near", "zero", "all the same"]))
    half = n // 2
    if kind == "copies":
        rows[:half] = rows[0]
    elif kind == "opposed":
        rows[n - half :] = -rows[:half]
    elif kind == "near":
        rows = rows[0] + 10.0 ** -draw(st.integers(1, 10)) * rows
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    elif kind == "zero":
        rows[:half] = 0
    elif kind == "all the same":
        rows[:] = rows[0]
    return rows


@st.composite
def centres(draw: st.DrawFn, n: int) -> np.ndarray:
    even = np.full(n, 1 / n)
    return even if draw(st.booleans()) else np.random.default_rng(draw(st.integers(0, 999))).dirichlet(np.ones(n))


@quick
@given(st.data())
def test_free_weights_descend_for_every_client(data: st.DataObject) -> None:
    """d·ḡ_i ≥ ‖d‖² − 1e-8 for all i at ε = 1."""
    rows = data.draw(updates())
    weights = box_min_norm_weights(rows @ rows.T, data.draw(centres(len(rows))), 1.0)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    common = weights @ rows
    assert (rows @ common).min() >= common @ common - 1e-8


@quick
@given(st.data())
def test_bounded_weights_satisfy_the_kkt_conditions(data: st.DataObject) -> None:
    """Kλ = ν + α − β with multipliers α ≥ 0 only at lower and β ≥ 0 only at upper bounds, to 1e-6."""
    rows = data.draw(updates())
    n, gram = len(rows), rows @ rows.T
    centre, epsilon = data.draw(centres(n)), data.draw(st.sampled_from([0.5, 0.1, 0.02, 1 / n, 0.3 / n]))
    weights = box_min_norm_weights(gram, centre, epsilon)
    low, high = np.maximum(centre - epsilon, 0), np.minimum(centre + epsilon, 1)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    assert (weights >= low - 1e-12).all()
    assert (weights <= high + 1e-12).all()
    slope, off_low, off_high = gram @ weights, weights > low + 1e-9, weights < high - 1e-9
    # Some ν fits: nobody who could give weight has a larger slope than anybody who could take it.
    if off_low.any() and off_high.any():
        assert slope[off_low].max() <= slope[off_high].min() + 1e-6


@pytest.mark.takes_long
@pytest.mark.parametrize(
    ("n", "d"),
    [pytest.param(1000, 100, id="rank 100"), pytest.param(3000, 4000, id="full rank")],
)
def test_thousands_of_clients(n: int, d: int) -> None:
    rows = directions(0, n, d, lean=1)
    gram = rows @ rows.T
    weights = box_min_norm_weights(gram, np.full(n, 1 / n), 1.0)
    common = weights @ rows
    assert (rows @ common).min() >= common @ common - 1e-8


def test_two_clients_of_equal_length_count_alike() -> None:
    for seed in range(20):
        rows = directions(seed, 2, 3)
        for centre in ([0.5, 0.5], [0.6, 0.4]):
            weights = box_min_norm_weights(rows @ rows.T, centre, 1.0)
            assert weights == pytest.approx([0.5, 0.5], abs=1e-7)


def test_no_radius_gives_the_centre_itself() -> None:
    centre = np.array([0.3, 0.5, 0.2])
    assert np.array_equal(box_min_norm_weights(np.diag([1.0, 2.0, 3.0]), centre, 0.0), centre)


def test_a_box_in_closed_form() -> None:
    """Orthogonal updates: λ ∝ 1/‖g‖², cut at the bounds; with ε = 0.1 the short one takes all it may."""
    gram = np.diag([1.0, 4.0, 4.0])
    even = np.full(3, 1 / 3)
    assert box_min_norm_weights(gram, even, 1.0) == pytest.approx([2 / 3, 1 / 6, 1 / 6], abs=1e-9)
    assert box_min_norm_weights(gram, even, 0.1) == pytest.approx([1 / 3 + 0.1, 1 / 3 - 0.05, 1 / 3 - 0.05], abs=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-24, 1e-12, 1.0, 1e12, 1e200])
def test_scale_does_not_matter(scale: float) -> None:
    rows = directions(3, 12, 5, lean=1)
    gram, centre = rows @ rows.T, np.full(12, 1 / 12)
    assert box_min_norm_weights(scale * gram, centre, 0.1) == pytest.approx(
        box_min_norm_weights(gram, centre, 0.1), abs=1e-6
    )


def test_zero_and_identical_updates_keep_the_centre() -> None:
    centre = np.array([0.2, 0.3, 0.5])
    for gram in (np.zeros((3, 3)), np.ones((3, 3)), np.full((3, 3), 1e-320)):
        assert box_min_norm_weights(gram, centre, 1.0) == pytest.approx(centre, abs=1e-5)


def test_a_client_at_rest_takes_all_that_it_may() -> None:
    rows = directions(0, 4, 6)
    rows[2] = 0
    even = np.full(4, 0.25)
    assert box_min_norm_weights(rows @ rows.T, even, 1.0) == pytest.approx([0, 0, 1, 0], abs=1e-8)
    assert box_min_norm_weights(rows @ rows.T, even, 0.1)[2] == pytest.approx(0.35)


@quick
@given(st.integers(0, 999), st.integers(1, 12))
def test_free_weights_are_those_of_the_solver_by_least_squares(seed: int, n: int) -> None:
    """An independent method: the shortest vector, which is unique, is the same."""
    rows = directions(seed, n, n + 2, lean=1)
    ours, theirs = (
        weights @ rows
        for weights in (box_min_norm_weights(rows @ rows.T, np.full(n, 1 / n)), min_norm_weights(rows @ rows.T))
    )
    assert ours == pytest.approx(theirs, abs=1e-5)


# -- the parts -----------------------------------------------------------------------------------------------------


@quick
@given(st.integers(0, 999), st.integers(1, 30), st.sampled_from([0.0, 0.01, 0.2, 1.0]))
def test_projection_is_exact(seed: int, n: int, radius: float) -> None:
    """Feasible, and no feasible direction comes nearer: the Frank-Wolfe gap of ½‖λ − v‖² is zero."""
    stream = np.random.default_rng(seed)
    box = BoxSimplex.around(stream.dirichlet(np.ones(n)), radius)
    vector = 3 * stream.standard_normal(n)
    point = box.project(vector)
    assert point.sum() == pytest.approx(1, abs=1e-12)
    assert (point >= box.low).all()
    assert (point <= box.high).all()
    assert box.gap(point, point - vector) <= 1e-12
    if radius == 1:
        assert point == pytest.approx(project_to_simplex(vector), abs=1e-12)


def test_the_corner_that_a_gradient_points_away_from() -> None:
    box = BoxSimplex.around([0.25] * 4, 0.1)
    assert box.lowest(np.array([3.0, 1.0, 2.0, 4.0])) == pytest.approx([0.15, 0.35, 0.35, 0.15])


@pytest.mark.parametrize("method", ["active_set", "interior_point"])
def test_each_method_finds_the_optimum_alone(method: str) -> None:
    rows = directions(5, 30, 40, lean=0.5)
    centre = np.full(30, 1 / 30)
    box = BoxSimplex.around(centre, 0.02)
    programme = box_simplex._Programme(by_mean_diagonal(rows @ rows.T), centre, box)
    found = programme.interior_point() if method == "interior_point" else getattr(programme, method)(centre)
    assert programme.gap(centre) > 1e-4, "the centre is no answer"
    assert programme.gap(found) <= 1e-9


def test_where_the_active_set_cycles_the_interior_point_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = directions(6, 20, 30, lean=0.5)
    gram, centre = rows @ rows.T, np.full(20, 1 / 20)
    exact = box_min_norm_weights(gram, centre, 0.05)
    monkeypatch.setattr(box_simplex._Programme, "active_set", lambda self, weights: weights)
    assert box_min_norm_weights(gram, centre, 0.05) == pytest.approx(exact, abs=1e-6)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(UserError, match=r"epsilon is 1\.5"):
        box_min_norm_weights(np.eye(2), [0.5, 0.5], 1.5)
    with pytest.raises(UserError, match="not finite"):
        box_min_norm_weights([[1, np.nan], [np.nan, 1]], [0.5, 0.5], 0.5)
    with pytest.raises(ValueError, match="no point of the simplex"):
        box_min_norm_weights(np.eye(2), [0.5, 0.6], 0.5)
    with pytest.raises(ValueError, match="square"):
        box_min_norm_weights(np.ones((2, 3)), [0.5, 0.5], 0.5)
    with pytest.raises(ValueError, match="2 updates, but 3 weights"):
        box_min_norm_weights(np.eye(2), np.full(3, 1 / 3), 0.5)
