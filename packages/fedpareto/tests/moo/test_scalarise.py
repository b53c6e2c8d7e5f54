from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.moo.scalarise import SCALARISATIONS, linear, smooth_tchebycheff, tchebycheff

quick = settings(deadline=None, max_examples=60, derandomize=True)


@st.composite
def losses_and_weights(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    m = draw(st.integers(1, 5))
    losses = draw(st.lists(st.floats(-5, 5), min_size=m, max_size=m))
    raw = draw(st.lists(st.floats(0.01, 1), min_size=m, max_size=m))
    return torch.tensor(losses, dtype=torch.float64), torch.tensor([w / sum(raw) for w in raw], dtype=torch.float64)


@quick
@given(losses_and_weights(), st.floats(-1, 1))
def test_values_equal_the_formulas(pair: tuple[Tensor, Tensor], ideal: float) -> None:
    losses, weights = pair
    terms = [w * x for w, x in zip(weights.tolist(), losses.tolist(), strict=True)]
    shifted = [w * (x - ideal) for w, x in zip(weights.tolist(), losses.tolist(), strict=True)]
    smooth = 0.5 * math.log(sum(math.exp(term / 0.5) for term in shifted))
    assert linear(losses, weights).item() == pytest.approx(sum(terms), abs=1e-12)
    assert tchebycheff(losses, weights, ideal).item() == pytest.approx(max(shifted), abs=1e-12)
    assert smooth_tchebycheff(losses, weights, ideal, mu=0.5).item() == pytest.approx(smooth, abs=1e-12)


@quick
@given(losses_and_weights(), st.floats(1e-4, 1))
def test_smooth_tchebycheff_lies_above_tchebycheff_by_at_most_mu_log_m(pair: tuple[Tensor, Tensor], mu: float) -> None:
    gap = (smooth_tchebycheff(*pair, mu=mu) - tchebycheff(*pair)).item()
    assert -1e-12 <= gap <= mu * math.log(len(pair[0])) + 1e-12


def test_smooth_tchebycheff_and_its_gradient_tend_to_tchebycheff_as_mu_vanishes() -> None:
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    losses = torch.tensor([1.0, 2.0, 0.4], dtype=torch.float64, requires_grad=True)
    (sharp,) = torch.autograd.grad(tchebycheff(losses, weights), losses)
    assert sharp.tolist() == [0, 0.3, 0]
    gaps = []
    for mu in (1.0, 0.1, 0.01, 0.001):
        value = smooth_tchebycheff(losses, weights, mu=mu)
        (gradient,) = torch.autograd.grad(value, losses)
        gaps.append((value.item() - 0.6, (gradient - sharp).abs().max().item()))
    assert gaps == sorted(gaps, reverse=True)
    assert max(gaps[-1]) < 1e-12


@pytest.mark.parametrize("name", sorted(SCALARISATIONS))
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    # Well apart, because Tchebycheff has a kink where two weighted losses are equal.
    losses = torch.tensor([[1.0, 2.5, 0.3], [0.2, 0.1, 4.0]], dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(SCALARISATIONS[name], (losses, weights))


@pytest.mark.parametrize("name", sorted(SCALARISATIONS))
def test_leading_dimensions_are_kept_and_each_row_is_on_its_own(name: str) -> None:
    scalarise = SCALARISATIONS[name]
    generator = torch.Generator().manual_seed(0)
    losses = torch.rand(2, 4, 3, generator=generator)
    weights = torch.rand(4, 3, generator=generator)
    together = scalarise(losses, weights)
    assert together.shape == (2, 4)
    alone = torch.stack([torch.stack([scalarise(losses[i, j], weights[j]) for j in range(4)]) for i in range(2)])
    assert torch.allclose(together, alone)
    assert torch.allclose(torch.vmap(scalarise)(losses[0], weights), alone[0])


@pytest.mark.parametrize("name", sorted(SCALARISATIONS))
def test_a_larger_weight_makes_that_loss_matter_more(name: str) -> None:
    scalarise = SCALARISATIONS[name]
    cheap_first, cheap_second = torch.tensor([0.1, 1.0]), torch.tensor([1.0, 0.1])
    cares_for_first = torch.tensor([0.9, 0.1])
    assert scalarise(cheap_first, cares_for_first) < scalarise(cheap_second, cares_for_first)


def test_equal_worst_losses_share_the_gradient_of_tchebycheff() -> None:
    losses = torch.tensor([2.0, 2.0, 1.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(tchebycheff(losses, torch.ones(3)), losses)
    assert gradient.tolist() == [0.5, 0.5, 0]


def test_the_ideal_point_may_differ_per_objective() -> None:
    losses, weights, ideal = torch.tensor([3.0, 5.0]), torch.tensor([0.5, 0.5]), torch.tensor([0.0, 4.0])
    assert tchebycheff(losses, weights, ideal).item() == 1.5
    assert smooth_tchebycheff(losses, weights, ideal, mu=1e-3).item() == pytest.approx(1.5)


def test_smooth_tchebycheff_does_not_overflow_on_large_losses() -> None:
    assert smooth_tchebycheff(torch.tensor([1e6, 1.0]), torch.tensor([0.5, 0.5]), mu=1e-3).item() == 5e5


def test_mismatched_objectives_and_a_smoothing_of_zero_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in objectives"):
        linear(torch.ones(3), torch.ones(1))
    for mu in (0.0, -1.0, math.nan):
        with pytest.raises(UserError, match="mu: the smoothing must be a positive number"):
            smooth_tchebycheff(torch.ones(2), torch.ones(2), mu=mu)
