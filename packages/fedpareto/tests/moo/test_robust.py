"""Robust rules against their definitions: what a few wrong updates can do, and what they cannot."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedpareto.moo import robust, updates

DIMENSION = 7
seeds = st.integers(0, 2**31)


def crowd(seed: int, honest: int, attackers: int, distance: float = 50.0) -> tuple[Tensor, Tensor, list[int]]:
    """Models of honest clients near each other and of attackers anywhere, shuffled; the origin; the honest places."""
    stream = np.random.default_rng(seed)
    near = stream.normal(size=DIMENSION) + 0.1 * stream.normal(size=(honest, DIMENSION))
    far = distance * stream.normal(size=(attackers, DIMENSION))
    order = stream.permutation(honest + attackers)
    models = np.concatenate([near, far])[order]
    places = [place for place, who in enumerate(order) if who < honest]
    return torch.as_tensor(models), torch.as_tensor(stream.normal(size=DIMENSION)), places


@given(seed=seeds, attackers=st.integers(0, 5), more=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_with_fewer_than_half_attackers_the_median_lies_within_the_honest_range(
    seed: int, attackers: int, more: int
) -> None:
    models, origin, honest = crowd(seed, attackers + more, attackers, distance=1e6)
    found = robust.median(models, origin)
    true = models[honest] - origin
    slack = 1e-9 * true.abs().max()
    assert (found >= true.amin(0) - slack).all()
    assert (found <= true.amax(0) + slack).all()


def test_half_of_the_updates_can_move_the_median() -> None:
    models, origin, honest = crowd(0, 3, 4, distance=1e6)
    true = models[honest] - origin
    found = robust.median(models, origin)
    assert ((found < true.amin(0)) | (found > true.amax(0))).any()


@given(seed=seeds, attackers=st.integers(0, 4), more=st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_a_trimmed_mean_that_cuts_as_many_as_attack_lies_within_the_honest_range(
    seed: int, attackers: int, more: int
) -> None:
    models, origin, honest = crowd(seed, attackers + more, attackers, distance=1e6)
    found = robust.trimmed_mean(models, origin, attackers)
    true = models[honest] - origin
    slack = 1e-9 * true.abs().max()
    assert (found >= true.amin(0) - slack).all()
    assert (found <= true.amax(0) + slack).all()


@pytest.mark.parametrize("count", [1, 2, 5, 8])
@pytest.mark.parametrize("entries", [64, 2**21])
def test_median_and_trimmed_mean_are_numpys_and_scipys(
    count: int, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scipy.stats import trim_mean

    monkeypatch.setattr(updates, "ENTRIES", entries)
    stream = np.random.default_rng(count)
    models, origin = stream.normal(size=(count, 150)), stream.normal(size=150)
    rows, start = torch.as_tensor(models), torch.as_tensor(origin)
    np.testing.assert_allclose(robust.median(rows, start), np.median(models - origin, axis=0), atol=1e-12)
    for cut in range((count + 1) // 2):
        expected = trim_mean(models - origin, cut / count + 1e-9, axis=0)
        np.testing.assert_allclose(robust.trimmed_mean(rows, start, cut), expected, atol=1e-12)
    plain = robust.trimmed_mean(rows, start, 0)
    np.testing.assert_allclose(plain, models.mean(0) - origin, atol=1e-12)


def test_cutting_everything_is_an_error() -> None:
    with pytest.raises(ValueError, match="of 4 updates, 2 at each end"):
        robust.trimmed_mean(torch.zeros(4, 3), torch.zeros(3), 2)


@given(seed=seeds, attackers=st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_krum_picks_honest_updates_if_at_least_2f_and_3_reply(seed: int, attackers: int) -> None:
    models, origin, honest = crowd(seed, attackers + 3, attackers)
    assert set(robust.krum(updates.gram_of_updates(models, origin), attackers)) <= set(honest)
    assert robust.krum(updates.gram_of_updates(models, origin), attackers, keep=attackers + 3) == sorted(honest)


def test_krum_scores_are_those_of_the_definition() -> None:
    models, origin, _ = crowd(3, 6, 2)
    f, n = 2, 8
    expected = []
    for i in range(n):
        others = sorted(float((models[i] - models[j]).square().sum()) for j in range(n) if j != i)
        expected.append(sum(others[: n - f - 2]))
    scores = robust.krum_scores(updates.gram_of_updates(models, origin), f)
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64))


def test_colluders_that_are_too_many_fool_krum() -> None:
    """With f = 4 of n = 9 < 2f + 3, equal false updates have enough neighbours among themselves."""
    models, origin, honest = crowd(1, 5, 1)
    (liar,) = set(range(6)) - set(honest)
    fooled = torch.cat([models, models[[liar] * 3]])
    assert robust.krum(updates.gram_of_updates(fooled, origin), 4)[0] in (liar, 6, 7, 8)


@given(seed=seeds, norm=st.floats(0.1, 100))
@settings(max_examples=60, deadline=None)
def test_clipping_shortens_long_updates_keeps_their_direction_and_leaves_short_ones_alone(
    seed: int, norm: float
) -> None:
    models, origin, _ = crowd(seed, 3, 3)
    limit = torch.tensor(norm, dtype=torch.float64)
    for model in models:
        after, length = robust.clipped(model, origin, limit), (model - origin).norm()
        if length <= norm:
            assert torch.equal(after, model)
        else:
            torch.testing.assert_close(after - origin, (model - origin) * norm / length)


def test_each_of_several_models_is_clipped_for_itself() -> None:
    models, origin = torch.tensor([[3.0, 4.0], [0.3, 0.4]]), torch.zeros(2, 2)
    assert robust.lengths(models[None], origin[None]).tolist() == [pytest.approx([5.0, 0.5])]
    after = robust.clipped(models, origin, torch.tensor([1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(after, torch.tensor([[0.6, 0.8], [0.3, 0.4]]))


@given(seed=seeds, factor=st.floats(1.0, 1e6))
@settings(max_examples=40, deadline=None)
def test_no_client_stretches_the_common_descent(seed: int, factor: float) -> None:
    """One update made longer changes nothing but which length is the median; and the step descends for all."""
    models, origin, _ = crowd(seed, 4, 1, distance=1.0)
    longest = max(range(5), key=lambda place: float((models[place] - origin).norm()))
    stretched = models.clone()
    stretched[longest] = origin + factor * (models[longest] - origin)
    before, after = (robust.common_descent(some, origin, 1.0) for some in (models, stretched))
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-7)
    for model in models:
        assert float((model - origin) @ before) >= -1e-6


def test_common_descent_of_equal_updates_is_that_update_and_of_none_is_zero() -> None:
    origin, model = torch.zeros(4), torch.tensor([1.0, -2.0, 0.5, 3.0])
    torch.testing.assert_close(robust.common_descent(model.expand(5, -1), origin, 0.3), model.double())
    assert not robust.common_descent(origin.expand(5, -1), origin, 0.3).any()
