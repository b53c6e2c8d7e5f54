from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedpareto.config.errors import BadPreference, UnknownName, UserError
from fedpareto.moo import preferences as prefs

quick = settings(deadline=None, max_examples=30, derandomize=True)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_on_simplex(rows: np.ndarray, n: int, m: int) -> None:
    assert rows.shape == (n, m)
    assert rows.dtype == np.float64
    assert (rows >= 0).all()
    assert np.allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-12)


def closest_pair(rows: np.ndarray) -> float:
    return min(math.dist(a, b) for i, a in enumerate(rows) for b in rows[:i])


RANDOM: dict[str, Callable[[int, int, np.random.Generator], np.ndarray]] = {
    "dirichlet": prefs.dirichlet,
    "peaked dirichlet": lambda n, m, g: prefs.dirichlet(n, m, g, alpha=1e-3),
    "gaussian": prefs.gaussian,
}


@pytest.mark.parametrize("name", RANDOM)
@quick
@given(n=st.integers(1, 12), m=st.integers(1, 6), seed=st.integers(0, 99))
def test_random_preferences_lie_on_the_simplex_and_repeat_with_the_seed(name: str, n: int, m: int, seed: int) -> None:
    rows = RANDOM[name](n, m, rng(seed))
    assert_on_simplex(rows, n, m)
    assert np.array_equal(rows, RANDOM[name](n, m, rng(seed)))
    if m > 1 and name != "peaked dirichlet":
        assert not np.array_equal(rows, RANDOM[name](n, m, rng(seed + 1)))


def test_dirichlet_has_the_variance_of_its_alpha() -> None:
    for alpha in (0.3, 1.0, 5.0):
        rows = prefs.dirichlet(20_000, 3, rng(), alpha)
        # Variance of a symmetric Dirichlet with m entries: (m - 1) / (m^2 (m alpha + 1)).
        assert rows.var(axis=0) == pytest.approx(2 / 9 / (3 * alpha + 1), rel=0.05)
        assert rows.mean(axis=0) == pytest.approx(1 / 3, rel=0.03)


def test_gaussian_preferences_are_normal_draws_divided_by_their_absolute_sum() -> None:
    draws = np.abs(rng(3).standard_normal((5, 4)))
    assert np.allclose(prefs.gaussian(5, 4, rng(3)), [row / row.sum() for row in draws])


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf, 1e308])
def test_dirichlet_refuses_an_alpha_it_cannot_draw_from(alpha: float) -> None:
    with pytest.raises(BadPreference, match="alpha must be a positive number"):
        prefs.dirichlet(2, 3, rng(), alpha)


@settings(quick, max_examples=12)
@given(n=st.integers(1, 14), m=st.integers(1, 5))
@example(n=40, m=3)
def test_equidistant_rows_are_distinct_sorted_repeatable_points_of_the_simplex(n: int, m: int) -> None:
    rows = prefs.equidistant(n, m)
    assert_on_simplex(rows, n, m)
    assert np.array_equal(rows, prefs.equidistant(n, m))
    assert rows.tolist() == sorted(rows.tolist())
    if m > 1:
        assert len(np.unique(rows, axis=0)) == n
    if n >= m > 1:
        # Every corner is somebody's.
        assert {tuple(corner) for corner in np.eye(m)} <= {tuple(row) for row in rows}


def test_equidistant_by_hand() -> None:
    assert prefs.equidistant(1, 3).tolist() == [[1 / 3] * 3]
    assert prefs.equidistant(5, 2).tolist() == [[0, 1], [0.25, 0.75], [0.5, 0.5], [0.75, 0.25], [1, 0]]
    assert prefs.equidistant(2, 3).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert prefs.equidistant(3, 3).tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    halves = [[0, 0, 1], [0, 0.5, 0.5], [0, 1, 0], [0.5, 0, 0.5], [0.5, 0.5, 0], [1, 0, 0]]
    assert prefs.equidistant(6, 3).tolist() == halves


@pytest.mark.parametrize("m", [3, 4, 5, 6, 7])
def test_one_more_client_than_objectives_stands_in_the_centre(m: int) -> None:
    # Farthest from all corners. Without the asymmetric start the descent stays on a saddle at an edge.
    expected = sorted([*np.eye(m).tolist(), [1 / m] * m])
    assert np.allclose(prefs.equidistant(m + 1, m), expected, rtol=0, atol=1e-5)


def test_twenty_clients_of_four_objectives_stand_on_the_das_dennis_lattice() -> None:
    thirds = prefs.equidistant(20, 4) * 3
    assert np.allclose(thirds, np.round(thirds))
    assert len(np.unique(np.round(thirds), axis=0)) == 20


