from __future__ import annotations

import itertools
from dataclasses import fields

import numpy as np
import pytest

from fedpareto.clock.selection import SELECTION_PARAMETERS, Known, Selection, nearest_ideal
from fedpareto.config.errors import UserError
from fedpareto.moo.dominance import is_nondominated

KINDS = ("random", "round-robin", "available", "power-of-choice", "oort", "nsga2")
CAREFUL = KINDS[1:]
"""Those that look at who is present."""
NEVER = 10**6


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def known(n: int, **changes: object) -> Known:
    """All alike, present, heard in the last round and asked once, but for the changes."""
    everything = {
        "seconds": np.ones(n),
        "joules": np.ones(n),
        "rows": np.full(n, 10),
        "value": np.ones(n),
        "heard": np.zeros(n, dtype=int),
        "asked": np.ones(n, dtype=int),
        "present": np.ones(n, dtype=bool),
        "version": 1,
    }
    arrays = {name: value if np.isscalar(value) else np.asarray(value) for name, value in changes.items()}
    return Known(**{**everything, **arrays})  # type: ignore[arg-type]


def varied(n: int = 40, seed: int = 5) -> Known:
    """A federation with some history: everything differs, a quarter is away, a few were never asked."""
    draws = stream(seed)
    asked = draws.integers(0, 4, n)
    return Known(
        seconds=draws.lognormal(size=n),
        joules=draws.lognormal(size=n),
        rows=draws.integers(1, 100, n),
        value=np.where(asked > 0, draws.random(n), np.nan),
        heard=np.where(asked > 0, draws.integers(0, 6, n), NEVER),
        asked=asked,
        present=draws.random(n) < 0.75,
        version=6,
    )


def frequencies(selection: Selection, state: Known, count: int, draws: int) -> np.ndarray:
    """How often each client is chosen."""
    chance, free = stream(), np.arange(len(state.rows))
    return np.bincount(
        np.concatenate([selection.chosen(state, free, count, chance) for _ in range(draws)]), minlength=len(free)
    ) / (draws)


# -- every rule ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_as_many_of_the_free_as_wanted_ascending_and_a_function_of_the_stream(kind: str) -> None:
    selection, state = Selection(kind), varied()
    free = np.array([31, 2, 3, 38, 11, 12, 25, 26, 27, 5, 8, 0])
    for count in (0, 1, 5, 11, 12, 50):
        chosen = selection.chosen(state, free, count, stream(1))
        assert len(chosen) == min(count, len(free))
        assert (np.diff(chosen) > 0).all()
        assert set(chosen.tolist()) <= set(free.tolist())
        np.testing.assert_array_equal(chosen, selection.chosen(state, np.sort(free), count, stream(1)))
    assert not len(selection.chosen(state, np.array([], dtype=int), 3, stream()))


@pytest.mark.parametrize("kind", CAREFUL)
def test_who_is_away_is_asked_only_if_too_few_are_present(kind: str) -> None:
    state, free = varied(), np.arange(40)
    here = np.flatnonzero(state.present)
    assert state.present[Selection(kind).chosen(state, free, len(here) - 3, stream())].all()
    more = Selection(kind).chosen(state, free, len(here) + 3, stream())
    assert set(here.tolist()) < set(more.tolist())
    assert len(more) == len(here) + 3


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_has_to_be_known(kind: str) -> None:
    """A first round on real nodes: no times, no energy, no rows, no values; and one that would never come back."""
    nan = np.full(20, np.nan)
    state = known(20, seconds=nan, joules=nan, rows=np.zeros(20), value=nan, heard=np.full(20, NEVER), version=0)
    for asked in (0, 1):
        state.asked = np.full(20, asked)
        assert len(Selection(kind).chosen(state, np.arange(20), 6, stream())) == 6
    state.seconds = np.where(np.arange(20) == 7, np.inf, 0.0)
    assert len(Selection(kind).chosen(state, np.arange(20), 6, stream())) == 6


# -- random, round-robin, available --------------------------------------------------------------------------------


