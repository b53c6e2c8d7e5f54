from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpareto.config.errors import UserError
from fedpareto.moo.dominance import front
from fedpareto.moo.indicators import (
    all_indicators,
    cardinality,
    expected_utility,
    hypervolume,
    igd,
    igd_plus,
    maximum_utility_loss,
    sparsity,
    spread,
)

quick = settings(deadline=None, max_examples=60, derandomize=True)

# Deep-sea treasure, concave version of mo-gymnasium: (treasure, -time), both maximised, undiscounted.
DST_FRONT = np.array(
    [
        (0.7, -1), (8.2, -3), (11.5, -5), (14.0, -7), (15.1, -8),
        (16.1, -9), (19.6, -13), (20.3, -14), (22.4, -17), (23.7, -19),
    ]
)  # fmt: skip
STUCK = (0.0, -100.0)


@st.composite
def point_sets(draw: st.DrawFn, least: int = 0, sets: int = 1, objectives: int | None = None) -> list[np.ndarray]:
    """Sets with the same number of objectives (2 to 4) and small whole values, so that ties are common."""
    m = objectives or draw(st.integers(2, 4))
    return [
        draw(arrays(np.float64, (draw(st.integers(least, 6)), m), elements=st.integers(0, 4).map(float)))
        for _ in range(sets)
    ]


def volume_by_inclusion_exclusion(points: np.ndarray, reference: np.ndarray) -> float:
    return sum(
        (-1) ** (size + 1) * np.prod(np.maximum(reference - np.max(subset, axis=0), 0))
        for size in range(1, len(points) + 1)
        for subset in itertools.combinations(points, size)
    )


def volume_by_counting_cells(points: np.ndarray, reference: np.ndarray) -> int:
    """Unit cells below the reference whose lower corner some point reaches; for whole numbers from 0."""
    cells = itertools.product(*(range(int(r)) for r in reference))
    return sum(any((p <= cell).all() for p in points) for cell in cells)


@quick
@given(point_sets(), st.integers(0, 5))
def test_hypervolume_equals_the_number_of_dominated_grid_cells(sets: list[np.ndarray], corner: int) -> None:
    # Corners below 5 leave some points outside; those must add nothing.
    reference = np.full(sets[0].shape[1], float(corner))
    assert hypervolume(sets[0], reference) == volume_by_counting_cells(sets[0], reference)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_hypervolume_equals_inclusion_exclusion_on_random_sets(m: int) -> None:
    rng = np.random.default_rng(m)
    for _ in range(20):
        points, reference = rng.random((rng.integers(1, 8), m)), rng.uniform(0.6, 1.2, m)
        expected = volume_by_inclusion_exclusion(points, reference)
        assert hypervolume(points, reference) == pytest.approx(expected, abs=1e-12)


@quick
@given(point_sets(least=1), st.data())
def test_hypervolume_of_maximised_objectives_is_that_of_their_negation(
    sets: list[np.ndarray], data: st.DataObject
) -> None:
    m = sets[0].shape[1]
    maximise = data.draw(st.lists(st.booleans(), min_size=m, max_size=m))
    turn = np.where(maximise, -1.0, 1.0)
    reference = np.full(m, 5.0)
    expected = volume_by_counting_cells(sets[0], reference)
    assert hypervolume(sets[0] * turn, reference * turn, maximise) == expected


@quick
@given(point_sets(), arrays(np.float64, 4, elements=st.sampled_from([0.5, 2.0, 4.0])))
def test_hypervolume_scales_with_the_product_of_the_units(sets: list[np.ndarray], factors: np.ndarray) -> None:
    units = factors[: sets[0].shape[1]]
    reference = np.full(len(units), 5.0)
    assert hypervolume(sets[0] * units, reference * units) == hypervolume(sets[0], reference) * units.prod()


@quick
@given(point_sets(sets=2))
def test_hypervolume_ignores_order_and_dominated_points_and_never_falls(sets: list[np.ndarray]) -> None:
    points, more = sets
    reference = np.full(points.shape[1], 5.0)
    volume = hypervolume(points, reference)
    assert hypervolume(points[::-1], reference) == volume
    assert hypervolume(front(points), reference) == volume
    assert hypervolume(np.vstack([points, more]), reference) >= volume