@pytest.mark.parametrize(("n", "divisions", "m"), [(6, 2, 3), (15, 4, 3), (21, 5, 3), (20, 3, 4), (15, 2, 5)])
def test_least_energy_is_no_more_than_that_of_the_das_dennis_lattice(n: int, divisions: int, m: int) -> None:
    lattice = prefs._lattice(divisions, m)
    assert len(lattice) == n
    found = prefs._least_energy(n, m)
    assert_on_simplex(found, n, m)
    energies = [prefs._log_energy(np.sqrt(rows).ravel(), n, m)[0] for rows in (found, lattice)]
    assert energies[0] <= energies[1] + 1e-4


@pytest.mark.parametrize(("n", "m"), [(8, 3), (20, 3), (50, 3), (12, 4), (210, 3)])
def test_least_energy_holds_neighbours_nearly_as_far_apart_as_the_lattice_just_above(n: int, m: int) -> None:
    divisions = next(h for h in range(1, n) if math.comb(h + m - 1, m - 1) > n)
    assert closest_pair(prefs.equidistant(n, m)) >= 0.9 * math.sqrt(2) / divisions


def test_log_energy_is_that_of_the_definition_and_its_gradient_that_of_finite_differences() -> None:
    x = np.array([1.0, 0.1, 0.2, 0.1, 1.0, 0.3, 0.2, 0.1, 1.0, 0.5, 0.4, 0.6])
    w = [row**2 / (row**2).sum() for row in x.reshape(4, 3)]
    value, gradient = prefs._log_energy(x, 4, 3)
    energy = sum(math.dist(w[i], w[j]) ** -9 for i in range(4) for j in range(i))
    assert value == pytest.approx(math.log(energy))
    step = 1e-6
    numeric = [
        (prefs._log_energy(x + step * e, 4, 3)[0] - prefs._log_energy(x - step * e, 4, 3)[0]) / (2 * step)
        for e in np.eye(12)
    ]
    assert gradient == pytest.approx(numeric, abs=1e-5)


def test_homogeneous_gives_everyone_the_same() -> None:
    assert prefs.homogeneous([0.7, 0.3], 3).tolist() == [[0.7, 0.3]] * 3
    with pytest.raises(BadPreference, match=r"sum to 1\.2"):
        prefs.homogeneous([0.7, 0.5], 3)


def test_sweep_of_ten_is_that_of_the_thesis() -> None:
    expected = [[i / 10, (10 - i) / 10] for i in range(10)]
    assert prefs.sweep(10, 2).tolist() == expected
    assert prefs.sweep(10, 2)[[0, 1, 9]].tolist() == [[0, 1], [0.1, 0.9], [0.9, 0.1]]


@pytest.mark.parametrize("m", [1, 2, 3])
def test_a_sweep_of_no_runs_is_refused(m: int) -> None:
    with pytest.raises(UserError, match=f"at least one client and one objective, got 0 and {m}"):
        prefs.sweep(0, m)


@quick
@given(k=st.integers(1, 10), m=st.integers(1, 4))
def test_sweep_lies_on_the_simplex_and_is_equidistant_beyond_two_objectives(k: int, m: int) -> None:
    rows = prefs.sweep(k, m)
    assert_on_simplex(rows, k, m)
    if m != 2 or k == 1:
        assert np.array_equal(rows, prefs.equidistant(k, m))


def test_groups_repeat_each_preference_as_often_as_the_group_is_large() -> None:
    assert prefs.groups([1, 2], [[0.9, 0.1], [0.2, 0.8]]).tolist() == [[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]]
    rows = prefs.groups([2, 3, 6, 9], m=4)
    assert_on_simplex(rows, 20, 4)
    assert np.array_equal(rows, np.repeat(prefs.equidistant(4, 4), [2, 3, 6, 9], axis=0))


def test_groups_that_make_no_sense_are_refused() -> None:
    for sizes in ([], [2, 0], [2, -1], [1.5, 2]):
        with pytest.raises(BadPreference, match="sizes must be whole numbers of at least 1"):
            prefs.groups(sizes, m=2)  # type: ignore[arg-type]
    with pytest.raises(BadPreference, match="got 1 preferences, but there are 2 groups"):
        prefs.groups([2, 3], [[1.0, 0.0]])
    with pytest.raises(BadPreference, match="group 1: 1 weight instead of 2"):
        prefs.groups([2, 3], [[1.0, 0.0], [1.0]])
    with pytest.raises(ValueError, match="number of objectives m"):
        prefs.groups([2, 3])