def test_random_prefers_nobody_not_even_those_present() -> None:
    often = frequencies(Selection(), varied(), 10, 3000)
    # A quarter each; five standard deviations.
    assert np.abs(often - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 3000)


@pytest.mark.parametrize(("n", "count"), [(12, 4), (10, 3), (7, 7), (5, 1)])
def test_round_robin_asks_everybody_once_in_as_few_rounds_as_possible(n: int, count: int) -> None:
    state = known(n, asked=np.zeros(n, dtype=int))
    for turn in range(1, 4):
        while state.asked.min() < turn:
            state.asked[Selection("round-robin").chosen(state, np.arange(n), count, stream())] += 1
        assert state.asked.sum() == count * -(-turn * n // count)
        assert state.asked.max() - state.asked.min() <= 1


def test_available_takes_those_not_heard_for_longest_and_of_equal_ones_the_first() -> None:
    state = known(7, heard=[3, NEVER, 0, 3, 9, 3, NEVER], present=[1, 1, 1, 1, 1, 1, 0])
    assert Selection("available").chosen(state, np.arange(7), 3, stream()).tolist() == [0, 1, 4]


# -- power of choice -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_power_of_choice_among_all_takes_exactly_the_worst(seed: int) -> None:
    state = known(30, value=stream(seed).normal(size=30), rows=stream(seed).integers(1, 50, 30))
    chosen = Selection("power-of-choice", candidates=30).chosen(state, np.arange(30), 8, stream(seed))
    assert set(chosen.tolist()) == set(np.argsort(state.value)[-8:].tolist())


def test_power_of_choice_with_as_many_candidates_as_places_draws_by_rows() -> None:
    often = frequencies(Selection("power-of-choice", candidates=1), known(4, rows=[1, 2, 7, 0]), 1, 2000)
    # Who told no rows counts as an average client, with 10/3.
    np.testing.assert_allclose(often, np.array([1, 2, 7, 10 / 3]) / (10 + 10 / 3), atol=0.05)


def test_power_of_choice_takes_the_worse_of_two_drawn() -> None:
    """Two of three are drawn alike: the worst is in two of three pairs, the best never wins."""
    often = frequencies(Selection("power-of-choice"), known(3, value=[1.0, 3.0, 2.0]), 1, 1500)
    np.testing.assert_allclose(often, [0, 2 / 3, 1 / 3], atol=0.06)


def test_power_of_choice_hears_everybody_once_before_anybody_twice() -> None:
    state = known(12, asked=np.zeros(12, dtype=int), value=np.full(12, np.nan))
    for _ in range(4):
        chosen = Selection("power-of-choice", candidates=12).chosen(state, np.arange(12), 3, stream(1))
        state.asked[chosen] += 1
        state.value[chosen] = 100.0
    assert state.asked.tolist() == [1] * 12


def test_power_of_choice_does_not_insist_on_a_client_that_never_answers() -> None:
    state = known(4, value=[1.0, 5.0, np.nan, 2.0])
    assert Selection("power-of-choice", candidates=4).chosen(state, np.arange(4), 1, stream()).tolist() == [1]


# -- Oort ----------------------------------------------------------------------------------------------------------

EXPLOIT = Selection("oort", exploration=0.0, least=0.0)


def oort(state: Known, count: int = 1, selection: Selection = EXPLOIT) -> list[int]:
    return selection.chosen(state, np.arange(len(state.rows)), count, stream()).tolist()


def test_oort_takes_rows_times_value() -> None:
    assert oort(known(3, rows=[10, 30, 20], value=[4.0, 1.0, 2.5])) == [2], "40, 30 and 50"


def test_oort_lets_a_slow_client_count_for_less() -> None:
    """T is the median, 2 s. The last client is worth twice as much, and takes 1.5 T or 1.3 T."""
    state = known(3, value=[0.1, 1.0, 2.0], seconds=[1.0, 2.0, 3.0])
    assert oort(state) == [1], "2 · (2/3)² = 0.89 < 1"
    assert oort(state, selection=Selection("oort", exploration=0, least=0, penalty=1.0)) == [2], "2 · 2/3 > 1"
    assert oort(state, selection=Selection("oort", exploration=0, least=0, preferred=1.0)) == [2], "nobody is slow"
    state.seconds[2] = 2.6
    assert oort(state) == [2], "2 · (2/2.6)² = 1.18 > 1"


def test_oort_returns_to_those_not_heard_for_long() -> None:
    """√(0.1 · ln 100 / L): 0.68 for L = 1, 0.07 for L = 99."""
    state = known(3, value=[0.8, 1.0, 1.0], heard=[99, 1, 1], version=100)
    assert oort(state) == [0], "0.8 + 0.68 > 1 + 0.07"
    state.value[0] = 0.3
    assert oort(state) != [0], "0.3 + 0.68 < 0.95 · (1 + 0.07)"


def test_oort_draws_among_those_that_nearly_reach_the_cut() -> None:
    often = frequencies(EXPLOIT, known(3, value=[1.0, 0.97, 0.9]), 1, 500)
    np.testing.assert_allclose(often, [0.5, 0.5, 0.0], atol=0.09)


def test_oort_counts_negative_values_from_the_best() -> None:
    assert oort(known(3, value=[-5.0, -1.0, -3.0])) == [1]


@pytest.mark.parametrize(("version", "explored"), [(0, 8), (1, 4), (2, 2), (50, 2)])
def test_oort_explores_a_share_that_falls_to_the_least(version: int, explored: int) -> None:
    asked = np.repeat([0, 1], [30, 30])
    state = known(60, asked=asked, value=np.where(asked, 1.0, np.nan), version=version)
    chosen = oort(state, 10, Selection("oort", exploration=0.8, decay=0.5, least=0.2))
    assert sum(row < 30 for row in chosen) == explored


def test_oort_asked_for_one_explores_as_often_as_the_share_says() -> None:
    asked = np.repeat([0, 1], [5, 5])
    state = known(10, asked=asked, value=np.where(asked, 1.0, np.nan), version=0)
    often = frequencies(Selection("oort", exploration=0.3), state, 1, 500)
    assert often[:5].sum() == pytest.approx(0.3, abs=0.08)


def test_oort_explores_quick_clients_first() -> None:
    state = known(3, asked=[0, 0, 0], value=[np.nan] * 3, seconds=[1.0, 2.0, 4.0])
    np.testing.assert_allclose(frequencies(Selection("oort"), state, 1, 1000), np.array([4, 2, 1]) / 7, atol=0.06)


def test_oort_fills_up_from_either_side() -> None:
    asked = np.repeat([0, 1], [2, 10])
    state = known(12, asked=asked, value=np.where(asked, 1.0, np.nan))
    assert set(oort(state, 8, Selection("oort", exploration=1.0))) >= {0, 1}
    state = known(12, asked=1 - asked, value=np.where(asked, np.nan, 1.0))
    assert set(oort(state, 8)) >= {0, 1}


# -- NSGA-II -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "sign"),
    [
        ("seconds", np.arange(20.0), 1),
        ("joules", np.arange(20.0), 1),
        ("rows", np.arange(1, 21), -1),
        ("value", np.arange(20.0), -1),
        ("heard", np.arange(20), -1),
    ],
)
def test_where_only_one_objective_differs_its_best_are_chosen(name: str, values: np.ndarray, sign: int) -> None:
    shuffled = stream(3).permutation(values)
    chosen = Selection("nsga2").chosen(known(20, version=30, **{name: shuffled}), np.arange(20), 6, stream())
    assert set(chosen.tolist()) == set(np.argsort(sign * shuffled)[:6].tolist())