def test_hypervolume_of_the_empty_set_and_of_points_on_the_border_is_zero() -> None:
    assert hypervolume([], [1.0, 1.0]) == 0
    assert hypervolume([[0.0, 1.0], [2.0, -5.0]], [1.0, 1.0]) == 0


@quick
@given(point_sets(least=1, sets=2), st.booleans())
def test_igd_and_igd_plus_equal_brute_force(sets: list[np.ndarray], maximise: bool) -> None:
    points, known = sets
    sign = -1 if maximise else 1
    distances = [min(math.dist(z, p) for p in points) for z in known]
    shortfalls = [min(math.hypot(*np.maximum(sign * (p - z), 0)) for p in points) for z in known]
    assert igd(points, known, maximise) == pytest.approx(np.mean(distances), abs=1e-12)
    assert igd_plus(points, known, maximise) == pytest.approx(np.mean(shortfalls), abs=1e-12)


@quick
@given(point_sets(least=1, sets=2))
def test_igd_is_zero_on_the_known_front_and_scales_with_the_unit(sets: list[np.ndarray]) -> None:
    points, known = sets
    assert igd(known, known) == igd_plus(known, known) == 0
    assert igd(points[::-1], known[::-1]) == pytest.approx(igd(points, known), abs=1e-12)
    for indicator in (igd, igd_plus):
        assert indicator(4 * points, 4 * known) == pytest.approx(4 * indicator(points, known), abs=1e-12)


def test_igd_plus_ranks_a_dominating_set_first_where_igd_does_not() -> None:
    # Example 4 of Ishibuchi et al. 2015: every point of b is dominated by one of a.
    known = [[10, 0], [6, 1], [2, 2], [1, 6], [0, 10]]
    a, b = [[4, 2], [3, 3], [2, 4]], [[8, 2], [4, 4], [2, 8]]
    assert igd(a, known) > igd(b, known)
    assert igd_plus(a, known) < igd_plus(b, known)


@quick
@given(point_sets())
def test_sparsity_spread_and_cardinality_equal_a_loop_over_the_front(sets: list[np.ndarray]) -> None:
    points = sets[0]
    best, m = front(points).tolist(), points.shape[1]
    columns = [sorted(point[j] for point in best) for j in range(m)]
    gaps = sum((b - a) ** 2 for column in columns for a, b in itertools.pairwise(column))
    assert sparsity(points) == (pytest.approx(gaps / (len(best) - 1)) if len(best) > 1 else 0)
    assert spread(points).tolist() == [column[-1] - column[0] if column else 0 for column in columns]
    assert cardinality(points) == len({tuple(point) for point in best})


@quick
@given(point_sets(least=1))
def test_sparsity_grows_with_the_square_of_the_unit_and_ignores_sign(sets: list[np.ndarray]) -> None:
    points = sets[0]
    assert sparsity(3 * points) == pytest.approx(9 * sparsity(points))
    assert sparsity(-points, maximise=True) == sparsity(points)
    assert spread(-points, maximise=True).tolist() == spread(points).tolist()
    assert cardinality(-points, maximise=True) == cardinality(points)


def test_sparsity_by_hand() -> None:
    # Gaps 1 and 2 in the first objective, 3 and 1 in the second; the dominated point is left out.
    assert sparsity([[0, 4], [1, 1], [3, 0], [3, 3]]) == (1 + 4 + 9 + 1) / 2
    assert sparsity([[1, 1]]) == sparsity([[1, 1], [1, 1], [2, 2]]) == 0


