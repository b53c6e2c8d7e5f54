from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpareto.config.errors import UserError
from fedpareto.moo.dominance import dominates, front, is_nondominated, rank_k_front, ranks

quick = settings(deadline=None, max_examples=80, derandomize=True)


@st.composite
def point_sets(draw: st.DrawFn, most: int = 12) -> np.ndarray:
    """Few values, so that ties and exact duplicates are common."""
    shape = (draw(st.integers(0, most)), draw(st.integers(1, 5)))
    return draw(arrays(np.float64, shape, elements=st.integers(-2, 2).map(float)))


def beats(a: np.ndarray, b: np.ndarray) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def unbeaten(points: np.ndarray) -> list[int]:
    return [i for i, p in enumerate(points) if not any(beats(q, p) for q in points)]


def peeled_ranks(points: np.ndarray) -> list[int]:
    result, left, rank = [0] * len(points), list(range(len(points))), 0
    while left:
        rank += 1
        layer = [left[i] for i in unbeaten(points[left])]
        for i in layer:
            result[i] = rank
        left = [i for i in left if i not in layer]
    return result


@quick
@given(point_sets())
def test_dominates_agrees_with_the_definition(points: np.ndarray) -> None:
    for a in points:
        for b in points:
            assert dominates(a, b) == beats(a, b)


def test_a_point_dominates_neither_its_equal_nor_a_trade_off() -> None:
    assert not dominates([1, 2], [1, 2])
    assert not dominates([1, 2], [2, 1])
    assert dominates([1, 2], [1, 3])
    assert dominates([3, 2], [1, 3], maximise=[True, False])


@quick
@given(point_sets())
def test_nondominated_with_duplicates_equals_brute_force(points: np.ndarray) -> None:
    assert np.flatnonzero(is_nondominated(points, keep_duplicates=True)).tolist() == unbeaten(points)


@quick
@given(point_sets())
def test_of_exact_duplicates_only_the_first_is_kept(points: np.ndarray) -> None:
    firsts = [i for i in unbeaten(points) if points[i].tolist() not in points[:i].tolist()]
    assert np.flatnonzero(is_nondominated(points)).tolist() == firsts


@pytest.mark.parametrize("m", [2, 3, 4, 6])
def test_nondominated_and_ranks_equal_brute_force_on_larger_sets(m: int) -> None:
    points = np.random.default_rng(m).integers(0, 6, size=(120, m)).astype(float)
    assert np.flatnonzero(is_nondominated(points, keep_duplicates=True)).tolist() == unbeaten(points)
    assert ranks(points).tolist() == peeled_ranks(points)


@quick
@given(point_sets())
def test_ranks_equal_repeated_peeling(points: np.ndarray) -> None:
    assert ranks(points).tolist() == peeled_ranks(points)


@quick
@given(point_sets(), st.randoms(use_true_random=False))
def test_front_is_sorted_distinct_and_independent_of_the_order(points: np.ndarray, random: object) -> None:
    rows = points.tolist()
    random.shuffle(rows)  # type: ignore[attr-defined]
    expected = sorted({tuple(points[i]) for i in unbeaten(points)})
    assert front(points).tolist() == [list(row) for row in expected]
    assert front(np.reshape(rows, points.shape)).tolist() == front(points).tolist()


@quick
@given(point_sets(), st.data())
def test_maximising_equals_minimising_the_negation(points: np.ndarray, data: st.DataObject) -> None:
    m = points.shape[1]
    maximise = data.draw(st.lists(st.booleans(), min_size=m, max_size=m))
    turned = points * np.where(maximise, -1.0, 1.0)
    assert is_nondominated(points, maximise).tolist() == is_nondominated(turned).tolist()
    assert ranks(points, maximise).tolist() == ranks(turned).tolist()
    assert ranks(points, True).tolist() == ranks(-points).tolist()
    if len(points) > 1:
        assert dominates(points[0], points[1], maximise) == dominates(turned[0], turned[1])


@quick
@given(point_sets(), st.integers(1, 4))
def test_rank_k_front_keeps_every_point_of_rank_up_to_k(points: np.ndarray, k: int) -> None:
    expected = [row for row, rank in zip(points.tolist(), peeled_ranks(points), strict=True) if rank <= k]
    assert rank_k_front(points, k).tolist() == expected


def test_an_empty_list_is_an_empty_set_of_points() -> None:
    assert is_nondominated([]).shape == (0,)
    assert ranks([]).shape == (0,)
    assert len(front([])) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    with pytest.raises(UserError, match=r"row 1, objective 0 is .*not a finite number"):
        front([[0.0, 1.0], [bad, 2.0]])
    with pytest.raises(UserError, match="not a finite number"):
        dominates([bad, 1.0], [0.0, 1.0])


def test_wrong_shapes_and_senses_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected an array \[k, m\]"):
        ranks([1.0, 2.0])
    with pytest.raises(UserError, match="expected 2 values"):
        dominates([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(UserError, match="maximise: expected True, False or 2"):
        front([[1.0, 2.0]], maximise=[True])
    with pytest.raises(UserError, match="maximise"):
        front([[1.0, 2.0]], maximise=["min", "max"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="ranks start at 1"):
        rank_k_front([[1.0, 2.0]], 0)


def test_importing_the_array_modules_loads_neither_torch_nor_moocore_nor_scipy() -> None:
    program = (
        "import sys, fedpareto; before = set(sys.modules)\n"
        "import fedpareto.moo.dominance, fedpareto.moo.indicators, fedpareto.moo.preferences\n"
        "print(sorted({'torch', 'moocore', 'scipy'} & (set(sys.modules) - before)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, env=environment, text=True).strip() == "[]"