def test_nsga2_asked_for_one_takes_exactly_the_client_nearest_to_the_ideal() -> None:
    state = varied(30)
    state.asked[:] = 1  # Who never told a value counts as average, by hand below.
    value = np.where(np.isnan(state.value), np.nanmean(state.value), state.value)
    free = np.flatnonzero(state.present)
    worth, silence = state.rows * value, np.minimum(state.heard, state.version + 1)
    costs = np.column_stack([state.seconds, state.joules, -worth, -silence])[free]
    corners = np.array([costs[costs[:, j].argmin()] for j in range(4)])
    distances = [np.linalg.norm((row - costs.min(axis=0)) / np.ptp(corners, axis=0)) for row in costs]
    chosen = Selection("nsga2").chosen(state, np.arange(30), 1, stream())
    assert chosen.tolist() == [free[int(np.argmin(distances))]]
    assert is_nondominated(costs, keep_duplicates=True)[int(np.argmin(distances))]


def test_the_subset_of_nsga2_is_on_the_exact_front_and_nearly_the_nearest_to_the_ideal() -> None:
    state = varied(12)
    state.present[:] = True
    members = np.array(list(itertools.combinations(range(12), 4)))
    worth = state.rows * np.where(np.isnan(state.value), np.nanmax(state.value), state.value)
    silence = np.minimum(state.heard, 7)
    losses = np.column_stack(
        [
            state.seconds[members].max(axis=1),
            state.joules[members].sum(axis=1),
            -worth[members].sum(axis=1),
            -silence[members].sum(axis=1),
        ]
    )
    front = is_nondominated(losses, keep_duplicates=True)
    exact = members[front]
    costs = np.column_stack([state.seconds, state.joules, -worth, -silence])
    alone = np.sort(np.argsort(costs, axis=0, kind="stable")[:4].T)
    corners = losses[[np.flatnonzero((members == row).all(axis=1))[0] for row in alone]]
    np.testing.assert_array_equal(corners.diagonal(), losses.min(axis=0))
    distance = np.sqrt((((losses - losses.min(axis=0)) / np.ptp(corners, axis=0)) ** 2).sum(axis=1))
    for seed in range(5):
        chosen = Selection("nsga2").chosen(state, np.arange(12), 4, stream(seed))
        (place,) = np.flatnonzero((members == chosen).all(axis=1))
        assert chosen.tolist() in exact.tolist()
        assert distance[place] <= 1.1 * distance[front].min()