@quick
@given(n=st.integers(1, 8), m=st.integers(1, 5), seed=st.integers(0, 99))
def test_check_returns_valid_preferences_as_they_are(n: int, m: int, seed: int) -> None:
    rows = prefs.dirichlet(n, m, rng(seed))
    assert np.array_equal(prefs.check(rows.tolist(), n, m), rows)
    assert np.array_equal(prefs.check(rows, n, m), rows)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[0.5, 0.5], [1.2, -0.2]], "client 1: weight 1 is -0.2; weights cannot be negative"),
        ([[0.5, 0.5], [math.nan, 1.0]], "client 1: weight 0 is nan, not a finite number"),
        ([[0.5, 0.5], [math.inf, 0.0]], "client 1: weight 0 is inf, not a finite number"),
        (
            [[0.6, 0.6], [1.0, 0.0]],
            "client 0: weights sum to 1.2, not 1; the same proportions would be 0.5,0.5",
        ),
        ([[0.0, 0.0], [1.0, 0.0]], "client 0: weights sum to 0, not 1"),
        ([[0.5, 0.5], [0.2, 0.3, 0.5]], "client 1: 3 weights instead of 2 (one per objective)"),
        ([[1.0], [1.0]], "client 0: 1 weight instead of 2 (one per objective)"),
        ([[1.0, 0.0]], "got 1 preferences, but there are 2 clients"),
        ([[1.0, 0.0], ["much", "little"]], "client 1: ['much', 'little'] is not a list of numbers"),
    ],
)
def test_check_says_who_is_wrong_and_what_would_be_right(rows: object, message: str) -> None:
    with pytest.raises(BadPreference) as caught:
        prefs.check(rows, 2, 2)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_the_sum_may_be_off_by_what_six_digits_lose_and_no_more() -> None:
    thirds = [0.333333, 0.333333, 0.333333]
    assert prefs.check([thirds], 1, 3).tolist() == [thirds]
    with pytest.raises(BadPreference, match=r"sum to 1\.000002"):
        prefs.check([[0.5, 0.500002]], 1, 2)


@quick
@given(st.lists(st.floats(0.01, 50), min_size=2, max_size=6).filter(lambda w: abs(sum(w) - 1) > 1e-3))
def test_the_proportions_a_message_proposes_are_accepted(weights: list[float]) -> None:
    with pytest.raises(BadPreference) as caught:
        prefs.check([weights], 1, len(weights))
    proposal = str(caught.value).rpartition(" ")[2]
    rows = prefs.from_spec(proposal, 1, len(weights), rng())
    assert rows[0] == pytest.approx(np.array(weights) / sum(weights), abs=1e-8)


FORMS: list[tuple[prefs.Spec, Callable[[], np.ndarray]]] = [
    ("dirichlet", lambda: prefs.dirichlet(5, 2, rng(7))),
    (" Dirichlet:0.5 ", lambda: prefs.dirichlet(5, 2, rng(7), 0.5)),
    ("gaussian", lambda: prefs.gaussian(5, 2, rng(7))),
    ("equidistant", lambda: prefs.equidistant(5, 2)),
    ("uniform", lambda: np.full((5, 2), 0.5)),
    ("0.7,0.3", lambda: prefs.homogeneous([0.7, 0.3], 5)),
    ("1,0;0,1; 0.5, 0.5;.2,.8;1e0,0", lambda: np.array([[1, 0], [0, 1], [0.5, 0.5], [0.2, 0.8], [1, 0]])),
    ("groups:2,3", lambda: prefs.groups([2, 3], m=2)),
    ("groups:2, 3@0.9,0.1;0.2,0.8", lambda: prefs.groups([2, 3], [[0.9, 0.1], [0.2, 0.8]])),
    ([0.7, 0.3], lambda: prefs.homogeneous([0.7, 0.3], 5)),
    ([1, 0], lambda: prefs.homogeneous([1, 0], 5)),
    (np.array([0.7, 0.3]), lambda: prefs.homogeneous([0.7, 0.3], 5)),
    ([[1, 0]] * 4 + [[0.5, 0.5]], lambda: np.array([[1, 0]] * 4 + [[0.5, 0.5]])),
]


@pytest.mark.parametrize(("spec", "expected"), FORMS, ids=[str(spec) for spec, _ in FORMS])
def test_from_spec_reads_every_form(spec: prefs.Spec, expected: Callable[[], np.ndarray]) -> None:
    rows = prefs.from_spec(spec, 5, 2, rng(7))
    assert_on_simplex(rows, 5, 2)
    assert np.array_equal(rows, expected())


def test_sets_of_tasks_are_dealt_in_turn_and_weigh_alike() -> None:
    rows = prefs.from_spec("tasks: left, right +left,low", 5, 3, rng(), objectives=("left", "right", "low"))
    assert rows.tolist() == [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1], [1, 0, 0], [0.5, 0.5, 0]]


