"""Are two halves really two?"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch

from fedpareto.algorithms.clustered.fedpref import bipartition
from fedpareto.moo.separation import separation, separation_p_value
from fedpareto.moo.similarity import cosines


def cloud(stream, centres, noise=1.0, dimension=60):
    """Cosines of updates around their centres, `[n]` of them, seen from their mean."""
    updates = torch.as_tensor(stream.standard_normal((len(centres), dimension))) * noise
    updates[:, 0] += torch.as_tensor(centres, dtype=torch.float64)
    return cosines(updates - updates.mean(dim=0))


def test_separation_is_the_mean_of_pairs_within_minus_that_of_pairs_across():
    similarity = torch.tensor([[1.0, 0.6, 0.1], [0.6, 1.0, 0.3], [0.1, 0.3, 1.0]])
    sides = torch.tensor([[True, True, False], [False, True, False]])
    assert separation(similarity, sides) == pytest.approx([0.6 - 0.2, 0.1 - 0.45])


@pytest.mark.parametrize("sizes", [(10, 10), (5, 15), (4, 5)])
def test_two_separated_groups_are_told_apart(sizes):
    stream = np.random.default_rng(0)
    centres = [0.0] * sizes[0] + [20.0] * sizes[1]
    half = bipartition(cloud(stream, centres))[0]
    assert separation_p_value(cloud(stream, centres), half, stream) <= 0.01


@pytest.mark.parametrize("n", [9, 20])
def test_one_cloud_is_split_about_as_often_as_the_level_says(n):
    """Where one draw chooses the halves and another judges them; judged by the same draw, nearly all would pass."""
    stream = np.random.default_rng(1)
    fresh, same = [], []
    for _ in range(80):
        proposed = cloud(stream, [0.0] * n)
        half = bipartition(proposed)[0]
        fresh.append(separation_p_value(cloud(stream, [0.0] * n), half, stream, draws=199))
        same.append(separation_p_value(proposed, half, stream, draws=199))
    assert np.mean(np.array(fresh) <= 0.1) <= 0.2, "a binomial of 80 and 0.1 exceeds 16 once in 200 times"
    assert 0.35 <= np.mean(fresh) <= 0.65, "p values of nothing are spread evenly"
    assert np.mean(np.array(same) <= 0.1) >= 0.8, "the test that this one replaces"


def test_too_few_members_prove_nothing():
    stream = np.random.default_rng(2)
    perfect = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3))
    assert separation_p_value(perfect, [0, 1], stream) == pytest.approx(1 / 10, abs=0.03), "one of ten halves of two"
    assert separation_p_value(torch.ones(2, 2), [0], stream) == 1


def test_the_p_value_is_the_share_of_halves_that_are_as_clear_and_this_one_is_among_them():
    """Six members in a circle, where halves are as clear as those beside them: in exact numbers, not by rounding."""
    away = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    sevenths = np.array([7, 5, 3, 1])[np.minimum(away, 6 - away)]
    for half in (half for size in (1, 2, 3) for half in combinations(range(6), size)):
        orders = np.random.default_rng(3).random((60, 6)).argsort(axis=1)
        clear = []
        for side in [np.isin(np.arange(6), half), *(orders < len(half))]:
            together = np.equal.outer(side, side)
            within = Fraction(int(sevenths[together].sum() - 6 * 7), int(together.sum() - 6))
            clear.append(within - Fraction(int(sevenths[~together].sum()), int((~together).sum())))
        p = separation_p_value(torch.as_tensor(sevenths / 7), list(half), np.random.default_rng(3), draws=60)
        assert p == pytest.approx(np.mean([one >= clear[0] for one in clear]), rel=1e-12)


def test_a_half_of_members_that_are_all_alike_proves_nothing_and_a_clear_one_is_never_impossible():
    stream = np.random.default_rng(4)
    assert separation_p_value(torch.full((8, 8), 0.3), [0, 1, 2], stream, draws=50) == 1
    clear = torch.block_diag(torch.ones(15, 15), torch.ones(15, 15))
    assert separation_p_value(clear, list(range(15)), stream, draws=50) == pytest.approx(1 / 51)
    apart = torch.tensor([[1.0, 0, 0], [0, 1, 1], [0, 1, 1]])
    assert separation_p_value(apart, [0], stream) == pytest.approx(1 / 3, abs=0.06), "one of three halves of three"
    for none in ([], [0, 1, 2]):
        assert separation_p_value(apart, none, stream) == 1