def test_nearest_to_the_ideal_does_not_depend_on_units() -> None:
    losses = np.array([[0.0, 1.0], [0.3, 0.4], [1.0, 0.0]])
    assert nearest_ideal(losses, losses[[0, 2]]) == 1
    other = losses * [1e6, 1e-3] + [5, -7]
    assert nearest_ideal(other, other[[0, 2]]) == 1
    assert nearest_ideal(np.ones((3, 2)), np.ones((2, 2))) == 0


# -- bad input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"candidates": 0}, "candidates is 0; it is at least 1"),
        ({"exploration": 1.5}, "exploration is 1.5; it is at least 0 and at most 1"),
        ({"least": -0.1}, "least is -0.1; it is at least 0 and at most 1"),
        ({"least": 0.95}, "least is 0.95, above exploration, 0.9"),
        ({"preferred": float("nan")}, "preferred is nan; it is at least 0 and at most 1"),
        ({"decay": 0.0}, "decay is 0; it is above 0 and at most 1"),
        ({"penalty": -1.0}, "penalty is -1; it is at least 0"),
        ({"penalty": float("inf")}, "penalty is inf; it is at least 0"),
        ({"population": 1}, "population is 1; it is at least 2"),
        ({"generations": -1}, "generations is -1; it is at least 0"),
    ],
)
def test_a_parameter_that_cannot_be_is_one_line(parameters: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=r"^selection: [^\n]+$") as refused:
        Selection(**parameters)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_candidates_are_from_those_asked_to_all_clients() -> None:
    Selection("power-of-choice", candidates=20).must_fit(100, 10)
    Selection("power-of-choice").must_fit(100, 100)
    for candidates in (9, 101):
        with pytest.raises(UserError, match=rf"candidates is {candidates}; it is from 10, .* to 100, all clients$"):
            Selection("power-of-choice", candidates=candidates).must_fit(100, 10)


def test_every_parameter_belongs_to_a_kind() -> None:
    assert {field.name for field in fields(Selection)} == {"kind", *SELECTION_PARAMETERS}
    assert {kind for kinds in SELECTION_PARAMETERS.values() for kind in kinds} <= set(KINDS)