def test_a_sweep_gives_every_run_one_preference_for_all() -> None:
    for run in range(10):
        rows = prefs.from_spec(" Sweep ", 3, 2, rng(), run, 10)
        np.testing.assert_allclose(rows, [[run / 10, 1 - run / 10]] * 3)
    assert prefs.from_spec("sweep", 2, 2, rng()).tolist() == [[0.5, 0.5]] * 2


@pytest.mark.parametrize(
    ("spec", "common"),
    [
        ("uniform", True),
        ("sweep", True),
        ("0.7,0.3", True),
        ([0.7, 0.3], True),
        ("1", True),
        ("dirichlet", False),
        ("equidistant", False),
        ("gaussian", False),
        ("groups:2,3", False),
        ("tasks:left,right", False),
        ("0.7,0.3;0.7,0.3", False),
        ([[0.7, 0.3], [0.7, 0.3]], False),
    ],
)
def test_a_preference_is_public_where_the_spec_gives_one_to_all(spec: prefs.Spec, common: bool) -> None:
    assert prefs.is_common(spec) is common


def test_from_spec_reads_a_single_objective() -> None:
    for spec in ("1", [1.0], "uniform", "equidistant", "dirichlet", "gaussian"):
        assert prefs.from_spec(spec, 2, 1, rng()).tolist() == [[1], [1]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dirichlet:much", "preferences 'dirichlet:much': 'much' is not a number"),
        ("dirichlet:-1", "dirichlet: alpha must be a positive number, got -1.0"),
        ("gaussian:3", "preferences 'gaussian:3': gaussian takes no argument, write 'gaussian'"),
        ("0.7,o.3", "preferences '0.7,o.3': 'o.3' is not a number"),
        ("0.7,", "preferences '0.7,': '' is not a number"),
        ("0.8,0.2001", "the preference: weights sum to 1.0001, not 1; the same proportions would be "
                       "0.799920008,0.200079992"),
        ("0.5,0.2,0.3", "the preference: 3 weights instead of 2 (one per objective)"),
        ("nan,1", "the preference: weight 0 is nan, not a finite number"),
        ("-0.5,1.5", "the preference: weight 0 is -0.5; weights cannot be negative"),
        ("1,0;0,1", "got 2 preferences, but there are 5 clients"),
        ("groups:2,2", "preferences 'groups:2,2': the groups hold 4 clients, but there are 5"),
        ("groups:2,x", "preferences 'groups:2,x': sizes must be whole numbers, as in 'groups:2,3'"),
        ("groups:2,2.5", "preferences 'groups:2,2.5': sizes must be whole numbers, as in 'groups:2,3'"),
        ("groups:0,5", "groups: sizes must be whole numbers of at least 1, got [0, 5]"),
        ("groups:2,3@1,0", "got 1 preferences, but there are 2 groups"),
        ("groups:2,3@1,0;0,2", "group 1: weights sum to 2, not 1; the same proportions would be 0,1"),
        ([0.5, 0.2, 0.3], "the preference: 3 weights instead of 2 (one per objective)"),
        ([[0.5, 0.5]], "got 1 preferences, but there are 5 clients"),
        ([], "the preference: 0 weights instead of 2 (one per objective)"),
        (0.5, "preferences: expected text or a list of numbers, got 0.5"),
    ],
    ids=str,
)  # fmt: skip
def test_from_spec_explains_what_it_cannot_read(spec: prefs.Spec, message: str) -> None:
    with pytest.raises(BadPreference) as caught:
        prefs.from_spec(spec, 5, 2, rng())
    assert str(caught.value) == message


def test_an_unknown_distribution_is_answered_with_the_closest_one() -> None:
    with pytest.raises(UnknownName, match=r"unknown preference distribution 'dirchlet'; did you mean 'dirichlet'\?"):
        prefs.from_spec("dirchlet:0.5", 5, 2, rng())
    with pytest.raises(UnknownName, match="known: dirichlet, equidistant, gaussian, groups, sweep, tasks, uniform"):
        prefs.from_spec("", 5, 2, rng())


def test_no_clients_or_no_objectives_are_refused() -> None:
    for call in (
        lambda: prefs.equidistant(0, 2),
        lambda: prefs.dirichlet(2, 0, rng()),
        lambda: prefs.gaussian(0, 2, rng()),
        lambda: prefs.sweep(0, 2),
        lambda: prefs.homogeneous([], 2),
        lambda: prefs.from_spec("uniform", 0, 2, rng()),
    ):
        with pytest.raises(UserError, match="at least one client and one objective"):
            call()