@quick
@given(point_sets(least=1, sets=2, objectives=3), st.booleans(), st.integers(0, 99))
def test_utilities_equal_a_loop_over_preferences(sets: list[np.ndarray], maximise: bool, seed: int) -> None:
    points, known = sets
    weights = np.random.default_rng(seed).dirichlet(np.ones(3), size=4)
    sign = 1 if maximise else -1
    reached = [max(sign * sum(w * x for w, x in zip(row, p, strict=True)) for p in points) for row in weights]
    best = [max(sign * sum(w * x for w, x in zip(row, p, strict=True)) for p in known) for row in weights]
    assert expected_utility(points, weights, maximise) == pytest.approx(np.mean(reached), abs=1e-12)
    assert maximum_utility_loss(points, known, weights, maximise) == pytest.approx(
        max(b - r for b, r in zip(best, reached, strict=True)), abs=1e-12
    )


def test_expected_utility_rewards_high_rewards_and_low_losses() -> None:
    corners = np.eye(2)
    assert expected_utility([[3, 0], [0, 5]], corners, maximise=True) == 4
    assert expected_utility([[3, 1], [2, 5]], corners) == -1.5
    assert expected_utility([[3, 1], [2, 5]], corners, maximise=[True, False]) == 1
    # A point of the concave part of a front is nobody's favourite, so it counts for nothing.
    assert expected_utility([[0, 4], [4, 0], [3, 3]], corners) == expected_utility([[0, 4], [4, 0]], corners)


def test_maximum_utility_loss_is_zero_on_the_known_front_and_names_the_worst_preference() -> None:
    preferences = [[1, 0], [0.5, 0.5], [0, 1]]
    assert maximum_utility_loss(DST_FRONT, DST_FRONT, preferences, maximise=True) == 0
    # Under (1, 0) the missing treasure 23.7 costs most.
    first = DST_FRONT[:1]
    assert maximum_utility_loss(first, DST_FRONT, preferences, maximise=True) == pytest.approx(23.0)


def test_the_empty_set_is_infinitely_bad() -> None:
    assert igd([], [[1, 2]]) == igd_plus([], [[1, 2]]) == math.inf
    assert expected_utility([], [[0.5, 0.5]]) == -math.inf
    assert maximum_utility_loss([], [[1, 2]], [[0.5, 0.5]]) == math.inf
    assert cardinality([]) == sparsity([]) == 0


@pytest.mark.parametrize(
    ("reference", "volume"), [((0, -50), "994.3"), ((-1, -101), "2303.0")], ids=["MOFL/D", "FedPref"]
)
def test_deep_sea_treasure_front_has_the_known_hypervolume(reference: tuple[float, ...], volume: str) -> None:
    assert f"{hypervolume(DST_FRONT, reference, maximise=True):.1f}" == volume
    assert f"{hypervolume([*DST_FRONT, STUCK], reference, maximise=True):.1f}" == volume


def test_a_stuck_submarine_adds_one_unit_or_nothing() -> None:
    assert hypervolume([STUCK], (-1, -101), maximise=True) == 1
    assert hypervolume([STUCK], (0, -50), maximise=True) == 0
    assert cardinality([*DST_FRONT, STUCK], maximise=True) == 10


@pytest.mark.parametrize(
    ("solutions", "volume", "distance"),
    [
        pytest.param({14.0: 2, 15.1: 3, 16.1: 1, 0.0: 4}, (88.89, 72.6), (41.19, 41.5), id="Dirichlet-FedAvg"),
        pytest.param({14.0: 2, 15.1: 5, 0.0: 3}, (103.10, 67.5), (32.71, 38.8), id="Dirichlet-FedProx"),
        pytest.param({15.1: 6, 0.0: 4}, (89.88, 73.3), (41.13, 41.5), id="equidistant-FedAvg"),
        pytest.param({14.0: 1, 15.1: 4, 0.0: 5}, (74.04, 74.0), (49.63, 42.3), id="equidistant-FedProx"),
        pytest.param({11.5: 1, 14.0: 3, 15.1: 3, 0.0: 3}, (99.25, 65.4), (32.90, 38.7), id="Gaussian-FedAvg"),
        pytest.param({14.0: 1, 15.1: 8, 0.0: 1}, (133.89, 44.7), (15.74, 25.4), id="Gaussian-FedProx"),
    ],
)
def test_thesis_tables_of_deep_sea_treasure_are_met_to_the_digit(
    solutions: dict[float, int], volume: tuple[float, float], distance: tuple[float, float]
) -> None:
    """Tables 4.3 and 4.5 of Hartmann's thesis, the rows in which each of 10 seeds ends on one solution.

    `solutions` (treasure: how many seeds) is the only one of all 184,756 outcomes that gives the four
    printed figures, mean and deviation of each indicator. Volumes stand there in units of 10;
    deviations are those of the population, with one digit less.
    """
    point = {treasure: (treasure, time) for treasure, time in [*DST_FRONT.tolist(), STUCK]}
    runs = [[point[treasure]] for treasure, seeds in solutions.items() for _ in range(seeds)]
    volumes = np.array([hypervolume(run, (-1, -101), maximise=True) for run in runs]) / 10
    distances = np.array([igd(run, DST_FRONT, maximise=True) for run in runs])
    assert len(runs) == 10
    for values, (mean, deviation) in ((volumes, volume), (distances, distance)):
        # Half of the last printed digit; the hair more is for 103.095, which was printed as 103.10.
        assert abs(values.mean() - mean) < 0.005 + 1e-9
        assert abs(values.std() - deviation) < 0.05 + 1e-9


def test_all_indicators_agrees_with_each_and_leaves_out_what_it_cannot_know() -> None:
    points, preferences = [*DST_FRONT[2:5], STUCK], [[1.0, 0.0], [0.25, 0.75]]
    known = all_indicators(points, (-1, -101), True, known_front=DST_FRONT, preferences=preferences)
    width = spread(points, True)
    assert known == {
        "hypervolume": hypervolume(points, (-1, -101), True),
        "sparsity": sparsity(points, True),
        "cardinality": 3.0,
        "igd": igd(DST_FRONT[2:5], DST_FRONT, True),
        "igd_plus": igd_plus(points, DST_FRONT, True),
        "expected_utility": expected_utility(points, preferences, True),
        "spread_0": width[0],
        "spread_1": width[1],
    }
    assert all(type(value) is float for value in known.values())
    plain = all_indicators(points, (-1, -101), True)
    assert plain == {key: known[key] for key in plain}
    assert set(known) - set(plain) == {"igd", "igd_plus", "expected_utility"}


def test_igd_of_all_indicators_is_that_of_the_front_only() -> None:
    # The dominated (1, 9) lies nearest to (0, 10); a front cannot take credit for it.
    points, known = [[1, 1], [1, 9]], [[0, 10], [1, 1]]
    assert igd(points, known) < all_indicators(points, [10, 10], known_front=known)["igd"]


def test_all_indicators_of_nothing_still_has_every_key() -> None:
    assert all_indicators([], [1, 1], known_front=[[0, 0]]) == {
        "hypervolume": 0,
        "sparsity": 0,
        "cardinality": 0,
        "igd": math.inf,
        "igd_plus": math.inf,
        "spread_0": 0,
        "spread_1": 0,
    }


def test_arguments_that_do_not_fit_the_points_are_refused_by_name() -> None:
    points = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.raises(UserError, match="reference point: expected 2 values"):
        hypervolume(points, [1.0, 2.0, 3.0])
    with pytest.raises(UserError, match="reference point: expected 2 values"):
        all_indicators(points, [1.0, 2.0, 3.0])
    with pytest.raises(UserError, match=r"reference point: .* is nan"):
        hypervolume(points, [1.0, math.nan])
    with pytest.raises(UserError, match="points: row 0, objective 1 is nan"):
        igd([[1.0, math.nan]], points)
    with pytest.raises(UserError, match="points: each row has 2 values, expected 3"):
        igd(points, [[1.0, 2.0, 3.0]])
    with pytest.raises(UserError, match="known front: needs at least one point"):
        igd_plus(points, [])
    with pytest.raises(UserError, match="known front: row 0, objective 0 is inf"):
        maximum_utility_loss(points, [[math.inf, 0.0]], [[0.5, 0.5]])
    with pytest.raises(UserError, match="preferences: needs at least one row"):
        expected_utility(points, [])
